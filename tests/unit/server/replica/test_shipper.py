"""The thread that appends the journal's frames: it waits, shows that the leader is there, asks again, and gives up."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import pytest

from escrowmq.journal.journal import Journal
from escrowmq.journal.memory import MemoryStorage
from escrowmq.replica.copy import DIVERGED
from escrowmq.replica.entries import Heartbeat, Resignation
from escrowmq.replica.leader import Leader
from escrowmq.replica.tail import LogTail
from escrowmq.server.replica.shipper import Shipper
from tests.broker import wait_until
from tests.unit.journal.journals import fill, flush, memory
from tests.unit.replica.entries import header
from tests.unit.replica.logs import Copy, Log
from tests.unit.replica.test_copy import Node, contents


class Failed:
    """Notes a failure, and does not return, as a process that begins again."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.event = threading.Event()

    def __call__(self, error: BaseException) -> NoReturn:
        self.errors.append(str(error))
        self.event.set()
        threading.Event().wait()
        raise AssertionError("unreachable")


@contextmanager
def shipping(log: Log, failed: Failed | None = None, *, heartbeat: float = 3600) -> Iterator[Shipper]:
    leader = Leader(log, LogTail(log, Copy()), "a", "amqp://a", lambda: os.urandom(16))
    assert leader.take_over()
    shipper = Shipper(leader, heartbeat, 60, failed or Failed(), synced=True)
    yield shipper
    shipper.stop(resign=False)


def kinds(log: Log) -> list[str]:
    return [type(entry).__name__ for entry in log.entries]


def test_frames_count_when_the_wait_is_over() -> None:
    log = Log()
    with shipping(log) as shipper:
        shipper.begin(header(0), 0)
        shipper.send(0, [b"12345678"])
        shipper.wait()
        assert kinds(log) == ["LeaderClaim", "SegmentStart", "FrameChunk"]
        assert shipper.appends == 2
        assert not shipper.is_silent


def test_an_idle_leader_shows_that_it_is_there() -> None:
    log = Log()
    with shipping(log, heartbeat=0.01):
        wait_until(lambda: sum(isinstance(entry, Heartbeat) for entry in log.entries) >= 3)


def test_a_leader_whose_disk_takes_long_shows_that_it_is_there() -> None:
    """The writer has sent a frame and syncs it, so another thread waits for the log."""
    log = Log()
    with shipping(log, heartbeat=0.01) as shipper:
        shipper.begin(header(0), 0)
        shipper.send(0, [b"12345678"])
        wait_until(lambda: sum(isinstance(entry, Heartbeat) for entry in log.entries) >= 3)
        shipper.wait()
        assert kinds(log).count("FrameChunk") == 1


@pytest.mark.rule("REPL-6")
def test_a_frame_is_a_sign_of_life_of_the_time_when_it_was_sent() -> None:
    log = Log()
    leader = Leader(log, LogTail(log, Copy()), "a", "amqp://a", lambda: os.urandom(16))
    assert leader.take_over()
    shipper = Shipper(leader, 3600, 0.02, Failed(), synced=True)
    shipper.begin(header(0), 0)
    shipper.send(0, [b"12345678"])
    wait_until(lambda: shipper.is_silent)
    shipper.wait()
    assert shipper.is_silent
    shipper.stop(resign=False)


def test_a_frame_that_cannot_be_sent_is_appended_when_the_log_is_there_again() -> None:
    class Closed(Log):
        closed = False

        def send(self, entries: Sequence[bytes]) -> Callable[[], list[int]]:
            if self.closed:
                self.closed = False
                raise ConnectionError("the connection was closed")
            return super().send(entries)

    log = Closed()
    with shipping(log) as shipper:
        shipper.begin(header(0), 0)
        log.closed = True
        shipper.send(0, [b"12345678"])
        shipper.wait()
    assert kinds(log)[2:] == ["FrameChunk"]


def test_a_log_that_does_not_answer_is_asked_until_it_does(caplog: pytest.LogCaptureFixture) -> None:
    log = Log()
    with shipping(log) as shipper:
        shipper.begin(header(0), 0)
        shipper.wait()
        log.lost = 7
        shipper.send(0, [b"12345678"])
        shipper.wait()
    assert kinds(log)[2:] == ["FrameChunk"]
    assert caplog.records[0].getMessage().startswith("the replicated log does not answer, so clients wait")
    assert "answers again" in caplog.records[-1].getMessage()


def test_other_nodes_know_that_a_leader_stops_before_it_refuses_connections() -> None:
    log = Log()
    with shipping(log) as shipper:
        shipper.leave()
        assert log.entries[-1] == Heartbeat(log.entries[-1].stamp, leaving=True)
        wait_until(lambda: len(log.entries) >= 4)


