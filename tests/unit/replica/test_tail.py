"""A tail hands on what counts, once and in order, and notices what the log has lost."""

from __future__ import annotations

import pytest

from escrowmq.replica.entries import FrameChunk, Heartbeat, LeaderClaim, SegmentStart, encode
from escrowmq.replica.errors import EntriesLost, EntryDamaged
from escrowmq.replica.fold import ReplicatedFrame
from escrowmq.replica.log import StoredEntry
from escrowmq.replica.tail import LogTail
from tests.unit.replica.logs import Copy, Log
from tests.unit.replica.test_fold import header

ENTRIES = (
    LeaderClaim(1, "a", "amqp://a"),
    SegmentStart(1, header(0)),
    FrameChunk(1, 0, 8, 0, b"12345678"),
    LeaderClaim(2, "b", "amqp://b"),
    FrameChunk(1, 8, 8, 0, b"of a, who is deposed"[:8]),
    FrameChunk(2, 8, 8, 0, b"abcdefgh"),
)


def test_segments_and_whole_frames_that_count_are_handed_on() -> None:
    copy = Copy()
    tail = LogTail(Log(*ENTRIES), copy)
    tail.read_to_end()
    assert copy.segments == [header(0)]
    assert copy.frames == [ReplicatedFrame(1, 0, b"12345678"), ReplicatedFrame(2, 8, b"abcdefgh")]
    assert tail.position == len(ENTRIES)


def test_many_entries_are_read_in_portions() -> None:
    tail = LogTail(Log(LeaderClaim(1, "a", ""), *[Heartbeat(1)] * 500), Copy())
    tail.read_to_end()
    assert tail.position == 501


def test_a_log_that_ends_before_what_was_read_has_lost_entries() -> None:
    log = Log(*ENTRIES)
    tail = LogTail(log, Copy())
    tail.read_to_end()
    del log.stored[4:]
    with pytest.raises(EntriesLost, match="position 4 on: it ends there, and this node has read up to 6"):
        tail.read_to_end()


def test_a_log_that_does_not_return_what_it_says_to_have_has_lost_entries() -> None:
    log = Log(*ENTRIES)
    with pytest.raises(EntriesLost, match="position 6 on: it is said to end at 8"):
        LogTail(log, Copy()).read_to(8)


def test_a_gap_between_entries_is_noticed() -> None:
    with pytest.raises(EntriesLost, match="position 0 on: the entry after it is at 3"):
        LogTail(Log(), Copy()).take(StoredEntry(3, encode(ENTRIES[0])))


def test_a_foreign_entry_ends_the_reading() -> None:
    log = Log()
    log.stored.append(b"somebody else's message")
    with pytest.raises(EntryDamaged):
        LogTail(log, Copy()).read_to_end()
