"""Publishing: routes, answers, transactions, and messages without a queue."""

from __future__ import annotations

import pytest

from escrowmq.core.branches.branch import Limits
from escrowmq.core.branches.watch import Watch
from escrowmq.wire.amqp010.codec.spec import (
    ErrorCode,
    MessageAccept,
    MessageProperties,
    MessageReject,
    QueueDeclare,
    RejectCode,
    SessionCompleted,
)
from tests.unit.wire.amqp010.clients import Client
from tests.unit.wire.amqp010.messaging import bodies, header, octets, publish, queue, subscribe


def exchange(client: Client, name: str, kind: str, **arguments: object) -> None:
    directory = client.server.broker.directory
    directory.declare_exchange(directory.vhost("/"), name, kind, durable=True, arguments=arguments)


def bind(client: Client, source: str, destination: str, key: str = "", **arguments: object) -> None:
    directory = client.server.broker.directory
    directory.bind_queue(directory.vhost("/"), source, destination, key, arguments)


@pytest.mark.rule("DUR-1")
def test_a_durable_publish_is_complete_when_it_is_on_disk() -> None:
    client = Client()
    queue(client.server)
    client.send_bytes(octets(client, b"1", delivery_mode=2), disk=False)
    assert client.idle()
    client.server.run_disk()
    client.server.end_turn()
    client.collect()
    client.completes(0)


@pytest.mark.rule("ORD-1")
def test_messages_keep_their_order_over_several_forms() -> None:
    client = Client()
    queue(client.server)
    data = b"".join(octets(client, b"%d" % n, delivery_mode=n % 3 % 2 + 1) for n in range(30))
    client.send_bytes(data)
    client.completes(0, 29)
    subscribe(client)
    assert bodies(client) == [b"%d" % n for n in range(30)]


def test_with_explicit_acceptance_the_broker_accepts_after_the_sync() -> None:
    client = Client()
    queue(client.server)
    client.send_bytes(b"".join(octets(client, b"x", mode=0, delivery_mode=2) for _ in range(5)), disk=False)
    assert client.idle()
    client.server.run_disk()
    client.server.end_turn()
    client.collect()
    assert client.expect(MessageAccept).transfers == ((0, 4),)
    client.completes(0, 4)


@pytest.mark.parametrize(
    ("mode", "discard", "rejected"),
    [(0, False, True), (0, True, False), (1, False, False), (1, True, False), (None, False, False)],
)
def test_unroutable_messages(mode: int | None, discard: bool, rejected: bool) -> None:
    client = Client()
    publish(client, b"1", b"2", key="none", mode=mode, discard_unroutable=discard)
    traffic = client.server.broker.engine.counters.traffic_of("/", "amqp010")
    if rejected:
        found = client.expect(MessageReject)
        assert (found.transfers, found.code) == (((0, 1),), RejectCode.UNROUTABLE)
    elif mode == 0:
        client.expect(MessageAccept)
    client.completes(0, 1)
    assert (traffic.returned, traffic.dropped) == ((2, 0) if rejected else (0, 2))


@pytest.mark.parametrize("mode", [0, 1])
def test_an_alternate_exchange_takes_what_would_be_unroutable(mode: int) -> None:
    client = Client()
    found = queue(client.server)
    exchange(client, "other", "fanout")
    bind(client, "other", "q")
    exchange(client, "main", "direct", **{"alternate-exchange": "other"})
    publish(client, b"1", key="none", to="main", mode=mode)
    assert found.ready == 1


@pytest.mark.parametrize("mode", [0, 1])
def test_an_immediate_message_needs_a_consumer_with_credit(mode: int) -> None:
    client = Client()
    found = queue(client.server)
    publish(client, b"1", mode=mode, immediate=True)
    if mode == 0:
        assert client.expect(MessageReject).code == RejectCode.IMMEDIATE
    client.completes(0)
    subscribe(client, credit=1)
    publish(client, b"2", mode=mode, immediate=True)
    assert [one.content.body for one in client.inbox if one.content is not None] == [b"2"]
    client.inbox.clear()
    publish(client, b"3", mode=mode, immediate=True)
    assert found.ready == 0


