"""One segment of a copy: what is compared, what is written, and how it is sealed."""

from __future__ import annotations

from array import array

import pytest

from escrowmq.journal import format as fmt
from escrowmq.journal.frames import JournalFile
from escrowmq.replica.errors import EntryDamaged
from escrowmq.replica.fold import ReplicatedFrame
from escrowmq.replica.segment_copy import SegmentCopy
from tests.unit.journal.journals import memory

HEADER = fmt.FileHeader(fmt.TYPE_SEGMENT, bytes(16), 0, 7)


def frame(lsn: int, payload: bytes) -> ReplicatedFrame:
    parts = fmt.pack_frame(lsn, 9, [payload], array("I", (0, len(payload))), b"\x01", HEADER.seed)
    return ReplicatedFrame(1, lsn, b"".join(parts))


def test_frames_are_written_to_a_new_file_and_compared_with_one_that_is_there() -> None:
    disk = memory()
    new = SegmentCopy(disk, HEADER.pack(), chain_contents=False)
    new.create()
    first, other = frame(0, b"first"), frame(0, b"other")
    assert new.take(first)
    again = SegmentCopy(disk, HEADER.pack(), chain_contents=False)
    assert not again.take(other)
    assert again.end_lsn == 0
    assert again.take(first)
    assert again.end_lsn == len(first.data)


@pytest.mark.parametrize("size", range(1, fmt.FRAME_HEADER_SIZE))
def test_a_frame_that_is_shorter_than_its_header_is_refused_and_not_written(size: int) -> None:
    disk = memory()
    new = SegmentCopy(disk, HEADER.pack(), chain_contents=False)
    new.create()
    with pytest.raises(EntryDamaged, match=f"a frame of {size} bytes at LSN 0x0 is shorter"):
        new.take(ReplicatedFrame(1, 0, bytes(size)))
    assert disk.size(new.name) == fmt.FILE_HEADER_SIZE


def test_a_cut_removes_what_follows_and_further_frames_are_written() -> None:
    disk = memory()
    new = SegmentCopy(disk, HEADER.pack(), chain_contents=False)
    new.create()
    first = frame(0, b"first")
    new.take(first)
    new.take(frame(len(first.data), b"second"))
    again = SegmentCopy(disk, HEADER.pack(), chain_contents=False)
    again.take(first)
    assert [bytes(each.payload) for each in again.rest()] == [b"second"]
    assert again.tail()
    again.cut()
    assert again.rest() == []
    assert again.take(frame(len(first.data), b"third"))
    assert [bytes(each.payload) for each in JournalFile(disk, again.name).walk()] == [b"first", b"third"]


def test_a_sealed_segment_has_the_number_of_messages_that_it_is_told() -> None:
    disk = memory()
    copy = SegmentCopy(disk, HEADER.pack(), chain_contents=False)
    copy.create()
    copy.take(frame(0, b"first"))
    copy.seal(5, HEADER.pack())
    again = SegmentCopy(disk, HEADER.pack(), chain_contents=False)
    again.take(frame(0, b"first"))
    assert again.is_sealed(5, HEADER.pack())
    assert not again.is_sealed(4, HEADER.pack())
    footer = JournalFile(disk, copy.name).footer
    assert footer is not None
    assert (footer.messages, footer.frames) == (5, 1)


def test_a_segment_that_the_next_one_does_not_follow_at_once_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = memory()
    copy = SegmentCopy(disk, HEADER.pack(), chain_contents=False)
    copy.create()
    copy.take(frame(0, b"first"))
    later = fmt.FileHeader(fmt.TYPE_SEGMENT, bytes(16), copy.end_lsn + 8, 7, link=bytes([1] * fmt.LINK_SIZE))
    monkeypatch.setattr(JournalFile, "walk", lambda *_, **__: pytest.fail("the file is read"))
    copy.seal(1, later.pack())
