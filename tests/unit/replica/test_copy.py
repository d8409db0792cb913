"""A node's copy on disk gets the leader's bytes, keeps what it has, and is corrected where the log differs."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from itertools import pairwise

import pytest

from escrowmq.journal import format as fmt
from escrowmq.journal.frames import JournalFile
from escrowmq.journal.journal import Journal
from escrowmq.journal.markers import REPLICATED
from escrowmq.journal.memory import MemoryStorage
from escrowmq.journal.storage import Storage
from escrowmq.replica.copy import DIVERGED, DiskCopy
from escrowmq.replica.errors import CopyRefused
from escrowmq.replica.fold import CopyEnd, ReplicatedFrame, SnapshotPiece
from escrowmq.replica.leader import Leader
from escrowmq.replica.tail import LogTail
from tests.unit.journal.journals import fill, flush, memory
from tests.unit.replica.logs import Log


class Events:
    """What the operator was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, int]] = []

    def cut(self, lsn: int, frames: int) -> None:
        """Note it."""
        self.told.append(("cut", lsn, frames))

    def diverged(self, lsn: int, frames: int, names: list[str]) -> None:
        """Note it."""
        self.told.append(("diverged", lsn, frames))


class Sink:
    """Sends frames at once."""

    synced = True

    def __init__(self, leader: Leader) -> None:
        self.leader = leader

    def begin(self, header: bytes, messages: int) -> None:
        """Append the header."""
        self.leader.begin_segment(header, messages)

    def send(self, lsn: int, parts: Sequence[bytes]) -> None:
        """Append the frame."""
        self.leader.append_frame(lsn, parts)

    def wait(self) -> None:
        """Nothing is on its way."""


class Node:
    """A node with a disk."""

    def __init__(self, log: Log, name: str, disk: MemoryStorage | None = None, *, chain_contents: bool = False) -> None:
        self.disk = disk or memory()
        self.events = Events()
        self.chain_contents = chain_contents
        self.copy = DiskCopy(self.disk, self.events, chain_contents=chain_contents)
        self.tail = LogTail(log, self.copy)
        self.leader = Leader(log, self.tail, name, f"amqp://{name}", lambda: os.urandom(16))

    def follow(self) -> None:
        """Read the log."""
        self.tail.read_to_end()
        self.copy.sync()

    def lead(self) -> Journal:
        """Take over."""
        assert self.leader.take_over()
        self.copy.hand_over()
        return opened(self.disk, Sink(self.leader), chain_contents=self.chain_contents)


def opened(disk: Storage, sink: Sink | None = None, *, chain_contents: bool = False) -> Journal:
    journal = Journal.open(disk, segment_bytes=1000, journal_id=bytes(16), sink=sink, chain_contents=chain_contents)
    for lsn, kind, _, _ in journal.replay():
        if kind == 1:
            journal.retain(lsn, 1)
    return journal


def contents(disk: MemoryStorage) -> dict[str, bytes]:
    """Return the files of a disk without preallocated space."""
    return {name: disk.read(name, 0, 1 << 20).rstrip(b"\0") for name in disk.names() if name != REPLICATED}


def test_followers_have_the_files_of_the_leader_byte_by_byte() -> None:
    log = Log()
    leader, follower = Node(log, "a"), Node(log, "b")
    journal = leader.lead()
    for _ in range(4):
        fill(journal, 3)
        follower.follow()
        assert contents(follower.disk) == contents(leader.disk)
    assert len(follower.disk.names()) > 2


@pytest.mark.parametrize("contents_at_first", [False, True])
def test_nodes_whose_digests_have_another_kind_have_the_same_files(*, contents_at_first: bool) -> None:
    log = Log()
    first = Node(log, "a", chain_contents=contents_at_first)
    second = Node(log, "b", chain_contents=not contents_at_first)
    fill(first.lead(), 8)
    second.follow()
    assert contents(second.disk) == contents(first.disk)
    fill(second.lead(), 8)
    again = Node(log, "a", first.disk, chain_contents=contents_at_first)
    again.follow()
    assert again.events.told == []
    assert contents(again.disk) == contents(second.disk)


