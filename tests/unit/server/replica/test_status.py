"""What a node shows of itself and of the engine."""

from __future__ import annotations

import time
from pathlib import Path

from escrowmq.replica.engines.port import EngineState
from escrowmq.replica.engines.watch import EngineView
from escrowmq.server.replica.status import Unreached, described
from tests.unit.replica.logs import Log
from tests.unit.server.replica.standbys import led_by_another, read, standby


def test_replicas_are_in_sync_only_as_long_as_the_engine_answers(tmp_path: Path) -> None:
    follower = standby(Log(), tmp_path)
    view = EngineView(EngineState("NATS", "nats://h/s", 3, 3, "n0"), time.monotonic())
    assert described(follower, view)["engine"]["in_sync"] == 3
    silent = described(follower, view._replace(fault="no route"))["engine"]
    assert (silent["in_sync"], silent["replicas"], silent["reachable"]) == (0, 3, False)


def test_a_node_that_has_not_read_the_log_is_behind_since_its_start(tmp_path: Path) -> None:
    log = Log()
    led_by_another(log)
    follower = standby(log, tmp_path, lease=3600)
    follower.view.began_at -= 20
    before = described(follower, EngineView())
    assert before["reading"]
    assert 20 <= before["nodes"][0]["behind_seconds"] < 3600
    read(follower)
    after = described(follower, EngineView())
    assert not after["reading"]
    assert after["nodes"][0]["behind_seconds"] == 0


def test_a_node_that_has_not_reached_the_engine_shows_the_same_keys(tmp_path: Path) -> None:
    follower = standby(Log(), tmp_path)
    found = Unreached("n1", "amqp://n1", time.monotonic() - 7, "no route").described()
    known = described(follower, EngineView())
    assert found.keys() == known.keys()
    assert found["nodes"][0].keys() == known["nodes"][0].keys()
    assert (found["reading"], found["fault"], found["engine"]["fault"]) == (True, "no route", "no route")
    assert not found["engine"]["reachable"]
    assert found["nodes"][0]["behind_seconds"] >= 7
