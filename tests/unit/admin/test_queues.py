"""The list of queues and the totals of all queues, both in pieces."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from escrowmq.admin.operation import NothingFound
from escrowmq.admin.queues import TOTALLED, QueueAdmin
from escrowmq.admin.transactions import TransactionAdmin
from escrowmq.core.branches.xid import Xid
from escrowmq.core.conditions import BrokerError
from escrowmq.wire.amqp091 import spec
from tests.unit.admin.processes import CountingPieces, FakeProcess, done, perform
from tests.unit.wire.amqp091.clients import pair

QUEUES = 50


class Bench:
    """A broker with fifty queues and a message in each; pieces of ten steps."""

    def __init__(self) -> None:
        self.server, self.client = pair()
        self.names = [f"q{number}" for number in range(QUEUES)]
        for name in self.names:
            self.client.declare(1, name)
            self.client.publish(1, name, b"message")
        process = FakeProcess(self.server)
        self.pieces = CountingPieces(10)
        self.admin = QueueAdmin(process.broker, TransactionAdmin(process, self.pieces), self.pieces)


def test_a_queue_is_listed_with_its_figures() -> None:
    row = perform(Bench().admin.operations, "queue.list")[0]
    assert row == {
        "vhost": "/",
        "name": "q0",
        "type": "classic",
        "durable": True,
        "exclusive": False,
        "auto_delete": False,
        "ready": 1,
        "unsettled": 0,
        "held": 0,
        "locked": 0,
        "withheld": 0,
        "consumers": 0,
        "unavailable": "",
        "arguments": {},
        "policy": "",
        "operator_policy": "",
        "effective_policy_definition": {},
    }


def test_a_queue_is_listed_with_its_counters_if_they_are_asked_for() -> None:
    bench = Bench()
    bench.client.get(1, "q0", no_ack=True)
    counters = perform(bench.admin.operations, "queue.list", counters=True)[0]["counters"]
    assert {name: count for name, count in counters.items() if count} == {
        "arrived": 1,
        "auto_settled": 1,
        "auto_fetched": 1,
    }


def test_one_queue_is_shown_without_the_others() -> None:
    bench = Bench()
    row = perform(bench.admin.operations, "queue.show", vhost="/", name="q30")
    assert row == perform(bench.admin.operations, "queue.list", counters=True)[30]
    before = bench.pieces.count
    perform(bench.admin.operations, "queue.show", vhost="/", name="q30")
    assert bench.pieces.count == before + 1, "only the branches are looked at, of which there are none"


@pytest.mark.parametrize(("vhost", "name"), [("/", "none"), ("none", "q1")])
def test_a_queue_that_does_not_exist_is_not_shown(vhost: str, name: str) -> None:
    with pytest.raises(NothingFound, match=f"no queue '{name}' in vhost '{vhost}'"):
        perform(Bench().admin.operations, "queue.show", vhost=vhost, name=name)


def test_an_unchanged_list_is_looked_at_in_few_pieces() -> None:
    bench = Bench()
    (head, *rows) = perform(bench.admin.operations, "queue.changes")
    assert [row["fixed"]["name"] for row in reversed(rows)] == bench.names
    before = bench.pieces.count
    (again,) = perform(bench.admin.operations, "queue.changes", run=head["run"], look=head["look"])
    assert (again["whole"], again["look"]) == (False, head["look"] + 1)
    assert bench.pieces.count - before < QUEUES // 5, "a step has several queues, and a piece has ten steps"


def test_a_piece_of_the_list_has_at_most_its_number_of_queues() -> None:
    bench = Bench()

    async def pieces() -> list[int]:
        return [len(piece) async for piece in (await bench.admin.list_queues()).pieces()]

    assert asyncio.run(pieces()) == [10] * 5


def test_queues_that_are_deleted_while_the_list_is_read_are_left_out() -> None:
    bench = Bench()

    async def names() -> list[str]:
        pieces = (await bench.admin.list_queues("/")).pieces()
        found = await anext(pieces)
        bench.server.broker.directory.delete_queue(bench.server.broker.directory.vhost("/").queue("q30"))
        return [row["name"] for row in found] + [row["name"] async for piece in pieces for row in piece]

    assert asyncio.run(names()) == [name for name in bench.names if name != "q30"]


def test_an_unknown_virtual_host_is_refused_before_the_first_row() -> None:
    with pytest.raises(BrokerError, match="no such vhost 'w'"):
        done(Bench().admin.list_queues("w"))


def test_totals_are_summed_in_pieces() -> None:
    bench = Bench()
    bench.client.get(1, "q1")
    assert done(bench.admin.totals()) == {
        "count": QUEUES,
        "ready": QUEUES - 1,
        "unsettled": 1,
        "consumers": 0,
        "delayed": 0,
    }
    assert bench.pieces.count == 2, (
        f"{QUEUES} queues are {-(-QUEUES // TOTALLED)} steps, and the end is found by one more"
    )


def test_each_message_is_in_one_column_while_a_branch_is_in_doubt() -> None:
    """Seven messages: one is unsettled, one locked, two held of which one is locked as well, and three are ready."""
    server, client = pair()
    client.declare(1, "q")
    client.publish(1, "q", *(b"%d" % number for number in range(7)))
    client.call(1, spec.EscrowHold("q", "etl", 2), spec.EscrowHoldOk)
    tags = []
    for _ in range(2):
        message = client.get(1, "q")
        assert message is not None
        assert isinstance(message.method, spec.BasicGetOk)
        tags.append(message.method.delivery_tag)
    xid = Xid(1, b"order-7", b"mq").encode()
    client.call(1, spec.DtxDemarcationSelect(), spec.DtxDemarcationSelectOk)
    client.call(1, spec.DtxDemarcationStart(xid), spec.DtxDemarcationStartOk)
    client.send(1, spec.BasicAck(tags[0]))
    client.call(1, spec.EscrowSettle("q", "etl", 2), spec.EscrowSettleOk)
    client.call(1, spec.DtxDemarcationEnd(xid), spec.DtxDemarcationEndOk)
    client.call(1, spec.DtxCoordinationPrepare(xid), spec.DtxCoordinationPrepareOk)
    process, pieces = FakeProcess(server), CountingPieces(10)
    admin = QueueAdmin(process.broker, TransactionAdmin(process, pieces), pieces)
    (row,) = perform(admin.operations, "queue.list")
    assert {name: row[name] for name in ("ready", "unsettled", "held", "locked")} == {
        "ready": 3,
        "unsettled": 1,
        "held": 1,
        "locked": 2,
    }


def test_messages_that_only_wait_for_a_sync_are_in_the_next_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync makes a commit's messages visible at once, but many queues take them in later, and nothing notes it."""
    monkeypatch.setattr("escrowmq.core.queues.showing.TOGETHER", 0)
    bench = Bench()
    server, client, name = bench.server, bench.client, bench.names[-1]
    client.open_channel(2, mode="tx")
    for each in (bench.names[0], name):
        client.publish(2, each, b"committed")
    known: dict[str, Any] = {}

    def ready() -> list[int]:
        """Return the numbers of messages that the changes since the last look show for the queue."""
        head, *rows = perform(bench.admin.operations, "queue.changes", **known)
        known.update(run=head["run"], look=head["look"])
        ident = server.broker.directory.vhost("/").queues[name].ident
        return [row["variable"][0] for row in rows if row.get("ident") == ident]

    assert ready() == [1]
    client.send(2, spec.TxCommit(), disk=False)
    assert ready() == [1]
    assert ready() == []
    assert server.take_batch()
    assert server.write_batch()
    server.broker.engine.requests.left = 1  # enough for the first queue
    assert server.report_batch()
    assert ready() == [2]
