"""A session without a connection delivers nothing, and completes what it has begun."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp010 import settling
from escrowmq.wire.amqp010.codec.spec import (
    MessageAccept,
    SessionAttach,
    SessionAttached,
    SessionCompleted,
    SessionFlush,
)
from tests.unit.wire.amqp010.clients import Client, server
from tests.unit.wire.amqp010.messaging import bodies, publish, queue, subscribe
from tests.unit.wire.amqp010.sessions import NAME, keeping, lose, ready, resume


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


@pytest.mark.rule("DUR-1")
def test_a_settlement_that_went_on_meanwhile_is_complete_when_it_is_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "AT_ONCE", 0)
    made = server()
    found = queue(made)
    client = keeping(made)
    publish(client, b"one", b"two", delivery_mode=2)
    client.inbox.clear()
    subscribe(client)
    made.broker.engine.requests.turn = made.broker.engine.requests.left = 1
    made.receive(client.port, client.octets(MessageAccept(((0, 0), (1, 1)))))
    assert found.unsettled == 1
    made.lose(client.port)
    made.end_turn()
    assert found.unsettled == 0
    again = Client(made, attaches=False)
    made.broker.log.append(1, b"record")
    again.send_bytes(again.control_octets(SessionAttach(NAME)), disk=False)
    again.expect(SessionAttached)
    again.expect(SessionFlush)
    assert again.idle()
    again.send_bytes(b"")
    again.completes(0, client.sent[1] - 1)
