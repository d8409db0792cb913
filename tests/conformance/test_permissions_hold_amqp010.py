"""A permission holds on every way to the object for clients of AMQP 0-10 (SEC-3)."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.wire.amqp010.codec.spec import (
    ErrorCode,
    ExchangeBind,
    ExchangeDeclare,
    ExchangeUnbind,
    MessageSubscribe,
    MessageTransfer,
    QueueDeclare,
)
from escrowmq.wire.amqp091 import spec as spec091
from tests.harness.client import SimClient
from tests.unit.wire.amqp010.clients import Client, SharingServer
from tests.unit.wire.amqp010.messaging import header

pytestmark = pytest.mark.rule("SEC-3")


def site(write: str = "^alice[.]") -> tuple[SharingServer, SimClient, Client]:
    """An operator has bound everything of the topic exchange `events` to a queue; Alice's keys are restricted."""
    server = SharingServer()
    server.broker.access.add_user("alice", "")
    operator = SimClient(server, "operator")
    operator.open_channel(1)
    operator.call(1, spec091.ExchangeDeclare("events", "topic"), spec091.ExchangeDeclareOk)
    operator.call(1, spec091.ExchangeDeclare("mine", "topic"), spec091.ExchangeDeclareOk)
    operator.call(1, spec091.ExchangeBind("events", "mine", "#"), spec091.ExchangeBindOk)
    operator.declare(1, "all")
    operator.call(1, spec091.QueueBind("all", "events", "#"), spec091.QueueBindOk)
    server.broker.access.set_permission("alice", "/", "^mine", "^(mine|events|amq[.]default)", "^mine|^all$")
    server.broker.access.set_topic_permission("alice", "/", "events", write, ".*")
    return server, operator, Client(server, "alice")


def transfer(exchange: str, key: str) -> tuple[MessageTransfer, dict[str, Any]]:
    return MessageTransfer(exchange, 1, 0), {"header": header(routing_key=key), "body": b"1"}


@pytest.mark.parametrize("exchange", ["events", "mine"])
def test_keys_are_checked_on_every_exchange_on_the_way(exchange: str) -> None:
    _, operator, alice = site()
    command, content = transfer(exchange, "alice.1")
    alice.do(command, **content)
    assert operator.count(1, "all") == 1
    command, content = transfer(exchange, "bob.1")
    raised = alice.refused(command, ErrorCode.UNAUTHORIZED_ACCESS, **content)
    assert "topic 'bob.1' in exchange 'events'" in (raised.description or "")
    assert operator.count(1, "all") == 1


@pytest.mark.parametrize(
    "detour",
    [
        ExchangeDeclare("mine.2", "fanout", "events"),
        ExchangeDeclare("mine.2", "fanout", arguments={"alternate-exchange": "events"}),
        QueueDeclare("mine.q", "events"),
        QueueDeclare("mine.q", arguments={"x-dead-letter-exchange": "events"}),
        QueueDeclare("mine.q", arguments={"x-dead-letter-exchange": "events", "x-dead-letter-routing-key": "bob.1"}),
    ],
    ids=lambda command: f"{command.NAME} {command.alternate_exchange} {command.arguments}",
)
def test_a_restricted_user_sets_up_no_detour(detour: Any) -> None:
    _, _, alice = site()
    raised = alice.refused(detour, ErrorCode.UNAUTHORIZED_ACCESS)
    assert "refused for user 'alice'" in (raised.description or "")
    _, _, free = site(".*")
    free.do(detour)


@pytest.mark.parametrize(
    "command",
    [MessageSubscribe("other", "d"), ExchangeBind("all", "mine", "k"), ExchangeUnbind("all", "events", "#")],
    ids=lambda command: command.NAME,
)
def test_objects_of_others_are_refused(command: Any) -> None:
    _, operator, alice = site()
    operator.declare(1, "other")
    alice.refused(command, ErrorCode.UNAUTHORIZED_ACCESS)


def test_a_subscription_ends_with_its_permission() -> None:
    server, _, alice = site()
    alice.do(MessageSubscribe("all", "d"))
    server.broker.access.set_permission("alice", "/", "^mine", "^mine", "^mine")
    for _ in alice.port.endpoint.permissions_changed():
        pass
    alice.send_bytes(b"")
    alice.raised(ErrorCode.UNAUTHORIZED_ACCESS)