def test_the_copy_is_what_a_broker_recovers() -> None:
    log = Log()
    leader, follower = Node(log, "a"), Node(log, "b")
    fill(leader.lead(), 7)
    journal = follower.lead()
    fill(journal, 3)
    leader = Node(log, "a", leader.disk)
    leader.follow()
    assert leader.events.told == []
    assert contents(follower.disk) == contents(leader.disk)


def test_a_frame_that_never_counted_is_cut_off() -> None:
    log = Log()
    deposed, other = Node(log, "a"), Node(log, "b")
    fill(deposed.lead(), 4)
    fill(opened(deposed.disk), 1)
    fill(other.lead(), 2, size=200)
    again = Node(log, "a", deposed.disk)
    again.follow()
    assert [(what, frames) for what, _, frames in again.events.told] == [("cut", 1)]
    assert contents(again.disk) == contents(other.disk)


def test_frames_that_the_log_has_lost_are_kept_beside_the_journal() -> None:
    log = Log()
    first, other = Node(log, "a"), Node(log, "b")
    journal = first.lead()
    fill(journal, 4)
    entries = len(log.stored)
    fill(journal, 5)
    del log.stored[entries:]
    fill(other.lead(), 2)
    again = Node(log, "a", first.disk)
    again.follow()
    assert [(what, frames) for what, _, frames in again.events.told] == [("diverged", 5)]
    kept = {name: data for name, data in contents(again.disk).items() if name.endswith(DIVERGED)}
    assert sum(data.count(fmt.FRAME_MAGIC) for data in kept.values()) == 5
    assert {name: data for name, data in contents(again.disk).items() if name not in kept} == contents(other.disk)


def test_what_is_ahead_of_the_log_can_be_appended_again() -> None:
    log = Log()
    first = Node(log, "a")
    journal = first.lead()
    fill(journal, 4)
    whole, entries = list(log.stored), len(log.stored)
    fill(journal, 5)
    del log.stored[entries:]
    again = Node(log, "a", first.disk)
    before = contents(again.disk)
    again.follow()
    ahead = list(again.copy.ahead())
    assert sum(len(part.frames) for part in ahead) == 5
    assert again.leader.take_over()
    assert again.leader.restore(again.copy.pieces_ahead()) == 5
    assert contents(again.disk) == before
    assert log.stored[: len(whole)] == whole
    other = Node(log, "b")
    other.follow()
    again.copy.sync()
    assert contents(other.disk) == contents(again.disk)


def test_the_end_of_a_copy_has_the_epoch_of_its_last_frame() -> None:
    log = Log()
    first, other = Node(log, "a"), Node(log, "b")
    fill(first.lead(), 2)
    other.follow()
    assert other.copy.end == CopyEnd(1, first.tail.fold.next_lsn)
    fill(opened(first.disk), 1, size=5000)  # it never counts
    assert Node(log, "a", first.disk).copy.end.epoch == 1
    fill(other.lead(), 1)
    follower = Node(log, "c")
    follower.follow()
    again = Node(log, "a", first.disk)
    assert follower.copy.end == CopyEnd(2, other.tail.fold.next_lsn)
    again.tail.read_to(4)
    assert again.copy.end.lsn > follower.copy.end.lsn
    assert again.copy.end < follower.copy.end


def test_the_epoch_of_a_copy_follows_a_log_that_has_lost_claims() -> None:
    log = Log()
    fill(Node(log, "a").lead(), 2)
    kept = len(log.stored)
    Node(log, "b").lead()
    last = Node(log, "c")
    fill(last.lead(), 1)
    follower = Node(log, "d")
    follower.follow()
    assert follower.copy.end.epoch == 3
    del log.stored[kept:]
    again, follower = Node(log, "c", last.disk), Node(log, "d", follower.disk)
    for node in (again, follower):
        node.follow()
        node.copy.note_end()
        assert node.copy.end.epoch == 3, "a frame is behind the end of the log"
    assert again.copy.greatest_epoch == 3
    assert again.leader.take_over()
    assert again.leader.restore(again.copy.pieces_ahead()) == 1
    again.copy.hand_over()
    follower.follow()
    follower.copy.note_end()
    assert again.copy.end == follower.copy.end == CopyEnd(2, again.tail.fold.next_lsn)
    assert DiskCopy(follower.disk, Events()).greatest_epoch == 3


