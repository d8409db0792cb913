"""Entries of the replicated log: bytes that are read back, and bytes that are refused."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.replica.entries import (
    HEADER,
    Entry,
    FrameChunk,
    Heartbeat,
    LeaderClaim,
    Resignation,
    SegmentStart,
    chunks,
    decode,
    encode,
)
from escrowmq.replica.errors import EntryDamaged

EPOCHS = st.integers(0, 2**64 - 1)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
ENTRIES: st.SearchStrategy[Entry] = st.one_of(
    st.builds(LeaderClaim, EPOCHS, NAMES, NAMES),
    st.builds(SegmentStart, EPOCHS, st.binary(min_size=64, max_size=64), EPOCHS),
    st.builds(
        lambda epoch, lsn, offset, data, rest: FrameChunk(epoch, lsn, offset + len(data) + rest, offset, data),
        EPOCHS,
        EPOCHS,
        st.integers(0, 1 << 30),
        st.binary(min_size=1, max_size=40),
        st.integers(0, 1 << 30),
    ),
    st.builds(Heartbeat, EPOCHS),
    st.builds(Resignation, EPOCHS),
)


@given(ENTRIES)
def test_entries_are_read_back(entry: Entry) -> None:
    assert decode(encode(entry)) == entry


@given(ENTRIES, st.data())
def test_any_changed_byte_is_noticed(entry: Entry, data: st.DataObject) -> None:
    whole = bytearray(encode(entry))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(EntryDamaged):
        decode(bytes(whole))


@given(ENTRIES, st.data())
def test_entries_that_are_cut_off_or_too_long_are_refused(entry: Entry, data: st.DataObject) -> None:
    whole = encode(entry)
    for wrong in (whole[: data.draw(st.integers(0, len(whole) - 1))], whole + b"x"):
        with pytest.raises(EntryDamaged):
            decode(wrong)


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(EntryDamaged):
        decode(data)


@given(st.binary(max_size=60), st.sampled_from([1, 2, 3, 4, 5]), EPOCHS)
def test_bodies_of_any_bytes_are_read_or_refused(body: bytes, kind: int, epoch: int) -> None:
    head = HEADER.pack(b"EMQR", 1, kind, 0, epoch, 0, 0)
    data = HEADER.pack(b"EMQR", 1, kind, 0, epoch, zlib.crc32(body, zlib.crc32(head)), 0) + body
    try:
        entry = decode(data)
    except EntryDamaged:
        return
    assert encode(entry) == data


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=5), st.integers(1, 20))
def test_the_chunks_of_a_frame_make_it_up(parts: list[bytes], size: int) -> None:
    found = list(chunks(3, 800, parts, size))
    assert b"".join(chunk.data for chunk in found) == b"".join(parts)
    assert all(len(chunk.data) <= size for chunk in found)
    place = 0
    for chunk in found:
        assert (chunk.epoch, chunk.lsn, chunk.size, chunk.offset) == (3, 800, len(b"".join(parts)), place)
        place += len(chunk.data)
