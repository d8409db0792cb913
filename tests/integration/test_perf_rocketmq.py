"""`escrowmq perf` over both protocols of RocketMQ against the broker: everything that is sent is delivered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from escrowmq.perf.runner import Outcome, run
from escrowmq.perf.url import parse_url
from escrowmq.perf.workload import ROCKETMQ, ROCKETMQ_GRPC, workload_of
from tests.interop.rocketmq.brokers import RocketmqPorts

NAME_SERVER, GRPC = "name server", "gRPC"


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketmqPorts]:
    ports = RocketmqPorts()
    with ports.broker(tmp_path_factory.mktemp("broker")):
        yield ports


def load(ports: RocketmqPorts, protocol: str, **changes: Any) -> Outcome:
    """Run a load to its end."""
    name_server = f"127.0.0.1:{ports.name_server}"
    url = f"rocketmq://{name_server}"
    if protocol == ROCKETMQ_GRPC:
        url, changes["name_server"] = f"rocketmq+grpc://127.0.0.1:{ports.grpc}", name_server
    workload = workload_of(None, {"protocol": protocol, "queues": 4, **changes})
    return run(parse_url(url), workload, 60, 20, lambda *_: None, 1.0)


@pytest.mark.parametrize("protocol", [ROCKETMQ, ROCKETMQ_GRPC])
@pytest.mark.parametrize(
    "changes",
    [{"confirms": True, "window": 64}, {"tx_size": 1, "window": 64}, {"tx_size": 1, "window": 1}],
    ids=["sends", "transactions", "transactions one at a time"],
)
def test_every_message_is_answered_and_delivered(ports: RocketmqPorts, protocol: str, changes: dict[str, Any]) -> None:
    outcome = load(ports, protocol, count=200, **changes)
    assert (outcome.totals.published, outcome.totals.confirmed, outcome.totals.consumed) == (200, 200, 200)


def test_batches_are_delivered_message_by_message(ports: RocketmqPorts) -> None:
    outcome = load(ports, ROCKETMQ, count=320, confirms=True, batch=32, window=64, consumers=2)
    assert (outcome.totals.confirmed, outcome.totals.consumed) == (320, 320)


@pytest.mark.parametrize("protocol", [ROCKETMQ, ROCKETMQ_GRPC])
def test_a_backlog_is_consumed(ports: RocketmqPorts, protocol: str) -> None:
    queue = f"backlog-{protocol}"
    stored = load(ports, ROCKETMQ, count=96, confirms=True, batch=32, consumers=0, queue=queue, keep=True)
    consumed = load(ports, protocol, producers=0, queue=queue)
    assert (stored.totals.confirmed, consumed.totals.consumed) == (96, 96)


@pytest.mark.parametrize("protocol", [ROCKETMQ, ROCKETMQ_GRPC])
def test_latency_is_measured(ports: RocketmqPorts, protocol: str) -> None:
    outcome = load(ports, protocol, count=100, confirms=True, rate=200.0)
    assert outcome.totals.delivery.count == 100
