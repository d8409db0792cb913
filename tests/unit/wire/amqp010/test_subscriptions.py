"""Subscriptions: what they refuse, what they deliver, and how they end."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from escrowmq.core.queues.queue import Session
from escrowmq.core.topology.declaration import Declaration
from escrowmq.wire.amqp010.codec.spec import (
    DeliveryProperties,
    ErrorCode,
    MessageAccept,
    MessageCancel,
    MessageProperties,
    MessageStop,
    MessageSubscribe,
    QueueDeclare,
    SessionDetach,
    SessionDetached,
)
from escrowmq.wire.amqp010.subscriptions import SELECTOR, Subscriptions
from tests.unit.wire.amqp010.clients import Client, server
from tests.unit.wire.amqp010.messaging import bodies, delivered, flow, header, publish, queue, subscribe


def subscriptions(client: Client, channel: int = 1) -> Subscriptions:
    return client.port.endpoint.sessions[channel].part(Subscriptions)


def test_a_subscription_gets_what_is_there_and_what_comes() -> None:
    client = Client()
    queue(client.server)
    publish(client, b"1", b"2")
    client.completes(0, 1)
    subscribe(client)
    (first, second) = delivered(client)
    assert (first.body, second.body) == (b"1", b"2")
    assert (first.transfer.destination, first.transfer.accept_mode, first.transfer.acquire_mode) == ("d", 0, 0)
    assert first.delivery == DeliveryProperties(delivery_mode=1, exchange="", routing_key="q")
    publish(client, b"3")
    assert b"3" in [one.content.body for one in client.inbox if one.content is not None]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"queue": "none"}, ErrorCode.NOT_FOUND),
        ({"queue": None}, ErrorCode.NOT_FOUND),
        ({"destination": "taken"}, ErrorCode.NOT_ALLOWED),
        ({"resume_id": "r"}, ErrorCode.NOT_IMPLEMENTED),
        ({"accept_mode": 2}, ErrorCode.INVALID_ARGUMENT),
        ({"acquire_mode": 2}, ErrorCode.INVALID_ARGUMENT),
        ({"exclusive": True}, ErrorCode.RESOURCE_LOCKED),
        ({"queue": "mine"}, ErrorCode.RESOURCE_LOCKED),
        ({"queue": "locked"}, ErrorCode.RESOURCE_LOCKED),
        ({"arguments": {SELECTOR: "a ="}}, ErrorCode.INVALID_ARGUMENT),
        ({"arguments": {SELECTOR: 5}}, ErrorCode.INVALID_ARGUMENT),
        ({"arguments": {"x-priority": "high"}}, ErrorCode.PRECONDITION_FAILED),
    ],
)
def test_each_reason_for_a_refusal(fields: dict[str, Any], code: ErrorCode) -> None:
    client = Client()
    queue(client.server)
    vhost = client.server.broker.directory.vhost("/")
    client.server.broker.directory.declare_queue(vhost, "mine", Declaration(exclusive=True), Session("other"))
    queue(client.server, "locked")
    subscribe(client, to="taken")
    subscribe(client, "locked", to="exclusive", exclusive=True)
    chosen: dict[str, Any] = {"queue": "q", "destination": "d", "accept_mode": 0, "acquire_mode": 0} | fields
    client.refused(MessageSubscribe(**chosen), code)


@pytest.mark.rule("SEC-1")
def test_a_user_without_the_right_to_read_cannot_subscribe() -> None:
    client = Client()
    queue(client.server)
    client.server.broker.access.set_permission("guest", "/", "", ".*", "^$")
    client.refused(MessageSubscribe("q", "d", 0, 0), ErrorCode.UNAUTHORIZED_ACCESS)


@pytest.mark.rule("SEC-3")
def test_a_session_ends_when_its_user_may_no_longer_read_a_queue() -> None:
    client = Client()
    queue(client.server)
    subscribe(client)
    client.server.broker.access.set_permission("guest", "/", "", ".*", "^$")
    for _ in client.port.endpoint.permissions_changed():
        pass
    client.server.end_turn()
    client.collect()
    client.raised(ErrorCode.UNAUTHORIZED_ACCESS)


def test_the_deletion_of_a_queue_ends_the_sessions_of_its_subscriptions() -> None:
    client = Client()
    found = queue(client.server)
    subscribe(client)
    client.server.broker.directory.delete_queue(found)
    client.server.end_turn()
    client.collect()
    assert client.raised(ErrorCode.RESOURCE_DELETED).description == "queue 'q' was deleted"


def test_without_an_accept_mode_each_delivery_is_settled_at_once() -> None:
    client = Client()
    found = queue(client.server)
    publish(client, b"1")
    client.completes(0)
    subscribe(client, accept_mode=1)
    assert [one.transfer.accept_mode for one in delivered(client)] == [1]
    assert (found.ready, found.unsettled, subscriptions(client).unsettled.count) == (0, 0, 0)


def test_deliveries_of_a_cancelled_subscription_can_be_accepted() -> None:
    client = Client()
    found = queue(client.server)
    publish(client, b"1")
    client.completes(0)
    subscribe(client)
    assert bodies(client) == [b"1"]
    client.do(MessageCancel("d"))
    publish(client, b"2")
    client.inbox.clear()
    assert (found.ready, found.unsettled) == (1, 1)
    client.do(MessageAccept(((0, 0),)))
    assert (found.ready, found.unsettled) == (1, 0)
    client.refused(MessageCancel("d"), ErrorCode.NOT_FOUND)


@pytest.mark.rule("ORD-2")
@pytest.mark.parametrize("how", ["detach", "lost", "refused"])
def test_unsettled_deliveries_return_when_the_session_ends(how: str) -> None:
    client = Client()
    found = queue(client.server)
    publish(client, b"1", b"2")
    client.completes(0, 1)
    subscribe(client)
    assert bodies(client) == [b"1", b"2"]
    if how == "detach":
        client.control(SessionDetach(b"session 1"))
        client.expect(SessionDetached)
    elif how == "lost":
        client.server.lose(client.port)
        client.server.end_turn()
    else:
        client.refused(MessageStop("none"), ErrorCode.NOT_FOUND)
    assert (found.ready, found.unsettled, len(found.consumers)) == (2, 0, 0)
    assert not client.server.broker.engine.holders
    other = Client(client.server, attaches=False) if how == "lost" else client
    other.attach(2)
    subscribe(other, channel=2)
    assert [one.delivery.redelivered for one in delivered(other)] == [True, True]


@pytest.mark.rule("MSG-3")
def test_a_selector_chooses_by_properties_and_headers() -> None:
    client = Client()
    found = queue(client.server)
    for number in range(4):
        properties = MessageProperties(application_headers={"n": number})
        publish(client, b"%d" % number, header=header(properties, routing_key="q", delivery_mode=number % 2 + 1))
    client.inbox.clear()
    subscribe(client, arguments={SELECTOR: "n > 0 AND JMSDeliveryMode = 'PERSISTENT'"})
    assert bodies(client) == [b"1", b"3"]
    assert found.ready == 2


def test_an_exclusive_subscription_keeps_others_away_until_it_ends() -> None:
    client = Client()
    queue(client.server)
    subscribe(client, exclusive=True)
    other = Client(client.server, attaches=False)
    other.attach(1, b"other")
    other.refused(MessageSubscribe("q", "d", 0, 0), ErrorCode.RESOURCE_LOCKED)
    client.do(MessageCancel("d"))
    other.attach(2)
    subscribe(other, channel=2)


@pytest.mark.rule("FAIR-3")
def test_a_session_holds_a_limited_number_of_deliveries() -> None:
    client = Client(server(unsettled=2))
    found = queue(client.server)
    publish(client, b"1")
    publish(client, b"2")
    publish(client, b"3")
    client.inbox.clear()
    subscribe(client, credit=1)
    assert bodies(client) == [b"1"]
    flow(client, 1)
    flow(client, 1)
    assert bodies(client) == [b"2"]
    assert found.ready == 1
    client.command(MessageAccept(((0, 0),)))
    assert [one.content.body for one in client.inbox if one.content is not None] == [b"3"]


@pytest.mark.rule("FAIR-2")
def test_deliveries_count_for_the_user_until_they_are_settled() -> None:
    client = Client()
    queue(client.server)
    publish(client, *[bytes(10_000)] * 10)
    client.inbox.clear()
    subscribe(client)
    assert len(bodies(client)) == 10
    holdings = client.server.broker.holdings
    assert holdings.of_user("guest") > 100_000
    client.do(MessageAccept(((0, 9),)))
    assert holdings.of_user("guest") < 50_000


@pytest.mark.rule("FAIR-3")
def test_subscriptions_are_limited_by_the_memory_of_the_user() -> None:
    client = Client()
    queue(client.server)
    client.server.broker.holdings.user_limit = 40_000
    for number in range(16):
        client.command(MessageSubscribe("q", f"d{number}", 0, 0))
    client.inbox.clear()
    client.refused(MessageSubscribe("q", "more", 0, 0), ErrorCode.RESOURCE_LIMIT_EXCEEDED)


def test_a_session_that_holds_too_much_for_long_is_ended() -> None:
    client = Client()
    queue(client.server)
    publish(client, b"12345")
    client.inbox.clear()
    subscribe(client)
    part = subscriptions(client)
    assert part.owner[0] == "guest"
    assert part.held_bytes(part.next_tag) > part.held_bytes(0) == 0
    part.give_up("memory is short")
    client.server.end_turn()
    client.collect()
    client.inbox.popleft()
    client.raised(ErrorCode.RESOURCE_LIMIT_EXCEEDED)


def test_a_session_is_listed_with_its_subscriptions() -> None:
    client = Client()
    queue(client.server)
    publish(client, b"1")
    client.inbox.clear()
    subscribe(client)
    assert subscriptions(client).row() == {"consumers": 1, "unsettled": 1, "age_ms": 0}
    assert subscriptions(client).origin.channel == 1


def test_a_selector_knows_message_ids_as_qpid_jms_shows_them() -> None:
    client = Client()
    queue(client.server)
    ids = [UUID(int=number) for number in (1, 2)]
    for each in ids:
        publish(client, b"%d" % each.int, header=header(MessageProperties(message_id=each.bytes), routing_key="q"))
    client.inbox.clear()
    subscribe(client, arguments={SELECTOR: f"JMSMessageID = 'ID:{ids[1]}'"})
    assert bodies(client) == [b"2"]


def test_lists_have_the_age_of_the_oldest_unsettled_delivery() -> None:
    client = Client()
    queue(client.server)
    publish(client, b"1")
    client.inbox.clear()
    subscribe(client)
    assert bodies(client) == [b"1"]
    endpoint, engine = client.port.endpoint, client.server.broker.engine
    begin = engine.now
    endpoint.tick(begin, 0, 0)
    client.server.now += 5000
    client.server.end_turn()
    endpoint.tick(engine.now, 0, 0)
    (row,) = endpoint.channel_rows()
    assert row["age_ms"] == 5000
    client.do(MessageAccept(((0, 0),)))
    (row,) = endpoint.channel_rows()
    assert row["age_ms"] is None


@pytest.mark.rule("EXC-2")
@pytest.mark.parametrize("auto_delete", [True, False])
@pytest.mark.parametrize("acquire_mode", [0, 1])
def test_an_exclusive_queue_has_no_subscription_of_another_connection(auto_delete: bool, acquire_mode: int) -> None:
    client = Client()
    client.do(QueueDeclare("q", exclusive=True, auto_delete=auto_delete))
    client.do(MessageSubscribe("q", "d", 0, acquire_mode))
    other = Client(client.server, attaches=False)
    other.attach(1, b"other")
    other.refused(MessageSubscribe("q", "d", 0, acquire_mode), ErrorCode.RESOURCE_LOCKED)
