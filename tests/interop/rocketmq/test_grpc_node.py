"""RocketMQ's client for Node.js works with the broker unmodified. `npm ci` in node/ installs it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.interop.node_clients import NODE, needs, scenarios
from tests.interop.rocketmq.brokers import ServedBroker
from tests.interop.scenarios import running

SCRIPT = "rocketmq.js"

pytestmark = [pytest.mark.interop, needs("rocketmq-client-nodejs")]


@pytest.mark.rule("HALF-2", "HALF-4", "HALF-5", "DLY-1", "GRP-4")
def test_every_scenario_of_the_client_succeeds_the_last_one_through_a_kill(
    grpc_broker: ServedBroker, tmp_path: Path
) -> None:
    broker, ports = grpc_broker
    grpc_broker.declare_for("node")
    with running(["node", os.fspath(NODE / SCRIPT)], tmp_path) as node:
        *before, after = scenarios(SCRIPT)
        for scenario in before:
            node.run(scenario, broker, ports.grpc)
        broker.kill()
        broker.start()
        node.run(after, broker, ports.grpc)
