"""A standby's thread: it follows, takes over when nobody leads, puts back what only it has, and stops."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from escrowmq.journal.format import TYPE_SEGMENT, FileHeader, segment_name
from escrowmq.journal.storage import FileStorage
from escrowmq.replica.engines.port import EngineState
from escrowmq.replica.engines.watch import EngineView
from escrowmq.replica.entries import FrameChunk, LeaderClaim, Stamp, decode, encode
from escrowmq.replica.leader import Leader
from escrowmq.replica.tail import LogTail
from escrowmq.server.replica.follower import COPYING, Follower
from escrowmq.server.replica.presence import GRACE_SECONDS
from escrowmq.server.replica.status import described
from tests.broker import wait_until
from tests.unit.journal.journals import fill, memory
from tests.unit.replica.logs import Copy, Log
from tests.unit.replica.test_copy import Node, contents, opened
from tests.unit.replica.test_live_map import pinned

_storages: list[FileStorage] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close the files of each test, which are many."""
    yield
    while _storages:
        _storages.pop().close()


def following(log: Log, folder: Path, *, lease: float = 0.5) -> Follower:
    _storages.append(FileStorage(folder))
    return Follower(log, "the log", _storages[-1], "n1", "amqp://n1", lease, chain_contents=False)


def led_by_another(log: Log, url: str = "") -> Leader:
    leader = Leader(log, LogTail(log, Copy()), "n2", url, lambda: os.urandom(16))
    assert leader.take_over()
    return leader


def test_the_first_node_of_a_new_log_takes_over_at_once(tmp_path: Path) -> None:
    log, calls = Log(), []
    follower = following(log, tmp_path, lease=3600)
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
    follower = following(log, tmp_path)
    assert follower.run()
    assert [each["node"] for each in described(follower, EngineView())["take_overs"]] == ["n2", "n1"]


def test_a_standby_follows_while_the_leader_is_there(tmp_path: Path) -> None:
    log = Log()
    leader = led_by_another(log)
    follower = following(log, tmp_path, lease=3600)
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
    follower = following(log, tmp_path, lease=3600)
    follower.stop()
    assert not follower.run()


@pytest.mark.rule("REPL-5")
def test_a_node_that_takes_over_appends_what_the_log_has_lost(tmp_path: Path) -> None:
    log = Log()
    first = following(log, tmp_path)
    assert first.run()
    storage = first.copy._storage
    assert isinstance(storage, FileStorage)
    storage.close()
    journal = opened(FileStorage(tmp_path), None)
    fill(journal, 3)
    journal.close()
    again = following(log, tmp_path)
    assert again.run()
    assert sum(isinstance(entry, FrameChunk) for entry in log.entries) == 3


