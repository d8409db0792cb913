"""Rows that are encoded together give the octets, or the error, that they give one by one."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escrowmq.client.blocks import LARGE
from escrowmq.spark.encoding.blocks import contents, pieces
from escrowmq.spark.encoding.properties import PropertiesEncoder
from escrowmq.spark.errors import EscrowSparkError
from escrowmq.wire.amqp091 import blocks
from escrowmq.wire.amqp091.block_layouts import check
from escrowmq.wire.amqp091.keyed import KEYED, join
from escrowmq.wire.amqp091.packed import pack

TEXTS = (
    *("content_type", "content_encoding", "correlation_id", "reply_to", "expiration"),
    *("message_id", "type", "user_id", "app_id", "cluster_id"),
)
KIND = pa.struct(
    [
        *[(name, pa.string()) for name in TEXTS],
        ("delivery_mode", pa.int32()),
        ("priority", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
HEADERS = pa.map_(pa.string(), pa.string())


def at(seconds: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(seconds, dt.UTC)


text = st.one_of(st.none(), st.text(max_size=4), st.sampled_from(["m-1", "m-2", "ä", "x" * 255, "x" * 256]))
properties = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(TEXTS, text),
            "delivery_mode": st.one_of(st.none(), st.integers(1, 2), st.sampled_from([-1, 256])),
            "priority": st.one_of(st.none(), st.integers(0, 9), st.sampled_from([-1, 255, 256])),
            "timestamp": st.one_of(
                st.none(),
                st.integers(-86_400, 4_000_000_000).map(at),
            ),
        },
    ),
)
headers = st.one_of(
    st.none(),
    st.lists(
        st.tuples(
            st.one_of(st.sampled_from(["a", "b", "CC", "ä", "n" * 255, "n" * 256]), st.text(max_size=3)),
            st.one_of(st.none(), st.text(max_size=5)),
        ),
        max_size=4,
    ),
)
rows = st.lists(st.tuples(st.binary(max_size=9), properties, headers, st.text(max_size=4)), min_size=1, max_size=12)
Row = tuple[bytes, dict[str, Any] | None, list[tuple[str, str | None]] | None, str]


def columns(given_rows: list[Row]) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array]:
    bodies, lists, maps, keys = zip(*given_rows, strict=True)
    return (
        pa.array(bodies, pa.binary()),
        pa.array(lists, KIND),
        pa.array(maps, HEADERS),
        pa.array(keys, pa.string()),
    )


def alone(row: Row, *, keyed: bool) -> bytes | str:
    """Return the content of a row by the codec of single messages, or the error."""
    body, lists, maps, key = columns([row])
    try:
        props = PropertiesEncoder().encode(lists, maps)
    except EscrowSparkError as error:
        return str(error)
    assert isinstance(props, bytes)
    packed = pack(props, body[0].as_py())
    return join(key[0].as_py().encode(), packed) if keyed else packed


def cut(block: bytes) -> list[bytes]:
    """Return the contents of a block, which must be valid for the broker."""
    found = blocks.decode(block)
    for members in found.layouts:
        check(found, members, 131_072, LARGE - 1)
    return [found.data[start:stop] for start, stop in zip(found.starts, found.stops, strict=True)]


@settings(deadline=None, max_examples=300)
@given(rows, st.booleans(), st.integers(0, 3))
def test_rows_have_the_octets_of_the_single_codec(given_rows: list[Row], keyed: bool, skip: int) -> None:
    skip = min(skip, len(given_rows) - 1)
    bodies, lists, maps, keys = (column.slice(skip) for column in columns(given_rows))
    wanted = [alone(row, keyed=keyed) for row in given_rows[skip:]]
    found = contents(bodies, lists, maps, keys if keyed else None)
    assert found is not None
    for i, (content, odd) in enumerate(zip(found.octets.to_pylist(), found.odd.tolist(), strict=True)):
        if not odd:
            assert content == wanted[i]
        else:  # left to the single codec
            maps_i = maps[i].as_py() or []
            names = [name for name, _ in maps_i]
            assert isinstance(wanted[i], str) or not len(bodies[i].as_py()) or len(set(names)) < len(names)


@settings(deadline=None)
@given(rows, st.booleans())
def test_blocks_have_all_rows_in_order(given_rows: list[Row], keyed: bool) -> None:
    bodies, lists, maps, keys = columns(given_rows)
    found = contents(bodies, lists, maps, keys if keyed else None)
    end = 0
    for piece in pieces(found, len(given_rows), keyed=keyed):
        assert piece.begin == end
        end = piece.end
        if piece.block is not None:
            assert cut(piece.block) == [alone(row, keyed=keyed) for row in given_rows[piece.begin : piece.end]]
    assert end == len(given_rows)


def varied(count: int) -> list[Row]:
    return [
        (
            b"body %d" % i,
            {
                "message_id": f"id-{i:05}",
                "correlation_id": f"{i:05}",
                "timestamp": dt.datetime.fromtimestamp(i, dt.UTC),
            },
            [("trace", f"{i:06}"), ("sequence", str(i)), ("service", "orders")],
            f"region.{i}",
        )
        for i in range(count)
    ]


def test_rows_that_differ_in_values_share_a_layout() -> None:
    bodies, lists, maps, keys = columns(varied(5000))
    found = contents(bodies, lists, maps, keys)
    made = list(pieces(found, 5000, keyed=True))
    assert sum(piece.end - piece.begin for piece in made) == 5000
    counted = [blocks.decode(piece.block) for piece in made if piece.block is not None]
    assert [block.form for block in counted] == [KEYED] * len(made)
    assert max(len(block.layouts) for block in counted) <= 4
    assert max(len(block.data) for block in counted) < 300 * 1024
    assert [content for piece in made for content in cut(piece.block or b"")] == [
        alone(row, keyed=True) for row in varied(5000)
    ]


def test_large_and_empty_bodies_are_odd() -> None:
    bodies = pa.array([b"a", b"", b"x" * LARGE, b"y" * (LARGE - 1), b"z" * 4000])
    for frame_max, odd in ((0, [1, 2]), (131_072, [1, 2]), (4096, [1, 2, 3])):
        found = contents(bodies, None, None, None, frame_max)
        assert found is not None
        assert [i for i, each in enumerate(found.odd.tolist()) if each] == odd


def test_many_odd_rows_are_left_to_the_single_codec() -> None:
    bodies = pa.array([b"", b"a"] * 20)
    assert list(pieces(contents(bodies, None, None), 40, keyed=False)) == [(0, 40, None)]


@pytest.mark.parametrize("column", ["properties", "headers", "keys"])
def test_text_that_is_not_utf8_is_left_to_the_single_codec(column: str) -> None:
    wrong = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"], pa.binary()).buffers())
    props = pa.StructArray.from_arrays([wrong], ["message_id"]) if column == "properties" else None
    maps = pa.MapArray.from_arrays([0, 1], wrong, pa.array(["v"])) if column == "headers" else None
    keys = wrong if column == "keys" else None
    assert contents(pa.array([b"b"]), props, maps, keys) is None
    assert list(pieces(None, 1, keyed=keys is not None)) == [(0, 1, None)]
