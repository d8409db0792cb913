"""Blocks of messages: valid ones are cut into their columns, and all others are refused."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.amqp091 import blocks
from escrowmq.wire.amqp091.blocks import MOST_MESSAGES, BlockError
from escrowmq.wire.amqp091.keyed import KEYED, join
from escrowmq.wire.amqp091.packed import PACKED, pack
from escrowmq.wire.amqp091.properties import NO_PROPERTIES, Properties
from tests.harness.blocks import Sent, block_of

sent = st.lists(
    st.tuples(
        st.text(max_size=3),
        st.sampled_from([NO_PROPERTIES, Properties(delivery_mode=2, message_id="m").encode()]),
        st.binary(min_size=1, max_size=9),
    ),
    min_size=1,
    max_size=9,
)
SOME: Sent = ("k", NO_PROPERTIES, b"body")


@given(sent, st.booleans())
def test_a_block_has_its_contents_in_order(messages: list[Sent], keyed: bool) -> None:
    found = blocks.decode(block_of(*messages, keyed=keyed))
    assert found.form == (KEYED if keyed else PACKED)
    assert [found.data[start:stop] for start, stop in zip(found.starts, found.stops, strict=True)] == [
        join(key.encode(), pack(props, body)) if keyed else pack(props, body) for key, props, body in messages
    ]
    assert sorted(row for rows in found.layouts for row in rows) == list(range(len(messages)))


@given(st.binary(max_size=120))
def test_any_octets_are_refused_or_cut(data: bytes) -> None:
    try:
        found = blocks.decode(data)
    except BlockError:
        return
    assert found.stops[-1] == len(data)


@given(sent, st.data())
def test_truncated_and_overlong_blocks_are_refused(messages: list[Sent], data: st.DataObject) -> None:
    block = block_of(*messages)
    cut = data.draw(st.integers(0, len(block) - 1))
    for wrong in (block[:cut], block + b"x"):
        with pytest.raises(BlockError):
            blocks.decode(wrong)


@pytest.mark.parametrize(
    ("at", "value", "text"),
    [
        (0, b"EMQB", "begins with"),
        (4, struct.pack("<H", 2), "version 2"),
        (6, struct.pack("<H", 91), "form 91"),
        (8, struct.pack("<I", 0), "1 to 4096 messages"),
        (8, struct.pack("<I", MOST_MESSAGES + 1), "1 to 4096 messages"),
        (8, struct.pack("<I", 4000), "in the middle of a column"),
        (12, struct.pack("<I", 0), "a layout for each at most"),
        (12, struct.pack("<I", 4), "a layout for each at most"),
        (16, struct.pack("<I", 1), "offsets of a block"),
        (20, struct.pack("<I", 1 << 31), "offsets of a block"),
        (28, struct.pack("<I", 1), "offsets of a block"),
        (32, struct.pack("<I", 2), "do not cover"),
        (36, struct.pack("<I", 1), "no layout, or several"),
        (36, struct.pack("<I", 3), "no layout, or several"),
    ],
)
def test_invalid_columns_are_refused(at: int, value: bytes, text: str) -> None:
    block = block_of(SOME, SOME, SOME)
    with pytest.raises(BlockError, match=text):
        blocks.decode(block[:at] + value + block[at + len(value) :])
