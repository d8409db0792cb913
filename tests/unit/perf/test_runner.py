"""Whole runs against a real RabbitMQ, if it is installed, which is independent of the tool and of our broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.brokers import RabbitMQ
from escrowmq.perf.errors import PerfError
from escrowmq.perf.runner import Outcome, run
from escrowmq.perf.url import parse_url
from escrowmq.perf.workload import SCENARIOS, workload_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not RabbitMQ.installed(), reason="rabbitmq-server is not installed"),
]


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    broker = RabbitMQ(tmp_path_factory.mktemp("rabbitmq"))
    broker.start()
    yield broker
    broker.stop()


def load(broker: RabbitMQ, scenario: str | None, **changes: object) -> Outcome:
    workload = workload_of(scenario, changes)
    return run(parse_url(broker.url), workload, 60.0, 20.0, lambda *_: None, sample_every=0.5)


LARGE = 100_000


@pytest.mark.parametrize(
    "scenario",
    [
        name
        for name, load in SCENARIOS.items()
        if not load.xa and not load.rate and load.queues < 1000 and load.size < LARGE and load.count is None
    ],
)
def test_every_message_is_published_answered_and_consumed(rabbitmq: RabbitMQ, scenario: str) -> None:
    outcome = load(rabbitmq, scenario, count=3000)
    totals = outcome.totals
    workload = outcome.workload
    assert totals.published == 3000
    assert outcome.expected == 3000 * workload.copies
    assert totals.consumed == (outcome.expected if workload.consumers else 0)
    assert totals.confirmed == (3000 if workload.confirms or workload.tx_size or workload.rpc else 0)


@pytest.mark.parametrize("scenario", [name for name, load in SCENARIOS.items() if load.size >= LARGE])
def test_large_messages_are_published_and_consumed(rabbitmq: RabbitMQ, scenario: str) -> None:
    assert load(rabbitmq, scenario, count=20).totals.consumed == 20


@pytest.mark.parametrize("outstanding", [1, 50])
@pytest.mark.parametrize("ack_every", [0, 1, 7])
def test_messages_are_fetched_one_by_one_and_pipelined(rabbitmq: RabbitMQ, outstanding: int, ack_every: int) -> None:
    outcome = load(rabbitmq, "varied", get=outstanding, ack_every=ack_every, count=500, queues=2)
    assert outcome.totals.consumed == 500


def test_priorities_are_declared_and_delivered(rabbitmq: RabbitMQ) -> None:
    assert load(rabbitmq, "varied", priorities=10, count=500).totals.consumed == 500


@pytest.mark.parametrize("ack_every", [0, 1, 7])
@pytest.mark.parametrize("size", [0, 8, 200_000])
def test_messages_of_any_size_are_acknowledged_in_any_way(rabbitmq: RabbitMQ, size: int, ack_every: int) -> None:
    outcome = load(rabbitmq, None, count=50, size=size, ack_every=ack_every, producers=2, consumers=3, queues=2)
    assert outcome.totals.consumed == 50


def test_latency_is_measured_for_each_message(rabbitmq: RabbitMQ) -> None:
    outcome = load(rabbitmq, "latency", count=500, producers=2)
    assert outcome.totals.delivery.count == 500
    assert 0 < outcome.totals.delivery.percentile(50) <= outcome.totals.delivery.maximum


def test_the_rate_is_kept(rabbitmq: RabbitMQ) -> None:
    outcome = load(rabbitmq, None, rate=1000.0, count=501)
    assert 0.5 <= outcome.seconds < 5


def test_a_backlog_stays_and_can_be_consumed_by_a_later_run(rabbitmq: RabbitMQ) -> None:
    load(rabbitmq, "backlog", count=1234, queue="kept", keep=True)
    assert rabbitmq.depth("kept") == 1234
    outcome = load(rabbitmq, None, producers=0, queue="kept")
    assert outcome.totals.consumed == 1234
    with pytest.raises(PerfError, match="404"):
        rabbitmq.depth("kept")


def test_a_wrong_password_is_reported(rabbitmq: RabbitMQ) -> None:
    with pytest.raises(PerfError, match="403 ACCESS_REFUSED"):
        run(
            parse_url(rabbitmq.url.replace("guest:guest", "guest:wrong")),
            workload_of(None, {}),
            60.0,
            20.0,
            lambda *_: None,
            0.5,
        )


def test_a_wrong_virtual_host_is_reported(rabbitmq: RabbitMQ) -> None:
    with pytest.raises(PerfError, match="530 NOT_ALLOWED"):
        run(parse_url(rabbitmq.url + "nowhere"), workload_of(None, {}), 60.0, 20.0, lambda *_: None, 0.5)
