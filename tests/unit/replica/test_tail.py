"""A tail hands on what counts, once and in order, and notices what the log has lost."""

from __future__ import annotations

import errno

import pytest

from escrowmq.replica.entries import Entry, Heartbeat, LeaderClaim, Stamp, encode
from escrowmq.replica.errors import EntriesLost, EntriesTrimmed, EntryDamaged
from escrowmq.replica.fold import ReplicatedFrame
from escrowmq.replica.log import StoredEntry
from escrowmq.replica.tail import REMEMBERED, LogTail, SegmentPlace
from tests.unit.replica.entries import FIRST, ONE, chunk, claim, header, second, start
from tests.unit.replica.logs import Copy, Log

SECOND, TWO = second(8)
ENTRIES: tuple[Entry, ...] = (
    FIRST,
    start(ONE, 0),
    chunk(ONE, 0, b"12345678", size=8),
    SECOND,
    chunk(ONE, 8, b"deposed.", size=8),
    start(TWO, 8),
    chunk(TWO, 8, b"abcdefgh", size=8),
)


def test_segments_and_whole_frames_that_count_are_handed_on() -> None:
    copy = Copy()
    tail = LogTail(Log(*ENTRIES), copy)
    tail.read_to_end()
    assert copy.segments == [header(0), header(8)]
    assert copy.frames == [ReplicatedFrame(1, 0, b"12345678"), ReplicatedFrame(2, 8, b"abcdefgh")]
    assert tail.position == len(ENTRIES)


def test_reading_on_finds_what_reading_to_the_end_finds() -> None:
    log, copy = Log(*ENTRIES * 20), Copy()
    tail = LogTail(log, copy)
    tail.read_on()
    assert (tail.position, copy.segments) == (len(ENTRIES) * 20, [header(0), header(8)])
    tail.read_on()
    assert tail.position == len(ENTRIES) * 20


def test_reading_on_finds_that_the_log_begins_later() -> None:
    log = Log(*ENTRIES)
    tail = LogTail(log, Copy())
    log.trim(3)
    with pytest.raises(EntriesTrimmed):
        tail.read_on()


class FullCopy(Copy):
    """A copy on a disk that is full for a while."""

    room = False

    def frame(self, frame: ReplicatedFrame) -> None:
        """Keep a frame if there is room."""
        if not self.room:
            raise OSError(errno.ENOSPC, "no space left on device")
        super().frame(frame)


def test_a_tail_is_interrupted_if_its_copy_has_not_taken_what_was_read() -> None:
    copy = FullCopy()
    tail = LogTail(Log(*ENTRIES), copy)
    with pytest.raises(OSError, match="no space"):
        tail.read_to_end()
    assert tail.interrupted
    copy.room = True
    again = LogTail.opened(Log(*ENTRIES), copy, tail.segments)
    again.read_to_end()
    assert not again.interrupted
    assert [frame.data for frame in copy.frames] == [b"12345678", b"abcdefgh"]


def test_many_entries_are_read_in_portions() -> None:
    tail = LogTail(Log(FIRST, *[Heartbeat(ONE)] * 500), Copy())
    tail.read_to_end()
    assert tail.position == 501


def test_a_log_that_ends_before_what_was_read_has_lost_entries() -> None:
    log = Log(*ENTRIES)
    tail = LogTail(log, Copy())
    tail.read_to_end()
    del log.stored[4:]
    with pytest.raises(EntriesLost, match="position 4 on: it ends there, and this node has read up to 7"):
        tail.read_to_end()


def test_a_log_that_does_not_return_what_it_says_to_have_has_lost_entries() -> None:
    log = Log(*ENTRIES)
    with pytest.raises(EntriesLost, match="position 7 on: it is said to end at 8"):
        LogTail(log, Copy()).read_to(8)


def test_a_gap_between_entries_is_noticed() -> None:
    with pytest.raises(EntriesLost, match="position 0 on: the entry after it is at 3"):
        LogTail(Log(), Copy()).take(StoredEntry(3, encode(ENTRIES[0])))


def test_a_foreign_entry_ends_the_reading() -> None:
    log = Log()
    log.stored.append(b"somebody else's message")
    with pytest.raises(EntryDamaged):
        LogTail(log, Copy()).read_to_end()


def test_a_reader_begins_with_the_oldest_entry_of_a_trimmed_log() -> None:
    log = Log(*ENTRIES)
    log.trim(5)
    copy = Copy()
    tail = LogTail.opened(log, copy)
    tail.read_to_end()
    assert copy.segments == [header(8)]
    assert copy.frames == [ReplicatedFrame(2, 8, b"abcdefgh")]
    assert tail.segments == [SegmentPlace(8, 5, 2, TWO.chain)]


