"""The connection as a whole: idle time-out, closing, alarms, loss."""

from __future__ import annotations

import gc
import weakref

import pytest

from escrowmq.wire.amqp10.codec.performatives import RECEIVER, Attach, Begin, Close, Detach, Flow, Open
from escrowmq.wire.amqp10.codec.states import Accepted
from escrowmq.wire.amqp10.codec.termini import Source, Target
from escrowmq.wire.amqp10.errors import CONNECTION_FORCED, LIMIT_EXCEEDED
from escrowmq.wire.amqp10.handshake import ConnectionState
from tests.unit.wire.amqp10.clients import Client, connected, server


def state(client: Client) -> ConnectionState:
    return client.port.endpoint.state


def test_a_close_is_answered() -> None:
    _, client = connected()
    client.send(0, Close())
    assert client.expect(Close).error is None
    assert client.port.closed


def test_a_close_follows_the_answers_of_its_turn() -> None:
    made, client = connected()
    client.sender("q")
    client.post(0, durable=True)
    assert client.outcome(0).state == Accepted()
    client.receiver("q", credit=1)
    assert len(client.deliveries()) == 1
    client.send(0, Close())
    client.expect(Close)
    assert made.broker.directory.vhost("/").queue("q").ready == 1


def test_an_operator_closes_with_connection_forced() -> None:
    made, client = connected()
    client.port.endpoint.shut("the server stops")
    made.end_turn()
    client.collect()
    client.closed(CONNECTION_FORCED)
    assert not made.faults


def test_a_connection_that_is_not_open_is_simply_closed() -> None:
    made = server()
    client = Client(made, opens=False)
    client.port.endpoint.shut("the server stops")
    made.end_turn()
    assert client.port.closed


def test_everything_but_close_is_ignored_after_a_close() -> None:
    made, client = connected()
    client.port.endpoint.shut("bye")
    made.end_turn()
    client.collect()
    client.expect(Close)
    client.send(1, Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    assert client.idle()
    client.send(0, Close())
    assert client.port.closed


def test_a_client_that_does_not_answer_a_close_is_dropped() -> None:
    _, client = connected()
    endpoint = client.port.endpoint
    endpoint.shut("bye")
    endpoint.tick(1000, 0, 0)
    endpoint.tick(5000, 0, 0)
    assert state(client) is ConnectionState.CLOSING
    endpoint.tick(6001, 0, 0)
    assert state(client) is ConnectionState.CLOSED


def test_empty_frames_are_sent_at_half_the_clients_time_out() -> None:
    made = server()
    client = Client(made, idle_time_out=10_000)
    client.port.endpoint.tick(0, 0, 4999)
    made.end_turn()
    client.collect()
    assert client.idle()
    client.port.endpoint.tick(0, 0, 5000)
    made.end_turn()
    client.collect()
    assert client.expect_message(type(None)).channel == 0


def test_a_silent_client_is_given_up_after_twice_the_announced_time() -> None:
    made, client = connected(heartbeat=10)
    client.port.endpoint.tick(0, 20_000, 0)
    assert client.port.endpoint.state is ConnectionState.RUNNING
    client.port.endpoint.tick(0, 20_001, 0)
    made.end_turn()
    client.collect()
    close = client.expect(Close)
    assert close.error is not None
    assert close.error.condition == LIMIT_EXCEEDED
    assert client.port.closed


def test_an_alarm_takes_credit_back_and_grants_it_again() -> None:
    made, client = connected(link_credit=10)
    client.sender("q")
    assert made.publishers == [client.port.endpoint]
    client.port.endpoint.block("memory")
    made.end_turn()
    client.collect()
    assert client.expect(Flow).link_credit == 0
    client.post(0)  # it was on its way
    assert client.outcome(0).state == Accepted()
    client.send(0, Attach("l", 1, not RECEIVER, source=Source(), target=Target("q"), initial_delivery_count=0))
    client.expect(Attach)
    assert client.idle()
    client.port.endpoint.block("")
    made.end_turn()
    client.collect()
    assert [(client.expect(Flow).link_credit) for _ in range(2)] == [10, 10]
    assert client.idle()


def test_consumers_continue_during_an_alarm() -> None:
    made, client = connected()
    client.sender("q")
    client.post(0)
    client.outcome(0)
    client.port.endpoint.block("memory")
    made.end_turn()
    client.collect()
    client.inbox.clear()
    client.receiver("q", credit=1)
    assert len(client.deliveries()) == 1


@pytest.mark.rule("SET-2")
def test_a_lost_connection_returns_its_deliveries() -> None:
    made, client = connected()
    client.sender("q")
    client.post(0, b"a", settled=True)
    client.receiver("q", credit=1)
    made.lose(client.port)
    made.end_turn()
    other = Client(made)
    other.receiver("q", credit=1)
    assert other.deliveries() == [(0, b"a")]
    assert made.broker.engine.channels == {"guest": 1}


def test_a_lost_connection_is_free_at_once() -> None:
    made, client = connected()
    client.sender("q")
    client.post(0, settled=True)
    client.receiver("q", credit=5)
    client.inbox.clear()
    client.receiver("q", 2, credit=5)
    client.send(0, Detach(handle=2, closed=False))
    client.expect(Detach)
    client.begin(1)
    client.sender(None, 0, channel=1, name="anonymous", target=Target())
    gone = weakref.ref(client.port.endpoint)
    gc.disable()
    try:
        made.lose(client.port)
        made.end_turn()
        made.users.clear()
        made.publishers.clear()
        del client
        assert gone() is None
    finally:
        gc.enable()


def test_a_connection_is_described() -> None:
    _, client = connected()
    client.sender("q")
    client.receiver("q", credit=3)
    described = client.port.endpoint.describe()
    assert described["protocol"] == "AMQP 1.0"
    assert (described["user"], described["vhost"], described["state"]) == ("guest", "/", "running")
    assert described["client"] == {"container": "c"}
    assert described["links"] == [
        {
            "channel": 0,
            "name": "s0",
            "role": "receiver",
            "state": "attached",
            "address": "q",
            "credit": 5000,
            "unsettled": 0,
        },
        {
            "channel": 0,
            "name": "r1",
            "role": "sender",
            "state": "attached",
            "address": "q",
            "credit": 3,
            "unsettled": 0,
        },
    ]


def test_a_client_that_reads_nothing_is_not_read() -> None:
    made, client = connected(outbox=1000)
    client.port.endpoint.congested(5000)
    client.send(0, *[Flow(incoming_window=1, next_outgoing_id=0, outgoing_window=1, echo=True)] * 2)
    assert len(client.inbox) == 1
    client.port.endpoint.congested(0)
    made.end_turn()
    client.collect()
    assert len(client.inbox) == 2


def test_the_limits_of_open_bind_the_client() -> None:
    client = Client(server(), begins=False, max_frame_size=600)
    assert client.port.endpoint.frame_max == 600
    assert isinstance(Open("c"), Open)
