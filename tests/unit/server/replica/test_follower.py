"""A standby's thread: it follows, takes over when nobody leads, puts back what only it has, and stops."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from escrowmq.journal.storage import FileStorage
from escrowmq.replica.engines.watch import EngineView
from escrowmq.replica.entries import FrameChunk, LeaderClaim
from escrowmq.replica.errors import AppendUnknown
from escrowmq.server.replica.follower import Follower
from escrowmq.server.replica.status import described
from tests.broker import wait_until
from tests.unit.journal.journals import fill, memory
from tests.unit.replica.logs import Log
from tests.unit.replica.test_copy import Node, contents, opened
from tests.unit.server.replica.standbys import led_by_another, standby


def test_the_first_node_of_a_new_log_takes_over_at_once(tmp_path: Path) -> None:
    log, calls = Log(), []
    follower = standby(log, tmp_path, lease=3600)
    assert follower.run(lambda: calls.append(1))
    assert calls == [1]
    (claim,) = log.entries
    assert isinstance(claim, LeaderClaim)
    assert claim.node == "n1"
    assert described(follower, EngineView())["role"] == "leader"
    assert [each["node"] for each in described(follower, EngineView())["take_overs"]] == ["n1"]


def test_a_standby_takes_over_from_a_silent_leader(tmp_path: Path) -> None:
    log = Log()
    led_by_another(log)
    follower = standby(log, tmp_path)
    assert follower.run()
    assert [each["node"] for each in described(follower, EngineView())["take_overs"]] == ["n2", "n1"]


def test_a_standby_follows_while_the_leader_is_there(tmp_path: Path) -> None:
    log = Log()
    leader = led_by_another(log)
    follower = standby(log, tmp_path, lease=3600)
    done = threading.Thread(target=follower.run, daemon=True)
    done.start()
    wait_until(lambda: follower.view.leader == "n2")
    assert described(follower, EngineView())["role"] == "standby"
    leader.resign()
    done.join(60)
    assert described(follower, EngineView())["role"] == "leader"


def test_a_standby_stops_when_it_is_asked_to(tmp_path: Path) -> None:
    log = Log()
    led_by_another(log)
    follower = standby(log, tmp_path, lease=3600)
    follower.stop()
    assert not follower.run()


@pytest.mark.rule("REPL-5")
def test_a_node_that_takes_over_appends_what_the_log_has_lost(tmp_path: Path) -> None:
    log = Log()
    first = standby(log, tmp_path)
    assert first.run()
    storage = first.copy._storage
    assert isinstance(storage, FileStorage)
    storage.close()
    journal = opened(FileStorage(tmp_path), None)
    fill(journal, 3)
    journal.close()
    again = standby(log, tmp_path)
    assert again.run()
    assert sum(isinstance(entry, FrameChunk) for entry in log.entries) == 3


def test_a_node_whose_disk_was_full_has_the_whole_journal_when_there_is_room_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log, disk = Log(), memory()
    leader = Node(log, "n2")
    journal = leader.lead()
    fill(journal, 4)
    disk.faults.capacity = 1200
    follower = Follower(log, "the log", disk, "n1", "amqp://n1", 3600, chain_contents=False)
    running = threading.Thread(target=follower.run)
    running.start()
    told = "the copy of the journal cannot be written: [Errno 28]"
    wait_until(lambda: told in caplog.text, 60, "the warning")
    fill(journal, 4)
    disk.faults.capacity = None
    wait_until(lambda: follower.copy.end_lsn == journal.end_lsn and not follower.view.fault, 60, "the end of the log")
    follower.stop()
    running.join(60)
    assert not running.is_alive()
    names = {name for name in contents(leader.disk) if name.endswith(".log")}
    assert {name: contents(disk)[name] for name in names} == {name: contents(leader.disk)[name] for name in names}


class Unreachable(Log):
    """A log that cannot be reached for a while."""

    down = 0

    def end(self) -> int:
        """Fail a few times."""
        self.down -= 1
        if self.down > 0:
            raise ConnectionError("no route to host")
        return super().end()


def test_a_log_that_cannot_be_reached_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = Unreachable()
    follower = standby(log, tmp_path)
    log.down = 3
    assert follower.run()
    texts = [record.getMessage() for record in caplog.records if "replicated log can" in record.getMessage()]
    assert texts[0] == "the replicated log cannot be read: no route to host"
    assert described(follower, EngineView())["fault"] == ""


def test_a_standby_says_why_the_log_does_not_take_its_claim(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = Log()
    led_by_another(log)
    follower = standby(log, tmp_path, lease=0.05)
    log.lost = 1 << 30
    running = threading.Thread(target=follower.run, daemon=True)
    running.start()
    wait_until(lambda: described(follower, EngineView())["fault"] == "no answer", 60, "the fault")
    assert "does not take the claim of this one: no answer" in caplog.text
    log.lost = 0
    running.join(60)
    assert described(follower, EngineView())["role"] == "leader"
    assert described(follower, EngineView())["fault"] == ""


class Lagging(Log):
    """A node's view of a log, which names an older end than the log has, until the node appends something."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self.log = log
        self.stored = log.stored
        self.known: int | None = None

    def append(self, entries: Sequence[bytes]) -> list[int]:
        """Append to the log."""
        positions = self.log.append(entries)
        self.known = None
        return positions

    def end(self) -> int:
        """Return the end that the node is told."""
        known = self.known
        return self.log.end() if known is None else known


@contextlib.contextmanager
def following(follower: Follower) -> Iterator[None]:
    """Run a standby's thread, and wait until it has read the log to its end."""
    running = threading.Thread(target=follower.run, daemon=True)
    running.start()
    try:
        wait_until(lambda: bool(follower.view.followed_at))
        yield
    finally:
        follower.stop()
        running.join(60)


@pytest.mark.rule("REPL-2")
def test_a_standby_that_is_asked_has_everything_that_was_confirmed_before(tmp_path: Path) -> None:
    log = Log()
    journal = Node(log, "n2").lead()
    fill(journal, 2)
    view = Lagging(log)
    follower = standby(view, tmp_path, lease=3600)
    with following(follower):
        wait_until(lambda: bool(follower.tail.fold.reports))
        for _ in range(3):
            view.known = log.end()
            fill(journal, 2)
            assert follower.copy.end_lsn < journal.synced_lsn
            assert follower.sync().result(60) >= journal.synced_lsn


def test_a_standby_says_that_the_log_does_not_answer(tmp_path: Path) -> None:
    log = Log()
    led_by_another(log)
    follower = standby(log, tmp_path, lease=3600)
    with following(follower):
        log.lost = 1
        with pytest.raises(AppendUnknown):
            follower.sync().result(60)
        assert follower.sync().result(60) == follower.copy.end_lsn


def test_a_standby_that_stops_leaves_nobody_waiting(tmp_path: Path) -> None:
    log = Log()
    led_by_another(log)
    follower = standby(log, tmp_path, lease=3600)
    asked = follower.sync()
    follower.stop()
    assert not follower.run()
    with pytest.raises(ConnectionAbortedError):
        asked.result(60)
