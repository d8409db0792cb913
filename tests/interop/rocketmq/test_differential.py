"""The same requests of classic remoting get the same answers from EscrowMQ and RocketMQ, apart from listed differences.

RocketMQ's answers are recorded, so RocketMQ need not run. `make rocketmq` compares the records with a real one.
"""

from __future__ import annotations

import pytest

from tests.interop.rocketmq.brokers import ServedBroker
from tests.interop.rocketmq.differential import records
from tests.interop.rocketmq.differential.differences import DIFFERENCES, comparable, expected

pytestmark = pytest.mark.interop


@pytest.mark.rule("HALF-1", "HALF-2", "HALF-3", "HALF-11", "GRP-5")
@pytest.mark.parametrize("name", records.SCENARIOS)
def test_the_broker_answers_like_rocketmq(name: str, grpc_broker: ServedBroker) -> None:
    lines = records.run(name, grpc_broker.ports.name_server, grpc_broker.ports.broker_port)
    wanted = [expected(name, line) for line in records.recorded(name)]
    assert "\n".join(map(comparable, lines)) == "\n".join(wanted)


def test_every_listed_difference_is_in_the_records() -> None:
    for name, differences in DIFFERENCES.items():
        assert not differences.keys() - set(records.recorded(name)), name


@pytest.mark.long
@pytest.mark.skipif(not records.installed(), reason="needs Java and RocketMQ, which make peers fetches")
def test_the_real_rocketmq_answers_as_recorded() -> None:
    with records.rocketmq() as (name_server, broker):
        for name in records.SCENARIOS:
            assert records.run(name, name_server, broker) == records.recorded(name), name