def test_a_node_whose_copy_is_not_whole_does_not_claim(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = Log()
    leader = led_by_another(log)
    leader.begin_segment(FileHeader(TYPE_SEGMENT, bytes(16), 0, 1).pack())
    leader.append_frame(0, [bytes(48)])
    leader.begin_segment(FileHeader(TYPE_SEGMENT, bytes(16), 48, 2).pack())
    leader.append_frame(48, [bytes(48)])
    log.trim(log.end() - 2)
    follower = following(log, tmp_path, lease=0.1)
    running = threading.Thread(target=follower.run)
    running.start()
    told = "this node cannot lead: its files lack the journal from LSN 0x0 to 0x30"
    wait_until(lambda: told in caplog.text, 60, "the error")
    leader.put_snapshot(96, 4, [b"file"])
    running.join(60)
    assert not running.is_alive()
    assert follower.view.role == "leader"


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
    follower = following(log, tmp_path)
    log.down = 3
    assert follower.run()
    texts = [record.getMessage() for record in caplog.records if "replicated log can" in record.getMessage()]
    assert texts[0] == "the replicated log cannot be read: no route to host"
    assert described(follower, EngineView())["fault"] == ""


def test_replicas_are_in_sync_only_as_long_as_the_engine_answers(tmp_path: Path) -> None:
    follower = following(Log(), tmp_path)
    view = EngineView(EngineState("NATS", "nats://h/s", 3, 3, "n0"), time.monotonic())
    assert described(follower, view)["engine"]["in_sync"] == 3
    silent = described(follower, view._replace(fault="no route"))["engine"]
    assert (silent["in_sync"], silent["replicas"], silent["reachable"]) == (0, 3, False)


def test_a_start_goes_on_where_the_last_one_was(tmp_path: Path) -> None:
    log = Log()
    first = following(log, tmp_path)
    assert first.run()
    storage = first._storage
    assert isinstance(storage, FileStorage)
    leader = first.leader
    for i in range(3):
        header = FileHeader(TYPE_SEGMENT, bytes(16), first.tail.fold.next_lsn, i).pack()
        leader.begin_segment(header)
        (tmp_path / segment_name(first.tail.fold.next_lsn)).write_bytes(header)
        leader.append_frame(first.tail.fold.next_lsn, [bytes(48)])
    first.write_places()
    storage.close()
    again = following(log, tmp_path)
    assert again.tail.position == first.tail.segments[-1].position > 0
    other = Follower(log, "another log", again._storage, "n1", "amqp://n1", 1, chain_contents=False)
    assert other.tail.position == 0


def test_a_standby_that_was_stopped_for_a_while_reads_once_more_before_it_claims(tmp_path: Path) -> None:
    log = Log()
    leader = led_by_another(log)
    follower = following(log, tmp_path, lease=0)
    follower._follow()
    leader.prove()
    assert not follower._takes_over()
    assert follower._takes_over()


class TestTheLeadersProcess:
    """A standby does not wait for the lease if the process of the leader has ended."""

    @pytest.fixture
    def listener(self) -> Iterator[socket.socket]:
        with socket.create_server(("127.0.0.1", 0)) as found:
            found.settimeout(30)
            yield found

    def test_a_standby_takes_over_from_a_process_that_ended(self, tmp_path: Path, listener: socket.socket) -> None:
        log = Log()
        led_by_another(log, f"amqp://127.0.0.1:{listener.getsockname()[1]}")
        follower = following(log, tmp_path, lease=3600)
        done = threading.Thread(target=follower.run, daemon=True)
        done.start()
        connection, _ = listener.accept()
        listener.close()
        connection.close()
        done.join(30)
        assert described(follower, EngineView())["role"] == "leader"

    def test_a_leader_that_stops_in_order_is_waited_for(self, tmp_path: Path, listener: socket.socket) -> None:
        log = Log()
        leader = led_by_another(log, f"amqp://127.0.0.1:{listener.getsockname()[1]}")
        follower = following(log, tmp_path, lease=3600)
        presence = follower._presence
        presence.start()
        follower._follow()
        follower._look_for_leader()
        connection, _ = listener.accept()
        listener.close()
        connection.close()
        wait_until(lambda: presence.is_gone)
        give_up = time.monotonic() + 2 * GRACE_SECONDS
        while time.monotonic() < give_up:
            leader.prove()
            follower._follow()
            follower._look_for_leader()
            assert not follower._takes_over()

        def takes_over() -> bool:
            follower._look_for_leader()
            return follower._takes_over()

        wait_until(takes_over)
        presence.stop()


def test_a_standby_reports_how_far_it_follows_and_the_leader_shows_it(tmp_path: Path) -> None:
    log = Log()
    leader = led_by_another(log, "amqp://n2")
    leader.begin_segment(FileHeader(TYPE_SEGMENT, bytes(16), 0, 0).pack())
    leader.append_frame(0, [bytes(48)])
    follower = following(log, tmp_path, lease=3600)
    follower._follow()
    follower._report()
    follower._report()  # again only after a while
    assert log.end() == 4
    leader.prove()
    ((key, seen),) = leader._tail.fold.reports.items()
    assert key == ("n1", "amqp://n1")
    assert (seen.report.lsn, seen.end_lsn) == (48, 48)
    rows = described(follower, EngineView())["nodes"]
    assert [(row["node"], row["role"], row["lsn"], row["behind_bytes"]) for row in rows] == [
        ("n1", "standby", 48, 0),
        ("n2", "leader", 48, 0),
    ]


@pytest.mark.parametrize("found", ["nobody", "resigned", "silent"])
def test_a_take_over_has_a_reason_and_a_time(found: str, tmp_path: Path) -> None:
    log = Log()
    leader = None if found == "nobody" else led_by_another(log)
    follower = following(log, tmp_path, lease=0 if found == "silent" else 3600)
    follower._follow()
    if leader is not None and found == "resigned":
        leader.resign()
        follower._follow()
    assert follower._takes_over()
    reason, since = follower.claimed
    assert reason.name.lower() == {"nobody": "first"}.get(found, found)
    follower.leader.report(0, 5000, reason, 300)
    follower.tail.read_to_end()
    last = described(follower, EngineView())["take_overs"][-1]
    assert (last["seen"], last["seconds"], last["reason"]) == (5.0, 0.3, reason.name.lower())
    assert last["before"] == ("" if found == "nobody" else "n2")
    assert since <= time.monotonic()


def test_take_overs_are_known_after_a_start(tmp_path: Path) -> None:
    log = Log()
    leader = led_by_another(log)
    leader.begin_segment(FileHeader(TYPE_SEGMENT, bytes(16), 0, 0).pack())
    follower = following(log, tmp_path, lease=3600)
    follower._follow()
    follower.write_places()
    _storages.pop().close()
    again = following(log, tmp_path, lease=3600)
    again._follow()
    assert again.take_overs() == follower.take_overs() != []


class TestAnEmptyNode:
    """It copies what lives alone, if the log has a map of that."""

    def followed(self, log: Log, folder: Path) -> dict[str, bytes]:
        """Let a node follow once, and return its files."""
        follower = following(log, folder, lease=3600)
        done = threading.Event()
        thread = threading.Thread(target=follower.run, args=(done.set,), daemon=True)
        thread.start()
        assert done.wait(30)
        follower.stop()
        thread.join(30)
        return {path.name: path.read_bytes().rstrip(b"\0") for path in folder.iterdir()}

    def test_it_has_the_segments_of_the_leader(self, tmp_path: Path) -> None:
        log, leader, _ = pinned()
        found = self.followed(log, tmp_path)
        for name, data in contents(leader.disk).items():
            assert found[name] == data
        assert COPYING not in found

    def test_a_copy_that_was_interrupted_begins_anew(self, tmp_path: Path) -> None:
        log, leader, _ = pinned()
        (tmp_path / COPYING).touch()
        name = next(name for name in leader.disk.names() if name.endswith(".log"))
        (tmp_path / name).write_bytes(leader.disk.read(name, 0, 64) + b"torn")
        found = self.followed(log, tmp_path)
        assert found[name] == contents(leader.disk)[name]
        assert COPYING not in found

    def test_a_map_that_does_not_count_makes_it_read_the_whole_log(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        log, leader, _ = pinned()
        at = leader.tail.fold.map - log.first
        log.stored[at] = encode(replace(decode(log.stored[at]), stamp=Stamp(0, bytes(8), 1)))
        found = self.followed(log, tmp_path)
        assert "this node reads the log again" in caplog.text
        for name, data in contents(leader.disk).items():
            assert found[name] == data