@pytest.mark.parametrize(("frames", "restored"), [(1, 0), (2, 2)])
def test_a_single_frame_ahead_is_dropped_after_another_leader_has_served(frames: int, restored: int) -> None:
    log = Log()
    first, other = Node(log, "a"), Node(log, "b")
    fill(first.lead(), 2)
    fill(opened(first.disk), frames)  # none of these is in the log
    assert other.leader.take_over()
    again = Node(log, "a", first.disk)
    again.follow()
    again.copy.drop_uncounted(1)
    assert sum(len(part.frames) for part in again.copy.ahead()) == frames
    again.copy.drop_uncounted(again.tail.fold.epoch)
    assert [what for what, _, _ in again.events.told] == ["cut"] * (not restored)
    assert again.leader.take_over()
    assert again.leader.restore(again.copy.pieces_ahead()) == restored


@pytest.mark.parametrize("seed", range(8))
def test_a_frame_that_was_dropped_does_not_come_back_after_a_power_failure(seed: int) -> None:
    log = Log()
    first, other = Node(log, "a"), Node(log, "b")
    fill(first.lead(), 2)
    fill(opened(first.disk), 1)  # it never counts, and has a segment of its own
    assert other.leader.take_over()
    again = Node(log, "a", first.disk)
    again.follow()
    again.copy.drop_uncounted(again.tail.fold.epoch)
    assert [(what, frames) for what, _, frames in again.events.told] == [("cut", 1)]
    first.disk._rng = random.Random(seed)
    first.disk.crash()
    third = Node(log, "a", first.disk)
    third.follow()
    assert not any(part.frames for part in third.copy.ahead())


def test_an_unreadable_epoch_is_the_least_one() -> None:
    disk = memory()
    disk.create(REPLICATED)
    disk.write(REPLICATED, 0, b"\x01" + bytes(11))
    assert DiskCopy(disk, Events()).end == CopyEnd(0, 0)


def test_a_segment_without_frames_leaves_what_the_copy_has_there() -> None:
    log = Log()
    first, other = Node(log, "a"), Node(log, "b")
    journal = first.lead()
    fill(journal, 1)
    entries = len(log.stored)
    fill(journal, 1)
    del log.stored[entries:]
    assert other.leader.take_over()
    other.leader.begin_segment(fmt.FileHeader(fmt.TYPE_SEGMENT, bytes(16), other.tail.fold.next_lsn, 9).pack())
    again = Node(log, "a", first.disk)
    again.follow()
    assert again.events.told == []
    assert again.leader.take_over()
    assert again.leader.restore(again.copy.pieces_ahead()) == 1
    third = Node(log, "c")
    third.follow()
    assert contents(third.disk) == contents(again.disk)


def test_an_older_snapshot_that_is_read_again_does_not_replace_a_newer_one() -> None:
    copy = DiskCopy(memory(), Events())
    for lsn in (8, 16, 8):
        copy.snapshot(SnapshotPiece(lsn, 4, 0, b"file"))
    assert copy.snapshot_lsn == 16


def test_a_missing_segment_is_fetched_again_and_later_ones_stay() -> None:
    log = Log()
    leader, follower = Node(log, "a"), Node(log, "b")
    fill(leader.lead(), 12)
    follower.follow()
    _first, second, *_ = follower.disk.names()
    follower.disk.delete(second)
    again = Node(log, "b", follower.disk)
    again.follow()
    assert again.events.told == []
    assert contents(again.disk) == contents(leader.disk)


def test_segments_that_the_leader_deletes_go_when_a_snapshot_covers_them() -> None:
    log = Log()
    leader, follower = Node(log, "a"), Node(log, "b")
    journal = leader.lead()
    for lsn in fill(journal, 9):
        journal.release(lsn, 1)
    snapshot = journal.begin_snapshot([], 7)
    snapshot.write()
    journal.snapshot_done(snapshot)
    for _ in range(3):
        work = journal.housekeeping()
        if work is not None:
            work()
        flush(journal)
    follower.follow()
    assert len(follower.disk.names()) > len(leader.disk.names())
    data = leader.disk.read(snapshot.name, 0, 1 << 20)
    leader.leader.put_snapshot(snapshot.lsn, len(data), [data[:30], data[30:]])
    follower.follow()
    assert contents(follower.disk) == contents(leader.disk)