def test_a_log_that_begins_within_a_segment_is_refused() -> None:
    log = Log(*ENTRIES)
    log.trim(4)
    with pytest.raises(EntriesLost, match="position 4 on: it begins in the middle of a segment"):
        LogTail.opened(log, Copy()).read_to_end()


def test_a_reader_resumes_at_the_newest_segment_that_it_knows() -> None:
    log = Log(*ENTRIES)
    first = LogTail.opened(log, Copy())
    first.read_to_end()
    copy = Copy()
    again = LogTail.opened(log, copy, first.segments)
    assert again.position == 5
    again.read_to_end()
    assert copy.frames == [ReplicatedFrame(2, 8, b"abcdefgh")]
    assert again.segments == first.segments
    assert again.fold.state == first.fold.state


def test_a_reader_does_not_resume_where_another_segment_is_now() -> None:
    log = Log(*ENTRIES)
    first = LogTail.opened(log, Copy())
    first.read_to_end()
    other = claim(2, "c", ONE.chain)
    log.stored[3:] = [encode(other), encode(start(Stamp(2, other.chain_at(8)), 8))] * 2
    assert LogTail.opened(log, Copy(), first.segments).position == 1


def test_a_reader_that_is_too_far_behind_is_told_so() -> None:
    log = Log(*ENTRIES)
    tail = LogTail(log, Copy())
    tail.read_to(2)
    log.trim(5)
    with pytest.raises(EntriesTrimmed, match="begins at position 5, and this node has read up to 2 only"):
        tail.read_to_end()


def test_a_segment_without_frames_is_replaced_by_the_next_one() -> None:
    tail = LogTail(Log(FIRST, start(ONE, 0), start(ONE, 0, 7)), Copy())
    tail.read_to_end()
    assert tail.segments == [SegmentPlace(0, 2, 1, ONE.chain)]


OTHER = claim(2, "c", ONE.chain)
LOST: dict[str, tuple[Entry, ...]] = {
    "another claim with the same number": (OTHER, *[Heartbeat(Stamp(2, OTHER.chain_at(8)))] * 4),
    "the claim after it": (Heartbeat(ONE), OTHER, Heartbeat(TWO), Heartbeat(TWO), claim(3, "d", OTHER.chain_at(8))),
    "a leader that was deposed by a lost claim": tuple(Heartbeat(Stamp(1, ONE.chain, after)) for after in range(3, 8)),
}


@pytest.mark.parametrize("new", LOST)
def test_a_reader_that_reads_on_behind_lost_entries_notices_it(new: str) -> None:
    log = Log(*ENTRIES)
    tail = LogTail(log, Copy())
    tail.read_to_end()
    log.stored[3:] = map(encode, LOST[new])
    with pytest.raises(EntriesLost, match="not those that this node has read"):
        tail.read_to_end()


@pytest.mark.parametrize("old", LOST)
def test_entries_of_a_lost_history_do_not_disturb_a_reader_of_the_log(old: str) -> None:
    tail = LogTail(Log(*ENTRIES, *[entry for entry in LOST[old] if not isinstance(entry, LeaderClaim)]), Copy())
    tail.read_to_end()
    assert (tail.fold.epoch, tail.fold.next_lsn) == (2, 16)


def test_the_log_is_read_again_once_for_the_doubtful_entries_of_a_leader() -> None:
    log = Log(*ENTRIES, *[Heartbeat(Stamp(5, b"unknown."))] * 9)
    reads: list[int] = []
    read = log.read

    def counting(position: int, most: int) -> list[StoredEntry]:
        reads.append(position)
        return read(position, most)

    log.read = counting  # type: ignore[method-assign]
    LogTail(log, Copy()).read_to_end()
    assert reads == [0, 0]


def test_the_newest_entries_are_compared_with_the_log() -> None:
    log = Log(FIRST, *[Heartbeat(Stamp(1, ONE.chain, after)) for after in range(1, 20)])
    tail = LogTail(log, Copy())
    tail.read_to_end()
    tail.verify()
    log.stored[20 - REMEMBERED] = encode(Heartbeat(ONE))
    with pytest.raises(EntriesLost, match="position 12 on: another entry is there now"):
        tail.verify()
    del log.stored[15:]
    log.stored[12] = encode(Heartbeat(Stamp(1, ONE.chain, 12)))
    with pytest.raises(EntriesLost, match="position 15 on: this node has read up to 20"):
        tail.verify()
    log.trim(15)
    log.stored = Log(*[Heartbeat(Stamp(1, ONE.chain, after)) for after in range(15, 20)]).stored
    tail.verify()
