"""A client that attaches a session again gets what it has not received, and nothing twice."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp010.codec.spec import (
    MessageAccept,
    SessionCompleted,
    SessionGap,
)
from tests.unit.wire.amqp010.clients import server
from tests.unit.wire.amqp010.messaging import bodies, octets, publish, queue, subscribe
from tests.unit.wire.amqp010.sessions import keeping, lose, ready, resume


@pytest.mark.rule("EXC-1")
@pytest.mark.parametrize("arrived", range(4))
def test_publishes_that_are_sent_again_are_not_enqueued_again(arrived: int) -> None:
    """The connection is lost after some of three publishes have arrived, the next one cut in its middle. No answer
    has reached the client, which sends all again.
    """
    made = server()
    queue(made)
    client = keeping(made)
    frames = [octets(client, b"%d" % number, mode=0, delivery_mode=2) for number in range(3)]
    client.send_bytes(b"".join([*frames[:arrived], *(one[:50] for one in frames[arrived : arrived + 1])]), disk=False)
    lose(client)
    again = resume(made, sent=0)
    again.inbox.clear()
    again.send_bytes(b"".join(frames))
    completed = [
        each
        for one in again.inbox
        if isinstance(one.operation, SessionCompleted)
        for each in one.operation.commands or ()
    ]
    assert {number for first, last in completed for number in range(first, last + 1)} == {0, 1, 2}
    assert ready(made) == 3


def test_the_answers_to_publishes_are_sent_again() -> None:
    made = server()
    queue(made)
    client = keeping(made)
    client.send_bytes(octets(client, b"one", mode=0, delivery_mode=2), disk=False)
    assert client.idle()  # neither the acceptance nor the completion is on disk
    again = resume(lose(client), sent=1)
    assert again.expect(MessageAccept).transfers == ((0, 0),)
    assert again.idle()


def test_what_the_client_has_received_is_not_sent_again() -> None:
    made = server()
    queue(made)
    client = keeping(made)
    publish(client, b"one", mode=0)
    assert client.expect(MessageAccept).transfers == ((0, 0),)
    again = resume(lose(client), received=1, sent=1)
    assert again.idle()


def test_completed_answers_are_skipped() -> None:
    made = server()
    queue(made)
    client = keeping(made)
    publish(client, b"one", mode=0)
    client.control(SessionCompleted(((0, 0),)))
    again = resume(lose(client), sent=1)
    assert again.expect(SessionGap).commands == ((0, 0),)
    publish(again, b"two", mode=0)
    assert again.expect(MessageAccept).transfers == ((1, 1),)


@pytest.mark.rule("ORD-1")
@pytest.mark.parametrize("received", range(5))
def test_unsettled_deliveries_are_sent_again_from_where_the_client_wants(received: int) -> None:
    """Each has its number again and is not redelivered, on another channel with other frames."""
    made = server()
    queue(made)
    client = keeping(made)
    subscribe(client)
    publish(client, *[b"%d" % number for number in range(4)])
    lose(client)
    assert not ready(made)
    again = resume(made, received, channel=7, sent=client.sent[1])
    assert bodies(again) == [b"%d" % number for number in range(received, 4)]
    again.command(MessageAccept(((0, 3),)), channel=7)
    assert made.broker.directory.vhost("/").queue("q").ready == 0
    again.inbox.clear()
    publish(again, b"new", channel=7)
    again.inbox = type(again.inbox)(one for one in again.inbox if not isinstance(one.operation, SessionCompleted))
    assert bodies(again) == [b"new"]


def test_settled_deliveries_are_skipped() -> None:
    made = server()
    queue(made)
    client = keeping(made)
    subscribe(client)
    publish(client, b"0", b"1", b"2")
    client.command(MessageAccept(((1, 1),)))
    again = resume(lose(client), sent=client.sent[1])
    gaps = [one.operation.commands for one in again.inbox if isinstance(one.operation, SessionGap)]
    assert gaps == [((1, 1),)]
    again.inbox = type(again.inbox)(one for one in again.inbox if not isinstance(one.operation, SessionGap))
    assert bodies(again) == [b"0", b"2"]


def test_many_deliveries_are_sent_again_while_the_client_reads() -> None:
    made = server(outbox=10_000)
    queue(made)
    client = keeping(made)
    subscribe(client)
    for number in range(0, 500, 20):
        publish(client, *[b"%04d" % each * 25 for each in range(number, number + 20)])
    again = resume(lose(client), sent=client.sent[1])
    for _ in range(200):
        again.send_bytes(b"")
    assert bodies(again) == [b"%04d" % number * 25 for number in range(500)]


def test_credit_of_deliveries_that_are_lost_is_restored() -> None:
    made = server()
    queue(made)
    client = keeping(made)
    subscribe(client, accept_mode=1, credit=2)
    publish(client, b"0", b"1", b"2")
    again = resume(lose(client), sent=client.sent[1])
    assert again.expect(SessionGap).commands == ((0, 1),)
    assert bodies(again) == [b"2"]
