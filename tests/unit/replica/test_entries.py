"""Entries of the replicated log: bytes that are read back, and bytes that are refused."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.journal.format import LONG
from escrowmq.replica.entries import (
    HEADER,
    Entry,
    FrameChunk,
    Heartbeat,
    LeaderClaim,
    LiveMap,
    LossNotice,
    MappedSegment,
    NodeReport,
    Resignation,
    SegmentStart,
    SnapshotChunk,
    Stamp,
    TakeOverReason,
    chunks,
    decode,
    encode,
)
from escrowmq.replica.errors import EntryDamaged

EPOCHS = st.integers(0, 2**64 - 1)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
STAMPS = st.builds(Stamp, EPOCHS, st.binary(min_size=8, max_size=8), EPOCHS)


def pieces(kind: type[FrameChunk | SnapshotChunk]) -> st.SearchStrategy[FrameChunk | SnapshotChunk]:
    return st.builds(
        lambda stamp, lsn, offset, data, rest: kind(stamp, lsn, offset + len(data) + rest, offset, data),
        STAMPS,
        EPOCHS,
        st.integers(0, 1 << 40),
        st.binary(min_size=1, max_size=40),
        st.integers(0, 1 << 40),
    )


def _crc(head: Sequence[object], body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(HEADER.pack(*head, 0, 0)))


ENTRIES: st.SearchStrategy[Entry] = st.one_of(
    st.builds(LeaderClaim, STAMPS, st.binary(min_size=16, max_size=16), EPOCHS, NAMES, NAMES),
    st.builds(SegmentStart, STAMPS, EPOCHS, st.binary(min_size=64, max_size=64), EPOCHS, NAMES, NAMES),
    pieces(FrameChunk),
    pieces(SnapshotChunk),
    st.builds(Heartbeat, STAMPS, st.booleans()),
    st.builds(Resignation, STAMPS),
    st.builds(LossNotice, STAMPS, NAMES, EPOCHS, EPOCHS),
    st.builds(NodeReport, STAMPS, NAMES, NAMES, EPOCHS, EPOCHS, st.sampled_from(TakeOverReason), EPOCHS, EPOCHS),
    st.builds(
        LiveMap,
        STAMPS,
        EPOCHS,
        st.lists(
            st.builds(MappedSegment, EPOCHS, EPOCHS, EPOCHS, st.binary(min_size=8, max_size=8), EPOCHS), max_size=3
        ).map(tuple),
    ),
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


@pytest.mark.parametrize("size", [LONG - 1, LONG, 300_001])
def test_long_chunks_have_the_same_checksum_as_short_ones(size: int) -> None:
    chunk = FrameChunk(Stamp(3), 800, size, 0, bytes(range(256)) * (size // 256) + bytes(size % 256))
    whole = encode(chunk)
    assert decode(whole) == chunk
    *head, crc, _ = HEADER.unpack_from(whole)
    assert crc == zlib.crc32(HEADER.pack(*head, 0, 0) + whole[HEADER.size :])
    with pytest.raises(EntryDamaged):
        decode(whole[:-1] + b"x")


@pytest.mark.parametrize("kind", [FrameChunk, SnapshotChunk])
def test_long_pieces_are_compressed(kind: type[FrameChunk | SnapshotChunk]) -> None:
    data = b"".join(b"message %d " % i for i in range(5000))
    piece = kind(Stamp(3), 800, 2 * len(data), len(data), data)
    whole = encode(piece)
    assert decode(whole) == piece
    assert len(whole) < len(data) / 2


def test_a_compressed_piece_that_goes_beyond_its_frame_is_refused() -> None:
    whole = encode(FrameChunk(Stamp(3), 800, 5000, 0, bytes(5000)))
    *head, _, _ = HEADER.unpack_from(whole)
    body = struct.pack("<QQQ", 800, 5000, 1) + whole[HEADER.size + 24 :]
    with pytest.raises(EntryDamaged, match="beyond its 5000 bytes"):
        decode(HEADER.pack(*head, _crc(head, body), 0) + body)


@pytest.mark.parametrize(("kind", "encoding"), [(4, 1), (3, 2), (3, 65535), (9, 1)])
def test_unknown_encodings_are_refused(kind: int, encoding: int) -> None:
    head = (b"EMQR", 1, kind, encoding, 1, bytes(8), 0)
    with pytest.raises(EntryDamaged, match=f"encoding {encoding}, which"):
        decode(HEADER.pack(*head, _crc(head, b""), 0))


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


@given(st.binary(max_size=120), st.integers(1, 9), STAMPS)
def test_bodies_of_any_bytes_are_read_or_refused(body: bytes, kind: int, stamp: Stamp) -> None:
    head = (b"EMQR", 1, kind, 0, stamp.epoch, stamp.chain, stamp.after)
    data = HEADER.pack(*head, _crc(head, body), 0) + body
    try:
        entry = decode(data)
    except EntryDamaged:
        return
    assert encode(entry) == data


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=5), st.integers(1, 20))
def test_the_chunks_of_a_frame_make_it_up(parts: list[bytes], size: int) -> None:
    found = list(chunks(Stamp(3), 800, parts, size))
    assert b"".join(chunk.data for chunk in found) == b"".join(parts)
    assert all(len(chunk.data) <= size for chunk in found)
    place = 0
    for chunk in found:
        assert (chunk.stamp.epoch, chunk.lsn, chunk.size, chunk.offset) == (3, 800, len(b"".join(parts)), place)
        place += len(chunk.data)


def test_claims_with_the_same_number_have_different_chains() -> None:
    claims = [LeaderClaim(Stamp(1), bytes([i]) * 16, 0, "a", "amqp://a") for i in range(2)]
    later = LeaderClaim(Stamp(2, claims[0].chain_at(0)), bytes(16), 0, "a", "amqp://a")
    assert len({claims[0].chain_at(0), claims[1].chain_at(0), claims[0].chain_at(8), later.chain_at(0)}) == 4
