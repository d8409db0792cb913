"""What a client keeps by asking for changes is the list, whatever happens to the queues and whenever it asks."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from escrowmq.admin.http.kept_lists import KeptList, KeptLists
from escrowmq.admin.http.shapes import queue as shape_of
from escrowmq.admin.service import AdminService
from escrowmq.core.branches.xid import Xid
from escrowmq.wire.amqp091 import spec
from tests.harness.client import SimClient
from tests.unit.admin.http.sites import LocalBroker
from tests.unit.wire.amqp091.clients import pair

NAMES = st.sampled_from(("a", "b", "c", "d"))
CLIENTS = st.sampled_from((0, 1))
POLICIES = st.sampled_from(({"max-length": 2}, {"max-length": 3}, {"expires": 60_000}))
NODE = "n"


class ListMachine(RuleBasedStateMachine):
    """Queues are declared, used and deleted, and two clients ask for changes at different times."""

    def __init__(self) -> None:
        super().__init__()
        self.server, self.client = pair()
        self.broker = LocalBroker(self.server)
        self.lists: list[KeptList] = [KeptLists(self.broker).queues for _ in range(2)]
        self.tags: list[int] = []
        self.branch: SimClient | None = None

    def ask(self, operation: str, **arguments: Any) -> Any:
        return asyncio.run(self.broker.ask(operation, **arguments))

    @property
    def names(self) -> list[str]:
        return list(self.server.broker.directory.vhost("/").queues)

    @rule(name=NAMES)
    def declare(self, name: str) -> None:
        self.client.declare(1, name)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        if name in self.names:
            self.client.call(1, spec.QueueDelete(name), spec.QueueDeleteOk)

    @rule(name=NAMES, count=st.integers(1, 3))
    def publish(self, name: str, count: int) -> None:
        self.client.publish(1, name, *[b"message"] * count)

    @rule(name=NAMES, no_ack=st.booleans())
    def get(self, name: str, no_ack: bool) -> None:
        message = self.client.get(1, name, no_ack=no_ack) if name in self.names else None
        if message is not None and not no_ack:
            assert isinstance(message.method, spec.BasicGetOk)
            self.tags.append(message.method.delivery_tag)

    @precondition(lambda self: self.tags)
    @rule(requeue=st.sampled_from((None, False, True)))
    def settle(self, requeue: bool | None) -> None:
        tag = self.tags.pop()
        self.client.send(1, spec.BasicAck(tag) if requeue is None else spec.BasicReject(tag, requeue))

    @rule(name=NAMES)
    def purge(self, name: str) -> None:
        if name in self.names:
            self.client.call(1, spec.QueuePurge(name), spec.QueuePurgeOk)

    @rule(name=NAMES)
    def consume_once(self, name: str) -> None:
        if name in self.names:
            consumer = SimClient(self.server)
            consumer.open_channel(1, prefetch=1)
            consumer.call(1, spec.BasicConsume(name, "t"), spec.BasicConsumeOk)
            self.ask_and_compare(0)
            consumer.lose()

    @rule(name=NAMES)
    def reserve(self, name: str) -> None:
        if name in self.names:
            self.client.call(1, spec.EscrowHold(name, "etl", 2), spec.EscrowHoldOk)

    @precondition(lambda self: self.branch is None)
    @rule(name=NAMES)
    def prepare(self, name: str) -> None:
        if name not in self.names:
            return
        xid = Xid(1, b"x", b"").encode()
        self.branch = client = SimClient(self.server)
        client.open_channel(1)
        client.call(1, spec.DtxDemarcationSelect(), spec.DtxDemarcationSelectOk)
        client.call(1, spec.DtxDemarcationStart(xid), spec.DtxDemarcationStartOk)
        taken = client.get(1, name)
        if taken is not None:
            client.send(1, spec.BasicAck(1))
        client.publish(1, name, b"in doubt")
        client.call(1, spec.DtxDemarcationEnd(xid), spec.DtxDemarcationEndOk)
        client.call(1, spec.DtxCoordinationPrepare(xid), spec.DtxCoordinationPrepareOk)

    @precondition(lambda self: self.branch is not None)
    @rule(commit=st.booleans())
    def decide(self, commit: bool) -> None:
        xid = Xid(1, b"x", b"").encode()
        assert self.branch is not None
        if commit:
            self.branch.call(1, spec.DtxCoordinationCommit(xid), spec.DtxCoordinationCommitOk)
        else:
            self.branch.call(1, spec.DtxCoordinationRollback(xid), spec.DtxCoordinationRollbackOk)
        self.branch = None

    @rule(definition=POLICIES)
    def set_policy(self, definition: dict[str, int]) -> None:
        arguments = {"vhost": "/", "name": "p", "pattern": "[ab]", "definition": definition, "priority": 0}
        self.ask("policy.set", **arguments, apply_to="queues")

    @rule()
    def make_and_delete_another_virtual_host(self) -> None:
        self.ask("vhost.add", name="other")
        self.ask("queue.declare", vhost="other", name="a")
        self.ask_and_compare(1)
        self.ask("vhost.delete", name="other", force=True)

    @rule()
    def start_again(self) -> None:
        self.broker._operations = AdminService(self.broker.process).operations

    @rule(client=CLIENTS)
    def ask_and_compare(self, client: int) -> None:
        kept = [row.shape(NODE) for row in asyncio.run(self.lists[client].current())]
        listed = [shape_of(row, NODE) for row in self.ask("queue.list", counters=True)]

        def order(row: dict[str, Any]) -> tuple[str, str]:
            return row["vhost"], row["name"]

        assert sorted(kept, key=order) == sorted(listed, key=order)

    def teardown(self) -> None:
        for client in (0, 1):
            self.ask_and_compare(client)


TestListChanges = ListMachine.TestCase
TestListChanges.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
