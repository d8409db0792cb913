"""`escrowmq perf --protocol amqp010` against the broker: everything that is published is delivered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from escrowmq.perf.runner import run
from escrowmq.perf.url import parse_url
from escrowmq.perf.workload import AMQP010, EXPLICIT, ONE_PHASE, workload_of
from tests.broker import BrokerProcess, running_broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.mark.parametrize(
    ("scenario", "count", "confirmed", "changes"),
    [
        ("transient", 3000, 0, {}),
        ("varied", 3000, 0, {}),
        ("confirms", 3000, 3000, {}),
        ("varied-confirms", 3000, 3000, {}),
        ("varied-confirms", 3000, 3000, {"mode": EXPLICIT}),
        ("varied-topic", 3000, 3000, {"keys": 100, "bindings": 10}),
        ("many", 3000, 3000, {"priorities": 3}),
        ("tx100", 3000, 3000, {}),
        ("xa1", 20, 20, {}),
        ("xa32", 200, 200, {}),
        ("xa32", 200, 200, {"xa": ONE_PHASE, "consumers": 1}),
        ("large-256k-confirms", 40, 40, {}),
    ],
)
def test_every_message_arrives(
    broker: BrokerProcess, scenario: str, count: int, confirmed: int, changes: dict[str, Any]
) -> None:
    workload = workload_of(scenario, {"protocol": AMQP010, "count": count, **changes})
    outcome = run(parse_url(broker.url), workload, 60, 20, lambda *_: None, 1.0)
    assert outcome.totals.published == count
    assert outcome.totals.confirmed == confirmed
    if workload.consumers:
        assert outcome.totals.consumed == count


def test_each_queue_of_a_fanout_exchange_gets_the_messages(broker: BrokerProcess) -> None:
    workload = workload_of("fanout", {"protocol": AMQP010, "count": 500})
    outcome = run(parse_url(broker.url), workload, 60, 20, lambda *_: None, 1.0)
    assert outcome.totals.consumed == 5000


def test_latency_is_measured(broker: BrokerProcess) -> None:
    workload = workload_of("latency", {"protocol": AMQP010, "count": 1000})
    outcome = run(parse_url(broker.url), workload, 60, 20, lambda *_: None, 1.0)
    assert outcome.totals.delivery.count == 1000
