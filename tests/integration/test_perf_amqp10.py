"""`escrowmq perf --protocol amqp10` against the broker: everything that is published is delivered."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from escrowmq.perf.runner import run
from escrowmq.perf.url import parse_url
from escrowmq.perf.workload import AMQP10, SECOND, workload_of
from tests.broker import BrokerProcess, running_broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.mark.parametrize(
    ("scenario", "confirmed"),
    [
        ("transient", 0),
        ("varied", 0),
        ("acked", 0),
        ("confirms", 3000),
        ("varied-confirms", 3000),
        ("large-256k-confirms", 40),
    ],
)
def test_every_message_arrives(broker: BrokerProcess, scenario: str, confirmed: int) -> None:
    workload = workload_of(scenario, {"protocol": AMQP10, "count": 40 if "large" in scenario else 3000})
    outcome = run(parse_url(broker.url), workload, 60, 20, lambda *_: None, 1.0)
    assert outcome.totals.published == outcome.totals.consumed == workload.count
    assert outcome.totals.confirmed == confirmed


def test_both_sides_settle_in_mode_second(broker: BrokerProcess) -> None:
    workload = workload_of("varied-confirms", {"protocol": AMQP10, "mode": SECOND, "count": 3000})
    outcome = run(parse_url(broker.url), workload, 60, 20, lambda *_: None, 1.0)
    assert outcome.totals.confirmed == outcome.totals.consumed == 3000


def test_latency_is_measured(broker: BrokerProcess) -> None:
    workload = workload_of("latency", {"protocol": AMQP10, "count": 1000})
    outcome = run(parse_url(broker.url), workload, 60, 20, lambda *_: None, 1.0)
    assert outcome.totals.delivery.count == 1000