def with_snapshot(frames: int) -> tuple[Log, Node, Node]:
    """A log without its first segments, the leader that has trimmed it, and a follower that was away meanwhile."""
    log = Log()
    leader, follower = Node(log, "a"), Node(log, "b")
    journal = leader.lead()
    fill(journal, 1)
    follower.follow()
    fill(journal, frames)
    trim(log, leader, journal)
    return log, leader, Node(log, "b", follower.disk)


def trim(log: Log, leader: Node, journal: Journal) -> None:
    """Delete from the log what is before the newest segment, which a snapshot covers."""
    snapshot = journal.begin_snapshot([], 7)
    snapshot.write()
    journal.snapshot_done(snapshot)
    work = journal.housekeeping()
    assert work is not None
    work()
    data = leader.disk.read(snapshot.name, 0, 1 << 20)
    leader.leader.put_snapshot(snapshot.lsn, len(data), [data])
    leader.leader.trim(leader.tail.segments[-1].lsn)
    assert log.first


@pytest.mark.rule("REPL-5")
@pytest.mark.parametrize("deleted", [0, 1, 2])
@pytest.mark.parametrize("size", [150, 200, 250, 300, 350, 800])
def test_frames_that_the_log_has_lost_and_trimmed_are_kept_beside_the_journal(size: int, deleted: int) -> None:
    log = Log()
    first, other = Node(log, "a"), Node(log, "b")
    journal = first.lead()
    fill(journal, 1)
    other.follow()
    entries = len(log.stored)
    fill(journal, 14)
    del log.stored[entries:]
    goes_on = other.lead()
    fill(goes_on, 6, size=size)
    trim(log, other, goes_on)
    fill(goes_on, 12, size=size)
    for name in list(contents(first.disk))[1 : 1 + deleted]:
        first.disk.delete(name)
    again = Node(log, "a", first.disk)
    again.tail = LogTail.opened(log, again.copy)
    again.follow()
    assert [what for what, *_ in again.events.told] == ["diverged"]
    assert again.copy.lacking_part() is None
    ends = [(lsn, JournalFile(again.disk, name)) for lsn, name in again.copy._segments()]
    assert all(end(file) <= lsn for (_, file), (lsn, _) in pairwise(ends))
    opened(again.disk)


def end(file: JournalFile) -> int:
    """Return the end of a segment's frames."""
    walk = file.walk()
    return max((frame.end_lsn for frame in walk), default=file.header.lsn)


@pytest.mark.rule("REPL-5")
def test_frames_that_the_log_has_lost_behind_a_deleted_segment_are_kept_beside_the_journal() -> None:
    log = Log()
    first, other = Node(log, "a"), Node(log, "b")
    journal = first.lead()
    fill(journal, 3)
    other.follow()
    entries = len(log.stored)
    fill(journal, 9)
    del log.stored[entries:]
    fill(other.lead(), 6, size=400)
    first.disk.delete(sorted(name for name in contents(first.disk) if name.endswith(".log"))[1])
    again = Node(log, "a", first.disk)
    again.follow()
    assert [what for what, *_ in again.events.told] == ["diverged"]
    kept = {name for name in contents(again.disk) if name.endswith(DIVERGED)}
    assert {name: data for name, data in contents(again.disk).items() if name not in kept} == contents(other.disk)


def test_a_segment_that_was_torn_while_its_node_was_away_is_deleted_when_a_snapshot_covers_it() -> None:
    log, _, follower = with_snapshot(9)
    follower.tail = LogTail.opened(log, follower.copy)
    follower.follow()
    assert follower.copy.lacking_part() is None
    opened(follower.disk)


