"""Operations on a node of a replicated log; a broker alone refuses them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from escrowmq.admin.operation import Operation, OperationRefused
from escrowmq.admin.replica import ReplicaAdmin
from tests.unit.admin.processes import FakeProcess
from tests.unit.admin.standings import standing
from tests.unit.wire.amqp091.clients import server

LEADER = {"role": "leader", "behind_seconds": 0.0}
FOLLOWING = {"role": "standby", "behind_seconds": 0.0}


async def done(operation: Operation) -> Any:
    return await operation()


def test_a_broker_alone_refuses() -> None:
    process = FakeProcess(server())
    for operation in ReplicaAdmin(process).operations.values():
        with pytest.raises(OperationRefused, match="has its journal alone"):
            asyncio.run(done(operation))
    assert not process.handed_over


def test_a_leader_shows_its_standing_and_hands_over() -> None:
    process = FakeProcess(server())
    process.standing = standing() | {"nodes": [LEADER, FOLLOWING]}
    operations = ReplicaAdmin(process).operations
    assert asyncio.run(done(operations["replica.status"])) == process.standing
    asyncio.run(done(operations["replica.handover"]))
    assert process.handed_over


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"silent": True}, "the replicated log does not answer"),
        ({"nodes": [LEADER]}, "no standby has reported lately"),
        ({"nodes": [LEADER, FOLLOWING | {"behind_seconds": 12.0}]}, "no standby has reported lately"),
    ],
)
def test_a_leader_keeps_its_clients_while_nobody_could_take_over(more: dict[str, Any], why: str) -> None:
    process = FakeProcess(server())
    process.standing = standing() | {"nodes": [LEADER, FOLLOWING]} | more
    with pytest.raises(OperationRefused, match=why):
        asyncio.run(done(ReplicaAdmin(process).operations["replica.handover"]))
    assert not process.handed_over
