"""The same scripts, driven by pika, on EscrowMQ and on RabbitMQ: what clients are answered is the same, but for a list.

RabbitMQ's answers are recorded, so that its absence does not matter; where it is installed, the records are checked.
"""

from __future__ import annotations

import pytest

from bench.brokers import RabbitMQ
from tests.broker import BrokerProcess
from tests.interop.differential import records
from tests.interop.differential.differences import DIFFERENCES, expected

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("name", records.SCENARIOS)
def test_answers_as_rabbitmq_does(name: str, broker: BrokerProcess) -> None:
    lines = records.run(name, broker.port)
    recorded = records.recorded(name)
    padded = [*lines, *[""] * len(recorded)]
    assert lines == [expected(name, line, here) for line, here in zip(recorded, padded, strict=False)]


def test_every_difference_is_one() -> None:
    for name, differences in DIFFERENCES.items():
        assert not differences.keys() - set(records.recorded(name)), name


@pytest.mark.slow
@pytest.mark.skipif(not RabbitMQ.installed(), reason="rabbitmq-server is not installed")
def test_the_records_are_rabbitmqs() -> None:
    with records.rabbitmq() as server:
        if records.FOLDER.name.rpartition("-")[2] not in server.version():
            pytest.skip(f"the records are of another version than {server.version()}")
        for name in records.SCENARIOS:
            assert records.run(name, server.port) == records.recorded(name), name
