"""What a node shows of the engine."""

from __future__ import annotations

import time
from pathlib import Path

from escrowmq.replica.engines.port import EngineState
from escrowmq.replica.engines.watch import EngineView
from escrowmq.server.replica.status import described
from tests.unit.replica.logs import Log
from tests.unit.server.replica.standbys import standby


def test_replicas_are_in_sync_only_as_long_as_the_engine_answers(tmp_path: Path) -> None:
    follower = standby(Log(), tmp_path)
    view = EngineView(EngineState("NATS", "nats://h/s", 3, 3, "n0"), time.monotonic())
    assert described(follower, view)["engine"]["in_sync"] == 3
    silent = described(follower, view._replace(fault="no route"))["engine"]
    assert (silent["in_sync"], silent["replicas"], silent["reachable"]) == (0, 3, False)
