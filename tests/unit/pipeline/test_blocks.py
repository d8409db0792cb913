"""Decoding a block never fails in an undocumented way, and digests identify the content of messages."""

from __future__ import annotations

import contextlib
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.records.blocks import encode_block
from escrowmq.pipeline.blocks import (
    BLOCK,
    KEYED,
    PACKED,
    Block,
    GoneError,
    Lookup,
    NowhereError,
    bodies,
    look_up,
    with_key,
)
from escrowmq.pipeline.content_digests import digests
from escrowmq.wire.amqp091 import keyed, packed

ENVELOPES = st.builds(
    Envelope,
    st.text(max_size=5),
    st.text(max_size=5),
    st.binary(max_size=20),
    protocol=st.just(91),
    durable=st.booleans(),
    priority=st.integers(0, 9),
)
BODIES = st.lists(st.binary(max_size=20), min_size=1, max_size=5)


def message(envelope: Envelope, body: bytes) -> tuple[int, int, int]:
    """Return what is known of a message, of the type BODY."""
    data, size = np.frombuffer(body, np.uint8), np.array([len(body)])
    digest = digests(data, np.array([0]), size, np.array([crc32(envelope.encode())]))
    return len(body), int(digest[0]), -1


def at(data: bytes, shift: int = 0) -> Lookup:
    """Return a lookup in `data`, whose first byte has the address `shift`."""
    return lambda lsn, length: data[lsn - shift : lsn - shift + length]


@given(st.lists(st.tuples(ENVELOPES, BODIES), min_size=1, max_size=4), st.binary(max_size=9))
def test_sizes_and_digests_are_those_of_the_messages(blocks: list[tuple[Envelope, list[bytes]]], gap: bytes) -> None:
    data, begins = b"", []
    for envelope, some in blocks:
        data += gap
        begins.append(len(data))
        data += b"".join(encode_block(77, envelope, some))
    starts = np.array(begins)
    heads = [len(envelope.encode()) for envelope, _ in blocks]
    counts = np.array([len(some) for _, some in blocks])
    found = bodies(np.frombuffer(data, np.uint8), starts + BLOCK.itemsize, np.array(heads), counts)
    wanted = [message(envelope, body) for envelope, some in blocks for body in some]
    assert found.tolist() == wanted
    for (envelope, some), begin in zip(blocks, begins, strict=True):
        block = look_up(at(data, shift=1000), 1000 + begin)
        assert block.came == 77
        assert envelope.encode().startswith(block.text)
        assert block.bodies.tolist() == [message(envelope, body) for body in some]


def test_the_numbers_of_forms_are_those_of_the_protocol() -> None:
    assert (PACKED, KEYED) == (packed.PACKED, keyed.KEYED)


def test_keyed_messages_have_the_size_of_their_bodies_and_their_routing_keys() -> None:
    contents = [keyed.join(key, packed.pack(b"\0\0", body)) for key, body in ((b"a.1", b"x"), (b"", b"long"))]
    block = look_up(at(b"".join(encode_block(77, Envelope("x", "", protocol=KEYED), contents))), 0)
    assert block.bodies["size"].tolist() == [1, 4]
    keys = [block.keys.values[number] for number in block.keys.number.tolist()]
    assert dict(zip(block.keys.at.tolist(), keys, strict=True)) == {0: b"a.1", 1: b""}
    assert with_key(block.text, b"a.1") == Envelope("x", "a.1", protocol=KEYED).encode()[: len(block.text) + 3]


@given(st.binary(max_size=80), st.integers(0, 9))
def test_any_bytes_decode_to_a_block_or_raise_nowhere_error(data: bytes, lsn: int) -> None:
    with contextlib.suppress(NowhereError):
        assert isinstance(look_up(at(data), lsn), Block)


@given(ENVELOPES, BODIES, st.data())
def test_a_damaged_block_decodes_or_raises_nowhere_error(
    envelope: Envelope, some: list[bytes], draw: st.DataObject
) -> None:
    block = bytearray(b"".join(encode_block(77, envelope, some)))
    block[draw.draw(st.integers(0, len(block) - 1))] ^= draw.draw(st.integers(1, 255))
    with contextlib.suppress(NowhereError):
        assert isinstance(look_up(at(bytes(block)), 0), Block)


def test_a_block_in_a_deleted_segment_raises_gone_error() -> None:
    with pytest.raises(GoneError):
        look_up(lambda _lsn, _length: None, 0)