def test_a_copy_of_a_trimmed_log_that_has_lost_its_snapshot_is_not_whole_until_it_is_put_back() -> None:
    log, leader, follower = with_snapshot(9)
    del log.stored[-1]
    follower.tail = LogTail.opened(log, follower.copy)
    follower.follow()
    assert follower.copy.lacking_part() is not None
    again = Node(log, "a", leader.disk)
    again.tail = LogTail.opened(log, again.copy)
    again.leader = Leader(log, again.tail, "a", "amqp://a", lambda: os.urandom(16))
    again.follow()
    assert again.copy.lacking_part() is None
    assert again.leader.take_over()
    assert again.leader.restore(again.copy.pieces_ahead(), again.copy.newest_snapshot()) == 0
    follower.follow()
    assert follower.copy.lacking_part() is None
    opened(follower.disk)


def test_a_copy_that_begins_in_the_middle_of_a_snapshot_waits_for_the_next_one() -> None:
    log = Log()
    leader = Node(log, "a")
    journal = leader.lead()
    fill(journal, 1)
    follower = Node(log, "b")
    follower.copy.snapshot(SnapshotPiece(8, 8, 4, b"late"))
    follower.follow()
    follower.copy.snapshot(SnapshotPiece(journal.end_lsn, 4, 0, b"file"))
    assert follower.copy.snapshot_lsn == journal.end_lsn
    follower.copy.snapshot(SnapshotPiece(journal.end_lsn + 8, 4, 2, b"le"))
    assert follower.copy.snapshot_lsn == journal.end_lsn


def test_a_directory_with_another_journal_is_refused() -> None:
    log = Log()
    fill(Node(log, "a").lead(), 1)
    disk = memory()
    journal = Journal.open(disk, journal_id=b"another journal!")
    assert list(journal.replay()) == []
    fill(journal, 1)
    with pytest.raises(CopyRefused, match="another journal"):
        Node(log, "b", disk).follow()


@pytest.mark.parametrize("frames", [0, 1])
def test_a_journal_that_was_begun_and_never_counted_makes_room(frames: int) -> None:
    log = Log()
    first, other = Node(log, "a"), Node(log, "b")
    assert first.leader.take_over()
    first.copy.hand_over()
    journal = Journal.open(first.disk, journal_id=b"another journal!")
    assert list(journal.replay()) == []
    fill(journal, 1)  # not in the log, because another node has claimed
    if not frames:
        first.disk.truncate(fmt.segment_name(0), fmt.FILE_HEADER_SIZE)
    fill(other.lead(), 2)
    again = Node(log, "a", first.disk)
    again.follow()
    assert contents(again.disk) == contents(other.disk)
    assert again.events.told == [("cut", 0, 1)] * frames


def test_a_journal_of_two_frames_is_refused_although_it_was_begun_here() -> None:
    log = Log()
    first, other = Node(log, "a"), Node(log, "b")
    assert first.leader.take_over()
    first.copy.hand_over()
    journal = Journal.open(first.disk, journal_id=b"another journal!")
    assert list(journal.replay()) == []
    fill(journal, 2)
    fill(other.lead(), 2)
    with pytest.raises(CopyRefused, match="another journal"):
        Node(log, "a", first.disk).follow()


def test_a_directory_with_another_journal_is_refused_by_a_log_that_was_trimmed() -> None:
    log = Log()
    leader = Node(log, "a")
    journal = leader.lead()
    fill(journal, 7)
    disk = memory()
    stranger = Journal.open(disk, journal_id=b"another journal!")
    assert list(stranger.replay()) == []
    fill(stranger, 1)
    newest = leader.disk.read(max(name for name in leader.disk.names() if name.endswith(".log")), 0, 64)
    with pytest.raises(CopyRefused, match="another journal"):
        DiskCopy(disk, Events()).segment(newest, 0)


def test_a_frame_before_any_segment_is_refused() -> None:
    with pytest.raises(CopyRefused, match="not begun"):
        DiskCopy(memory(), Events()).frame(ReplicatedFrame(1, 0, bytes(48)))


def test_a_passive_copy_writes_only_the_epoch() -> None:
    log = Log()
    leader, silent = Node(log, "a"), Node(log, "b")
    fill(leader.lead(), 3)
    silent.copy.passive = True
    silent.follow()
    assert silent.disk.names() == [REPLICATED]
    assert silent.copy.end_lsn == leader.tail.fold.next_lsn
