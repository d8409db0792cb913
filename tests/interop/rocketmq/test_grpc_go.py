"""RocketMQ's Go client works with the broker unmodified. `make go` compiles its scenarios."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.interop.rocketmq.brokers import ServedBroker
from tests.interop.scenarios import running

PROGRAM = Path(sys.prefix, "gorocketmq")
SOURCE = Path(__file__).parent.parent / "go" / "gorocketmq" / "main.go"
SCENARIOS = re.findall(r'^\t"(\w+)": +\w+,$', SOURCE.read_text(encoding="utf-8"), re.MULTILINE)

pytestmark = [pytest.mark.interop, pytest.mark.skipif(not PROGRAM.exists(), reason="needs make go")]


@pytest.mark.rule("HALF-2", "HALF-4", "HALF-5", "DLY-1", "GRP-4")
def test_every_scenario_of_the_client_succeeds_the_last_one_through_a_kill(
    grpc_broker: ServedBroker, tmp_path: Path
) -> None:
    broker, ports = grpc_broker
    grpc_broker.declare_for("go")
    with running([os.fspath(PROGRAM)], tmp_path, {"rocketmq.client.logRoot": os.fspath(tmp_path)}) as go:
        *before, after = SCENARIOS
        for scenario in before:
            go.run(scenario, broker, ports.grpc)
        broker.kill()
        broker.start()
        go.run(after, broker, ports.grpc)
