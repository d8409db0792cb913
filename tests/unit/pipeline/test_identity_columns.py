"""The columns of identities have what reading messages one by one gives, for messages of all forms."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.columnar.octets import ROOM
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.records.blocks import BLOCK, encode_block
from escrowmq.core.records.branches import encode_placed
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.publishing import encode_targets
from escrowmq.pipeline.identities import identity
from escrowmq.pipeline.identity_columns import MOST, Blocks, IdentityColumns, identities_of, nothing, unpack
from escrowmq.pipeline.identity_columns import pack as pack_columns
from escrowmq.wire.amqp091.keyed import KEYED, join
from escrowmq.wire.amqp091.packed import PACKED, pack
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.formats import FORMATS
from escrowmq.wire.neutral import Neutral, UInt64, UniqueId
from escrowmq.wire.rocketmq.content import PROTOCOL as ROCKETMQ
from tests.pipeline.direct import audited
from tests.pipeline.journals import Scribe

Message = tuple[Envelope, list[bytes]]

texts = st.none() | st.text(max_size=9) | st.sampled_from(["", "ä" * 127, "x" * 255])
lists = st.builds(
    lambda ident, other, user, kind: Properties(
        message_id=ident, correlation_id=other, user_id=user, type=kind, headers={"a": 1}
    ).encode(),
    texts,
    texts,
    texts,
    texts,
)
listed = lists | st.binary(max_size=30)
ids = (
    texts | st.binary(max_size=9) | st.uuids().map(lambda u: UniqueId(u.bytes)) | st.integers(0, 2**64 - 1).map(UInt64)
)


def _other(protocol: int, ident: object, other: object, user: bytes | None) -> Message:
    said = Neutral("x", "k", message_id=ident, correlation_id=other, user_id=user)  # type: ignore[arg-type]
    envelope, content = FORMATS[protocol].encode(said)
    return envelope, [content]


blocks_of_messages = st.one_of(
    st.tuples(listed, st.lists(st.binary(max_size=5), max_size=3)).map(
        lambda each: (Envelope("x", "key", each[0], protocol=91), each[1])
    ),
    st.lists(st.builds(pack, listed, st.binary(max_size=5)) | st.binary(max_size=40), max_size=4).map(
        lambda contents: (Envelope("x", "key", protocol=PACKED), contents)
    ),
    st.lists(st.builds(lambda p: join(b"k", pack(p, b"b")), listed) | st.binary(max_size=40), max_size=4).map(
        lambda contents: (Envelope("", "", protocol=KEYED), contents)
    ),
    st.builds(_other, st.just(100), ids, ids, st.none() | st.binary(max_size=9)),
    st.builds(_other, st.just(ROCKETMQ), texts.filter(bool), texts.filter(bool), st.none()),
    st.lists(st.binary(max_size=40), max_size=3).map(lambda contents: (Envelope("x", "", protocol=100), contents)),
    st.lists(st.binary(max_size=9), max_size=2).map(lambda contents: (Envelope("x", "", protocol=7), contents)),
)


def blocks(messages: list[Message]) -> Blocks:
    pieces = [b"".join(encode_block(7, envelope, contents)) for envelope, contents in messages]
    begins = np.cumsum([0, *map(len, pieces)])[: len(pieces)].astype(np.int64)
    sizes = np.array([BLOCK.unpack_from(piece)[3] for piece in pieces], np.int64)
    counts = np.array([len(contents) for _, contents in messages], np.int64)
    data = np.frombuffer(b"".join(pieces) + bytes(ROOM), np.uint8)
    return Blocks(data, begins + BLOCK.size, sizes, counts)


@given(st.lists(blocks_of_messages, max_size=6))
def test_columns_have_what_single_messages_have(messages: list[Message]) -> None:
    found = identities_of(blocks(messages))
    rows = list(zip(*(column.to_pylist() for column in found), strict=True))
    assert rows == [tuple(identity(envelope, content)) for envelope, contents in messages for content in contents]


@pytest.mark.parametrize("protocol", [91, PACKED, KEYED, 100, ROCKETMQ])
def test_malformed_contents_are_read_like_single_ones(protocol: int) -> None:
    rng = random.Random(protocol)
    messages = [
        (Envelope("x", "k", rng.randbytes(20) if protocol == 91 else b"", protocol=protocol), [rng.randbytes(n)])
        for n in range(80)
    ]
    found = identities_of(blocks(messages))
    rows = list(zip(*(column.to_pylist() for column in found), strict=True))
    assert rows == [tuple(identity(envelope, content)) for envelope, (content,) in messages]


def test_most_contents_of_other_protocols_are_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Neutral("x", "k", message_id="m", correlation_id="c", properties={"a": "b"}, body=b"body")
    messages = [
        (envelope, [content]) for envelope, content in (FORMATS[100].encode(said), FORMATS[ROCKETMQ].encode(said))
    ]
    monkeypatch.setattr("escrowmq.pipeline.identity_columns.identity", None)
    assert identities_of(blocks(messages)).message_id.to_pylist() == ["m", "m"]


@pytest.mark.parametrize("protocol", [100, ROCKETMQ])
def test_contents_that_are_cut_off_are_read_like_single_ones(protocol: int) -> None:
    said = Neutral("x", "k", message_id="m", correlation_id="c", properties={"a": "b"}, body=b"body")
    envelope, content = FORMATS[protocol].encode(said)
    messages = [(envelope, [content[:length]]) for length in range(len(content) + 1)]
    found = identities_of(blocks(messages))
    rows = list(zip(*(column.to_pylist() for column in found), strict=True))
    assert rows == [tuple(identity(envelope, content)) for envelope, (content,) in messages]


def test_each_queue_has_the_ids_of_each_message_also_of_prepared_branches(tmp_path: Path) -> None:
    envelope = Envelope("x", "k", protocol=PACKED)
    contents = [pack(Properties(message_id=f"m{i}", user_id="u").encode(), b"body") for i in range(3)]
    with Scribe(tmp_path) as scribe:
        scribe.queue(1, "one")
        scribe.queue(2, "two")
        lsn = scribe.append(Kind.PUBLISH, encode_targets([(1, 1), (2, 5)]), *encode_block(7, envelope, contents))
        scribe.frame()
        scribe.commit((Kind.PLACED, [encode_placed([(2, 8)], lsn + 4 + 2 * 12, 3)]), branch=1)
        scribe.append(Kind.PUBLISH, encode_targets([(1, 4)]), *encode_block(8, envelope, contents[1:]))
        scribe.commit((Kind.PLACED, [encode_placed([(2, 11)], 1 << 40, 3)]), branch=2)
    found = audited(tmp_path, ids=True).messages
    rows = {
        (row["queue_id"], row["position"]): (row["message_id"], row["correlation_id"], row["publisher"])
        for row in found
    }
    assert rows == {
        **{(queue, first + i): (f"m{i}", None, "u") for queue, first in ((1, 1), (2, 5), (2, 8)) for i in range(3)},
        **{(1, 4 + i): (f"m{1 + i}", None, "u") for i in range(2)},
        **{(2, 11 + i): (None, None, None) for i in range(3)},
    }


def test_long_ids_are_cut_off() -> None:
    envelope, content = FORMATS[100].encode(Neutral("x", "k", message_id="ä" * (MOST + 1), correlation_id="c"))
    found = identities_of(blocks([(envelope, [content])]))
    assert found.message_id.to_pylist() == ["ä" * MOST]
    assert found.correlation_id.to_pylist() == ["c"]


def test_columns_are_restored_from_bytes() -> None:
    columns = IdentityColumns(*(pa.array(each, pa.string()) for each in (["a", None], [None, None], ["", "ä"])))
    assert unpack(pack_columns(columns)) == columns
    assert unpack(pack_columns(nothing(0))) == nothing(0)
