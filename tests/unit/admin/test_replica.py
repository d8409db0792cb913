"""Operations on a node of a replicated log; a broker alone refuses them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from escrowmq.admin.operation import Operation, OperationRefused
from escrowmq.admin.replica import ReplicaAdmin
from tests.unit.admin.processes import FakeProcess
from tests.unit.wire.amqp091.clients import server


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
    process.standing = {"role": "leader", "silent": False}
    operations = ReplicaAdmin(process).operations
    assert asyncio.run(done(operations["replica.status"])) == process.standing
    asyncio.run(done(operations["replica.handover"]))
    assert process.handed_over


def test_a_leader_keeps_its_clients_while_nobody_could_take_over() -> None:
    process = FakeProcess(server())
    process.standing = {"role": "leader", "silent": True}
    with pytest.raises(OperationRefused, match="does not answer"):
        asyncio.run(done(ReplicaAdmin(process).operations["replica.handover"]))
    assert not process.handed_over
