"""What a node shows of itself and of the engine."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from escrowmq.replica.engines.port import EngineState
from escrowmq.replica.engines.watch import EngineView
from escrowmq.replica.entries import NodeReport, Stamp, encode
from escrowmq.server.replica.shipper import REPORT_SECONDS
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


@pytest.mark.parametrize("shift", [-3600, 0, 3600], ids=["slow", "right", "fast"])
def test_whether_a_standby_is_behind_does_not_depend_on_its_clock(shift: int, tmp_path: Path) -> None:
    log = Log()
    leader = led_by_another(log)
    follower = standby(log, tmp_path, lease=3600)

    def behind() -> float:
        read(follower)
        found: float = next(row for row in described(follower, EngineView())["nodes"] if row["node"] == "n3")[
            "behind_seconds"
        ]
        return found

    def now_ms() -> int:
        return round(time.time() * 1000)

    leader.report_place(now_ms())
    stamp = Stamp(leader.claim.stamp.epoch, leader._tail.fold.chain, log.end())
    log.append([encode(NodeReport(stamp, "n3", "amqp://n3", 0, now_ms() + shift * 1000))])
    leader.prove()
    assert behind() == 0
    for _ in range(4):
        leader.report_place(now_ms())
    leader.prove()
    assert behind() == pytest.approx(3 * REPORT_SECONDS if shift >= 0 else 5 * REPORT_SECONDS)