def test_an_unknown_exchange_ends_the_session() -> None:
    client = Client()
    client.send_bytes(octets(client, b"1", to="none"))
    client.raised(ErrorCode.NOT_FOUND)


@pytest.mark.rule("SEC-1")
def test_a_user_without_the_right_to_write_cannot_publish() -> None:
    client = Client()
    queue(client.server)
    publish(client, b"1")
    client.completes(0)
    client.server.broker.access.set_permission("guest", "/", ".*", "^$", ".*")
    client.send_bytes(octets(client, b"2"))
    client.raised(ErrorCode.UNAUTHORIZED_ACCESS)


@pytest.mark.rule("MSG-3")
def test_headers_exchanges_route_each_message() -> None:
    client = Client()
    found = queue(client.server)
    bind(client, "amq.headers", "q", n=1)
    data = b""
    for number in range(4):
        properties = MessageProperties(application_headers={"n": number % 2})
        data += octets(client, b"%d" % number, to="amq.headers", mode=0, header=header(properties))
    client.send_bytes(data)
    answers = [one.operation for one in client.inbox]
    assert {type(one) for one in answers} == {MessageAccept, MessageReject, SessionCompleted}
    client.inbox.clear()
    subscribe(client)
    assert bodies(client) == [b"1", b"3"]
    assert found.ready == 0


def test_a_queue_at_its_limit_refuses_messages() -> None:
    client = Client()
    queue(client.server, max_length=2, overflow="reject-publish")
    client.send_bytes(b"".join(octets(client, b"%d" % n, mode=0) for n in range(4)))
    assert client.expect(MessageReject).transfers == ((2, 2),)
    assert client.expect(MessageReject).transfers == ((3, 3),)
    assert client.expect(MessageAccept).transfers == ((0, 1),)
    client.completes(0, 3)
    client.send_bytes(octets(client, b"more"))
    client.raised(ErrorCode.RESOURCE_LIMIT_EXCEEDED)


@pytest.mark.rule("TX-2")
def test_publishes_in_a_transaction_are_invisible_until_it_is_committed() -> None:
    client = Client()
    found = queue(client.server)
    broker = client.server.broker
    session = client.port.endpoint.sessions[1]
    session.branch = broker.transactions.begin(Limits(), Watch(broker.engine.deadlines, 0, lambda: None))
    publish(client, b"1", b"2")
    client.completes(0, 1)
    assert found.ready == 0
    broker.transactions.commit(session.branch)
    client.server.end_turn()
    client.server.run_disk()
    client.server.end_turn()
    assert found.ready == 2


@pytest.mark.rule("FAIR-1")
def test_a_message_for_very_many_queues_is_complete_when_all_have_it() -> None:
    client = Client()
    exchange(client, "all", "fanout")
    for number in range(1500):
        queue(client.server, f"q{number}", durable=False)
        bind(client, "all", f"q{number}")
    client.server.receive(client.port, octets(client, b"1", to="all", mode=0))
    client.server.end_one_turn()
    client.collect()
    assert client.idle()
    client.server.end_turn()
    client.collect()
    assert client.expect(MessageAccept).transfers == ((0, 0),)
    client.completes(0)


@pytest.mark.parametrize("follows", ["nothing", "a command", "another message"])
def test_the_exception_names_the_message_that_was_refused(follows: str) -> None:
    client = Client()
    queue(client.server, max_length=1, overflow="reject-publish")
    publish(client, b"fills")
    client.completes(0)
    data = octets(client, b"too many")
    if follows == "a command":
        data += client.octets(QueueDeclare("another"))
    elif follows == "another message":
        data += octets(client, b"other", key="other")
    client.send_bytes(data)
    raised = client.raised(ErrorCode.RESOURCE_LIMIT_EXCEEDED, 1)
    assert (raised.class_code, raised.command_code) == (4, 1)
    assert client.idle()
    assert "another" not in client.server.broker.directory.vhost("/").queues
