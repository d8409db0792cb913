"""Operations on which decisions rest wait for a proof that the broker leads; those that only watch do not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from escrowmq.admin.operation import OperationRefused
from escrowmq.admin.proof import PROVEN, PROVEN_BESIDE, proven
from escrowmq.admin.service import AdminService
from tests.unit.admin.processes import FakeProcess
from tests.unit.wire.amqp091.clients import server


async def answer(**arguments: Any) -> str:
    return f"answer {arguments}"


@pytest.mark.rule("REPL-3")
@pytest.mark.parametrize(
    "name", ["tx.list", "tx.commit", "half.list", "progress.list", "hold.list", "queue.show", "journal.synced"]
)
def test_an_answer_on_which_decisions_rest_follows_a_proof(name: str) -> None:
    process = FakeProcess(server())
    assert asyncio.run(proven({name: answer}, process)[name](x=1)) == "answer {'x': 1}"  # type: ignore[arg-type]
    assert process.proofs == 1


@pytest.mark.parametrize("name", ["ping", "status", "replica.status", "queue.list", "connection.list"])
def test_what_only_watches_the_broker_does_not_wait(name: str) -> None:
    process = FakeProcess(server())
    assert proven({name: answer}, process)[name] is answer


@pytest.mark.rule("REPL-3")
def test_without_a_proof_there_is_no_answer() -> None:
    class Unproven(FakeProcess):
        async def prove(self) -> None:
            raise OperationRefused("this node may lead no more")

    with pytest.raises(OperationRefused, match="may lead no more"):
        asyncio.run(proven({"tx.list": answer}, Unproven(server()))["tx.list"]())  # type: ignore[arg-type]


def test_every_name_is_that_of_an_operation() -> None:
    names = AdminService(FakeProcess(server())).operations
    assert {name.partition(".")[0] for name in names} >= PROVEN
    assert names.keys() >= PROVEN_BESIDE
