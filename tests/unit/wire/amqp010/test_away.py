"""A session without a connection delivers nothing, and completes what it has begun."""

from __future__ import annotations

from escrowmq.wire.amqp010.codec.spec import (
    SessionCompleted,
)
from tests.unit.wire.amqp010.clients import Client, server
from tests.unit.wire.amqp010.messaging import bodies, publish, queue, subscribe
from tests.unit.wire.amqp010.sessions import keeping, lose, ready, resume


def test_nothing_is_delivered_while_the_session_is_detached() -> None:
    made = server()
    queue(made)
    client = keeping(made)
    subscribe(client)
    lose(client)
    other = Client(made, attaches=False)
    other.attach(1, b"other")
    publish(other, b"one")
    assert ready(made) == 1
    assert bodies(resume(made, sent=client.sent[1])) == [b"one"]


def test_other_consumers_get_the_messages_meanwhile() -> None:
    made = server()
    queue(made)
    client = keeping(made)
    subscribe(client)
    lose(client)
    other = Client(made, attaches=False)
    other.attach(1, b"other")
    subscribe(other)
    publish(other, b"one")
    other.inbox = type(other.inbox)(one for one in other.inbox if not isinstance(one.operation, SessionCompleted))
    assert bodies(other) == [b"one"]
