"""The connection as a whole: idle time-out, closing, alarms, loss."""

from __future__ import annotations

import gc
import weakref

import pytest

from escrowmq.core.budget import TURN
from escrowmq.core.leftover import LeftOver
from escrowmq.wire.amqp10.codec.frames import frame
from escrowmq.wire.amqp10.codec.performatives import (
    RECEIVER,
    SECOND,
    Attach,
    Begin,
    Close,
    Detach,
    End,
    Flow,
    Open,
    encode_performative,
)
from escrowmq.wire.amqp10.codec.states import Accepted
from escrowmq.wire.amqp10.codec.termini import Source, Target
from escrowmq.wire.amqp10.errors import CONNECTION_FORCED, LIMIT_EXCEEDED
from escrowmq.wire.amqp10.handshake import ConnectionState
from tests.unit.wire.amqp10.clients import Client, Server, connected, server


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


@pytest.mark.rule("FAIR-1")
def test_the_credit_of_many_links_is_taken_back_and_granted_in_pieces() -> None:
    made, client = connected(link_credit=10)
    for handle in range(40):
        client.sender("q", handle)
    requests, endpoint = made.broker.engine.requests, client.port.endpoint
    requests.turn = 40
    for reason, credit in (("memory", 0), ("", 10)):
        requests.left = 0
        endpoint.block(reason)
        handles: list[int] = []
        turns = 0
        while len(handles) < 40:
            made.end_one_turn()
            client.collect()
            flows = [each.performative for each in client.inbox]
            assert len(flows) <= 6
            assert {flow.link_credit for flow in flows} <= {credit}
            handles += [flow.handle for flow in flows]
            client.inbox.clear()
            turns += 1
        assert sorted(handles) == list(range(40))
        assert turns > 6


@pytest.mark.rule("FAIR-1")
def test_an_alarm_that_ends_before_all_credit_was_taken_back_grants_it_again() -> None:
    made, client = connected(link_credit=10)
    for handle in range(40):
        client.sender("q", handle)
    requests, endpoint = made.broker.engine.requests, client.port.endpoint
    requests.turn, requests.left = 40, 0
    endpoint.block("memory")
    made.end_one_turn()
    endpoint.block("")
    while made.broker.engine.left_over:
        made.end_one_turn()
    made.end_turn()
    client.collect()
    granted = {each.performative.handle: each.performative.link_credit for each in client.inbox}
    assert set(granted.values()) == {10}
    assert 0 < len(granted) < 40


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


LINKS = 40


def with_links() -> tuple[Server, Client]:
    """Return a client with many links, each with a terminus that ends with its session. A turn does little work."""
    made, client = connected()
    for handle in range(0, LINKS, 2):
        client.sender("q", handle, rcv_settle_mode=SECOND)
        client.receiver("q", handle + 1, credit=5)
    client.post(0, b"a", settled=True)
    made.end_turn()
    client.collect()
    client.inbox.clear()
    assert len(made.broker.termini.by_key) == LINKS
    made.broker.engine.requests.turn = 40
    made.broker.engine.requests.left = 0
    return made, client


def receive(made: Server, client: Client, performative: Close | Detach | End) -> None:
    """Let the server receive a frame in the present turn, which is not ended."""
    made.receive(client.port, frame(0, encode_performative(performative)))


def release_all(made: Server) -> int:
    """End turns until nothing is left. Return their number. No turn may release many links."""
    broker, turns = made.broker, 0
    attached = len(broker.termini.by_key) + len(broker.directory.vhost("/").queue("q").consumers)
    while broker.engine.left_over:
        made.end_one_turn()
        turns += 1
        left = len(broker.termini.by_key) + len(broker.directory.vhost("/").queue("q").consumers)
        assert attached - left <= 12
        attached = left
    return turns


@pytest.mark.rule("FAIR-1")
def test_the_links_of_a_lost_connection_are_released_in_pieces() -> None:
    made, client = with_links()
    made.lose(client.port)
    assert len(made.broker.termini.by_key) > LINKS - 12
    assert release_all(made) > 5
    assert not made.broker.termini.by_key
    assert made.broker.directory.vhost("/").queue("q").producers == 0
    assert not made.broker.engine.channels


@pytest.mark.rule("FAIR-2")
def test_a_connection_that_was_released_in_pieces_is_free_without_a_collector() -> None:
    made, client = with_links()
    gone = weakref.ref(client.port.endpoint)
    gc.disable()
    try:
        made.lose(client.port)
        release_all(made)
        made.end_turn()
        made.users.clear()
        made.publishers.clear()
        del client
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.rule("FAIR-1")
def test_the_links_of_an_ended_session_are_released_in_pieces() -> None:
    made, client = with_links()
    receive(made, client, End())
    assert client.idle()
    other = Client(made, container="other")
    other.sender("q")
    other.post(0, b"b", settled=True)
    assert client.idle(), "nothing is delivered to a session that ends"
    made.broker.engine.requests.turn = 40
    assert release_all(made) > 3
    client.collect()
    assert [type(each.performative) for each in client.inbox] == [End]
    assert made.broker.directory.vhost("/").queue("q").ready == 2
    client.inbox.clear()
    client.begin(0)


@pytest.mark.rule("FAIR-1")
def test_a_session_that_fails_is_released_in_pieces() -> None:
    made, client = with_links()
    receive(made, client, Detach(handle=LINKS + 1, closed=True))
    assert len(made.broker.termini.by_key) > LINKS - 12
    assert release_all(made) > 3
    client.collect()
    assert client.expect(End).error is not None
    assert client.idle()
    client.send(0, End())
    client.begin(0)


@pytest.mark.rule("FAIR-1")
def test_a_close_is_answered_when_everything_is_released() -> None:
    made, client = with_links()
    receive(made, client, Close())
    made.end_one_turn()
    client.collect()
    assert not client.inbox
    release_all(made)
    client.collect()
    assert [type(each.performative) for each in client.inbox] == [Close]
    assert client.port.closed
    assert not made.broker.termini.by_key


@pytest.mark.rule("SET-12")
def test_a_link_can_be_attached_elsewhere_before_its_lost_connection_is_released() -> None:
    made, client = with_links()
    made.lose(client.port)
    made.broker.engine.requests.turn = TURN
    made.broker.engine.left_over, left = LeftOver(), made.broker.engine.left_over
    again = Client(made)  # the same container
    for handle in range(0, LINKS, 2):
        again.sender("q", handle, rcv_settle_mode=SECOND)
    again.receiver("q", 1, credit=5)
    made.broker.engine.left_over = left
    made.end_turn()
    while made.broker.engine.left_over:
        made.end_turn()
    assert not made.faults
    assert len(made.broker.termini.by_key) == LINKS // 2 + 1
    again.inbox.clear()
    again.post(0, b"b", handle=2)
    assert Accepted() in [getattr(each.performative, "state", None) for each in again.inbox]


def test_a_queue_can_be_deleted_before_its_lost_consumers_are_released() -> None:
    made, client = with_links()
    made.lose(client.port)
    made.broker.directory.delete_queue(made.broker.directory.vhost("/").queue("q"))
    made.end_turn()
    while made.broker.engine.left_over:
        made.end_turn()
    assert not made.broker.termini.by_key
    assert not made.faults


def test_termini_can_be_ended_before_their_lost_links_are_released() -> None:
    made, client = with_links()
    made.lose(client.port)
    made.broker.termini.end_of_user("guest")
    made.end_turn()
    while made.broker.engine.left_over:
        made.end_turn()
    assert not made.broker.termini.by_key
    assert not made.faults
    assert made.broker.directory.vhost("/").queue("q").ready == 1


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
