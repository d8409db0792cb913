"""A standby claims when no leader is there and its copy is whole. The claim says why."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from escrowmq.journal.format import TYPE_SEGMENT, FileHeader
from escrowmq.journal.storage import FileStorage
from escrowmq.replica.copy import DiskCopy
from escrowmq.replica.engines.watch import EngineView
from escrowmq.replica.entries import TakeOverReason
from escrowmq.server.replica.candidate import GIVE_WAY_SECONDS, Candidate
from escrowmq.server.replica.follower import Follower
from escrowmq.server.replica.following import LoggedEvents
from escrowmq.server.replica.presence import GRACE_SECONDS, LeaderPresence
from escrowmq.server.replica.status import described
from tests.broker import wait_until
from tests.unit.journal.journals import fill
from tests.unit.replica.logs import Log
from tests.unit.replica.test_copy import opened
from tests.unit.server.replica.standbys import led_by_another, read, standby


def candidate(follower: Follower) -> Candidate:
    return follower._candidate


def listener_address(url: str) -> tuple[str, int]:
    """Return the address of a URL."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 0


def test_a_node_whose_copy_is_not_whole_does_not_claim(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = Log()
    leader = led_by_another(log)
    leader.begin_segment(FileHeader(TYPE_SEGMENT, bytes(16), 0, 1).pack())
    leader.append_frame(0, [bytes(48)])
    leader.begin_segment(FileHeader(TYPE_SEGMENT, bytes(16), 48, 2).pack())
    leader.append_frame(48, [bytes(48)])
    log.trim(log.end() - 2)
    follower = standby(log, tmp_path, lease=0.1)
    running = threading.Thread(target=follower.run)
    running.start()
    told = "this node cannot lead: its files lack the journal from LSN 0x0 to 0x30"
    wait_until(lambda: told in caplog.text, 60, "the error")
    leader.put_snapshot(96, 4, [b"file"])
    running.join(60)
    assert not running.is_alive()
    assert follower.view.role == "leader"


def test_a_standby_that_was_stopped_for_a_while_reads_once_more_before_it_claims(tmp_path: Path) -> None:
    log = Log()
    leader = led_by_another(log)
    follower = standby(log, tmp_path, lease=0)
    read(follower)
    leader.prove()
    assert not candidate(follower).take_over()
    assert candidate(follower).take_over()


def test_a_standby_that_is_short_of_space_lets_others_claim_first(tmp_path: Path) -> None:
    follower = standby(Log(), tmp_path, disk_limit=1 << 60)
    read(follower)
    began = time.monotonic()
    assert not candidate(follower).take_over()
    wait_until(candidate(follower).take_over, 60, "the claim")
    assert time.monotonic() - began >= GIVE_WAY_SECONDS


def test_a_loss_is_past_once_a_leader_is_heard_that_has_all_of_this_nodes_copy(tmp_path: Path) -> None:
    log = Log()
    led_by_another(log)
    follower = standby(log, tmp_path, lease=3600)
    read(follower)
    looking = candidate(follower)
    looking.found_loss()
    assert looking._may_have_to_act()
    assert not looking.take_over()
    assert not looking._may_have_to_act(), "the files would be looked through again and again"


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
        follower = standby(log, tmp_path, lease=3600)
        done = threading.Thread(target=follower.run, daemon=True)
        done.start()
        connection, _ = listener.accept()
        listener.close()
        connection.close()
        done.join(30)
        assert described(follower, EngineView())["role"] == "leader"

    def test_a_standby_follows_a_process_that_leads_again_at_its_address(
        self, tmp_path: Path, listener: socket.socket
    ) -> None:
        log = Log()
        url = f"amqp://127.0.0.1:{listener.getsockname()[1]}"
        led_by_another(log, url)
        follower = standby(log, tmp_path, lease=3600)
        looking = candidate(follower)
        looking.presence.start()
        read(follower)
        looking.look_for_leader()
        connection, _ = listener.accept()
        listener.close()
        connection.close()
        wait_until(lambda: looking.presence.is_gone, 30, "the end of the process")
        with socket.create_server(listener_address(url)):
            led_by_another(log, url)
            read(follower)
            for _ in range(3):
                looking.look_for_leader()
                assert not looking.take_over()
            looking.presence.stop()

    def test_the_second_look_after_the_end_of_the_process_is_enough(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = Log()
        leader = led_by_another(log)
        follower = standby(log, tmp_path, lease=3600)
        monkeypatch.setattr(LeaderPresence, "is_gone", True)
        for counts in (True, True, False):
            if counts:
                leader.prove()
            read(follower)
            candidate(follower).look_for_leader()
            assert candidate(follower).is_silent is not counts

    def test_a_leader_that_stops_in_order_is_waited_for(self, tmp_path: Path, listener: socket.socket) -> None:
        log = Log()
        leader = led_by_another(log, f"amqp://127.0.0.1:{listener.getsockname()[1]}")
        follower = standby(log, tmp_path, lease=3600)
        presence = candidate(follower).presence
        presence.start()
        read(follower)
        candidate(follower).look_for_leader()
        connection, _ = listener.accept()
        listener.close()
        connection.close()
        wait_until(lambda: presence.is_gone)
        leader.prove(leaving=True)
        give_up = time.monotonic() + 2 * GRACE_SECONDS
        while time.monotonic() < give_up:
            leader.prove()
            read(follower)
            candidate(follower).look_for_leader()
            assert not candidate(follower).take_over()

        def takes_over() -> bool:
            candidate(follower).look_for_leader()
            return candidate(follower).take_over()

        wait_until(takes_over)
        presence.stop()


@pytest.mark.parametrize("found", ["nobody", "resigned", "silent"])
def test_a_take_over_has_a_reason_and_a_time(found: str, tmp_path: Path) -> None:
    log = Log()
    leader = None if found == "nobody" else led_by_another(log)
    follower = standby(log, tmp_path, lease=0 if found == "silent" else 3600)
    read(follower)
    if leader is not None and found == "resigned":
        leader.resign()
        read(follower)
    assert candidate(follower).take_over()
    reason, since = follower.claimed
    assert reason.name.lower() == {"nobody": "first"}.get(found, found)
    follower.leader.report(0, 5000, reason, 300)
    follower.tail.read_to_end()
    last = described(follower, EngineView())["take_overs"][-1]
    assert (last["seen"], last["seconds"], last["reason"]) == (5.0, 0.3, reason.name.lower())
    assert last["before"] == ("" if found == "nobody" else "n2")
    assert since <= time.monotonic()


@pytest.mark.parametrize("led", [False, True])
def test_a_node_that_brings_its_journal_to_a_new_log_is_the_first(led: bool, tmp_path: Path) -> None:
    storage = FileStorage(tmp_path)
    journal = opened(storage)
    fill(journal, 3)
    if led:  # on a log that is lost
        DiskCopy(storage, LoggedEvents())._note_epoch(4)
    journal.close()
    follower = standby(Log(), tmp_path)
    assert follower.run()
    assert follower.claimed[0] is (TakeOverReason.LOSS if led else TakeOverReason.FIRST)
