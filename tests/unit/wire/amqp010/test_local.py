"""Queues with the argument `no-local` do not take messages of the connection that has them for itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from escrowmq.wire.amqp010.codec.spec import MessageAccept, MessageSubscribe, QueueDeclare, SessionCompleted
from tests.unit.wire.amqp010.clients import Client, server
from tests.unit.wire.amqp010.messaging import publish
from tests.unit.wire.amqp091.clients import bodies

EXCLUSIVE = QueueDeclare("q", exclusive=True, auto_delete=True, arguments={"no-local": True})
LOCKED = QueueDeclare("q", durable=True, exclusive=True, arguments={"no-local": "true"})
SHARED = QueueDeclare("q", durable=True, arguments={"no-local": True})


def declared(command: QueueDeclare) -> Callable[[Client], None]:
    return lambda client: client.do(command)


def subscribed(client: Client) -> None:
    client.do(SHARED)
    client.do(MessageSubscribe("q", "d", accept_mode=0, acquire_mode=0, exclusive=True))


@pytest.mark.parametrize(
    "begin", [declared(EXCLUSIVE), declared(LOCKED), subscribed], ids=["exclusive", "locked", "exclusive subscription"]
)
def test_a_connection_does_not_get_its_own_messages(begin: Callable[[Client], None]) -> None:
    made = server()
    client = Client(made)
    begin(client)
    client.attach(2)
    publish(client, b"own", key="q")
    publish(client, b"of another session", key="q", channel=2)
    other = Client(made, attaches=False)
    other.attach(1, b"other")
    publish(other, b"foreign", key="q")
    assert bodies(made, "q") == [b"foreign"]


def test_a_publisher_is_told_that_its_message_was_taken() -> None:
    client = Client()
    client.do(EXCLUSIVE)
    publish(client, b"own", key="q", mode=0)
    assert client.expect(MessageAccept).transfers == ((1, 1),)
    client.expect(SessionCompleted)


@pytest.mark.parametrize(
    "command",
    [SHARED, QueueDeclare("q", exclusive=True, auto_delete=True, arguments={"no-local": "false"})],
    ids=["not exclusive", "not asked for"],
)
def test_other_queues_take_everything(command: QueueDeclare) -> None:
    client = Client()
    client.do(command)
    publish(client, b"own", key="q")
    assert bodies(client.server, "q") == [b"own"]
