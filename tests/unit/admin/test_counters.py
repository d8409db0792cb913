"""The sums of counters, and the counters of each queue."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from escrowmq.admin.counters import CounterAdmin
from escrowmq.admin.operation import NothingFound
from escrowmq.admin.service import AdminService
from escrowmq.wire.amqp091 import spec
from tests.harness.client import SimClient
from tests.harness.server import SimServer
from tests.unit.admin.processes import CountingPieces, FakeProcess, perform
from tests.unit.wire.amqp091.clients import pair


class SteppedPieces(CountingPieces):
    """Tells when its second piece begins."""

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.second = asyncio.Event()

    async def piece(self, work: Any) -> Any:
        if self.count == 1:
            self.second.set()
        return await super().piece(work)


def worked() -> tuple[SimServer, SimClient]:
    """Return a server whose queue `q` got three messages, of which one was acknowledged and one is unsettled."""
    server, client = pair()
    client.declare(1, "q")
    client.publish(1, "q", b"1", b"2", b"3")
    client.get(1, "q")
    client.get(1, "q")
    client.send(1, spec.BasicAck(1))
    return server, client


def totals(server: SimServer) -> Any:
    return perform(AdminService(FakeProcess(server)).operations, "counter.totals")


def test_totals_have_the_sums_of_each_virtual_host() -> None:
    found = totals(worked()[0])
    row = found["vhosts"]["/"]
    assert (row["arrived"], row["delivered"], row["fetched"], row["acknowledged"]) == (3, 2, 2, 1)
    assert (row["queues"], row["ready"], row["unsettled"], row["consumers"]) == (1, 1, 1, 0)
    assert [(each["vhost"], each["protocol"], each["received"]) for each in found["traffic"]] == [("/", "amqp091", 3)]
    assert (found["channels"], found["channels_opened"], found["queues_created"]) == (1, 1, 1)


def test_sums_do_not_fall_when_a_queue_is_deleted() -> None:
    server, client = worked()
    before = totals(server)["vhosts"]["/"]
    client.call(1, spec.QueueDelete("q"), spec.QueueDeleteOk)
    after = totals(server)["vhosts"]["/"]
    assert {key: after[key] for key in ("arrived", "delivered", "acknowledged", "left")} == {
        key: before[key] for key in ("arrived", "delivered", "acknowledged", "left")
    }
    assert after["queues"] == 0


def test_a_queue_that_is_deleted_while_sums_are_made_is_counted_once() -> None:
    server, client = pair()
    for number in range(40):
        client.declare(1, f"q{number}")
        client.publish(1, f"q{number}", b"x")
    pieces = SteppedPieces(steps=1)
    admin = CounterAdmin(FakeProcess(server), pieces)

    async def run() -> Any:
        sums = asyncio.ensure_future(admin.totals())
        await pieces.second.wait()
        for name in ("q0", "q39"):
            server.broker.directory.delete_queue(server.broker.directory.vhost("/").queue(name))
        return await sums

    assert asyncio.run(run())["vhosts"]["/"]["arrived"] == 40


def test_queues_are_listed_with_their_counters() -> None:
    server, client = worked()
    client.send(1, spec.BasicReject(2, requeue=False))
    operations = AdminService(FakeProcess(server)).operations
    (row,) = perform(operations, "counter.queues", vhosts=["/"])
    assert (row["name"], row["arrived"], row["acknowledged"], row["left"]["rejected"]) == ("q", 3, 1, 1)
    assert perform(operations, "counter.queues", vhosts=["none"]) == []
    assert len(perform(operations, "counter.queues")) == 1
    assert perform(operations, "counter.queue", vhost="/", name="q") == row
    with pytest.raises(NothingFound, match="no queue 'none' in vhost '/'"):
        perform(operations, "counter.queue", vhost="/", name="none")