@pytest.mark.rule("REPL-1")
def test_a_deposed_leader_fails_and_the_writer_never_hears_of_its_frame() -> None:
    log, failed = Log(), Failed()
    leader = Leader(log, LogTail(log, Copy()), "a", "amqp://a", lambda: os.urandom(16))
    assert leader.take_over()
    shipper = Shipper(leader, 3600, 60, failed, synced=True)
    shipper.begin(header(0), 0)
    shipper.wait()
    assert Leader(log, LogTail(log, Copy()), "b", "amqp://b", lambda: os.urandom(16)).take_over()
    shipper.send(0, [b"12345678"])
    waiting = threading.Thread(target=shipper.wait, daemon=True)
    waiting.start()
    assert failed.event.wait(60)
    assert failed.errors == ["amqp://b leads now, since epoch 2"]
    assert waiting.is_alive()


def test_a_leader_that_stops_resigns() -> None:
    log = Log()
    leader = Leader(log, LogTail(log, Copy()), "a", "amqp://a", lambda: os.urandom(16))
    assert leader.take_over()
    Shipper(leader, 3600, 60, Failed(), synced=True).stop(resign=True)
    assert isinstance(log.entries[-1], Resignation)


@pytest.mark.rule("REPL-6")
def test_a_leader_without_an_answer_is_silent_after_a_while() -> None:
    log = Log()
    leader = Leader(log, LogTail(log, Copy()), "a", "amqp://a", lambda: os.urandom(16))
    assert leader.take_over()
    shipper = Shipper(leader, 3600, 0.02, Failed(), synced=True)
    wait_until(lambda: shipper.is_silent)
    shipper.call(leader.prove)
    shipper.stop(resign=False)


def test_other_work_is_done_between_frames() -> None:
    log = Log()
    with shipping(log) as shipper:
        shipper.begin(header(0), 0)
        seen: list[str] = []
        shipper.call(lambda: seen.append("done"))
        assert seen == ["done"]
        shipper.wait()


def confirmed_by(disk: MemoryStorage, log: Log, frames: int, *, synced: bool) -> tuple[int, int]:
    """Write frames as a leader, one after the other. Returns the end of what is confirmed, and the number of syncs."""
    node = Node(log, "a", disk)
    assert node.leader.take_over()
    node.copy.hand_over()
    shipper = Shipper(node.leader, 3600, 60, Failed(), synced=synced)
    journal = Journal.open(disk, segment_bytes=1 << 20, journal_id=bytes(16), sink=shipper)
    for _ in journal.replay():
        pass
    fill(journal, 1)  # begins the segment, which is synced in any case
    before = disk.syncs
    fill(journal, frames)
    shipper.stop(resign=False)
    return journal.synced_lsn, disk.syncs - before


@pytest.mark.parametrize("synced", [True, False])
def test_an_answer_waits_for_the_local_sync_only_if_the_setting_says_so(synced: bool) -> None:
    log = Log()
    confirmed, syncs = confirmed_by(memory(), log, 5, synced=synced)
    assert syncs == (5 if synced else 0)
    other = Node(log, "b")
    other.follow()
    assert other.copy.end_lsn == confirmed


@pytest.mark.rule("REPL-2")
@pytest.mark.parametrize("seed", range(20))
def test_what_only_the_log_has_is_there_after_a_power_failure_of_the_leader(seed: int) -> None:
    log, disk = Log(), MemoryStorage(random.Random(seed))
    confirmed, _ = confirmed_by(disk, log, 9, synced=False)
    disk.crash()
    again, other = Node(log, "a", disk), Node(log, "b")
    again.follow()
    other.follow()
    assert again.copy.end_lsn == confirmed
    assert contents(again.disk) == contents(other.disk)
    assert not [name for name in again.disk.names() if name.endswith(DIVERGED)]


def test_without_an_answer_of_the_log_nothing_is_confirmed_although_it_is_synced_here() -> None:
    log, disk = Log(), memory()
    node = Node(log, "a", disk)
    assert node.leader.take_over()
    node.copy.hand_over()
    shipper = Shipper(node.leader, 3600, 60, Failed(), synced=True)
    journal = Journal.open(disk, segment_bytes=1 << 20, journal_id=bytes(16), sink=shipper)
    for _ in journal.replay():
        pass
    fill(journal, 1)
    log.lost = 1 << 30
    lsn, before = journal.append(1, b"x"), disk.syncs
    writing = threading.Thread(target=flush, args=(journal,), daemon=True)
    writing.start()
    wait_until(lambda: disk.syncs > before)
    assert journal.synced_lsn <= lsn
    log.lost = 0
    writing.join(60)
    assert journal.synced_lsn > lsn
    shipper.stop(resign=False)
