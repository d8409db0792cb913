"""Subscriptions that outlive their links, or that several links share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from escrowmq.core.conditions import BrokerError
from escrowmq.core.queues.queue import Queue
from escrowmq.core.topology.declaration import Declaration
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp10.codec.performatives import RECEIVER, SETTLED_MODE, Attach, Detach, Transfer
from escrowmq.wire.amqp10.codec.sections import (
    APPLICATION_PROPERTIES,
    MESSAGE_ANNOTATIONS,
    Header,
    encode_header,
    encode_section,
)
from escrowmq.wire.amqp10.codec.states import Accepted
from escrowmq.wire.amqp10.codec.termini import Source, Target
from escrowmq.wire.amqp10.codec.types import Described, Symbol
from escrowmq.wire.amqp10.errors import INVALID_FIELD, NOT_FOUND, RESOURCE_LOCKED
from escrowmq.wire.amqp10.filters import FILTER
from tests.harness.client import SimClient
from tests.unit.wire.amqp10.clients import Client, Server, message, server


def topic(*capabilities: str, durable: bool = True, address: str = "news") -> Source:
    return Source(
        address,
        durable=2 if durable else 0,
        expiry_policy=Symbol("never" if durable else "link-detach"),
        distribution_mode=Symbol("copy"),
        capabilities=tuple(map(Symbol, ("topic", *capabilities))),
    )


def subscribed(client: Client, name: str, source: Source, handle: int = 1, credit: int = 10) -> None:
    client.receiver(None, handle, name=name, source=source, credit=credit)


def leave(client: Client, handle: int = 1, *, closed: bool = False) -> None:
    client.send(0, Detach(handle=handle, closed=closed))
    client.expect(Detach)


def publish(client: Client, *contents: bytes, address: str = "news") -> None:
    client.sender(None, 5, target=Target(address, capabilities=(Symbol("topic"),)))
    for number, content in enumerate(contents):
        client.post(number, content, handle=5, settled=True, durable=True)
    leave(client, 5, closed=True)


def queues(made: Server) -> dict[str, Queue]:
    return made.broker.directory.vhost("/").queues


@pytest.fixture
def client() -> Client:
    return Client(server())


def test_a_durable_subscription_keeps_messages_while_no_link_is_attached(client: Client) -> None:
    subscribed(client, "sub", topic())
    leave(client)
    publish(client, b"a", b"b")
    assert queues(client.server)["subscription:c:sub"].durable
    again = Client(client.server)
    subscribed(again, "sub", topic())
    assert [content for _, content in again.deliveries()] == [b"a", b"b"]


def test_each_container_has_its_own(client: Client) -> None:
    subscribed(client, "sub", topic())
    subscribed(Client(client.server, container="d"), "sub", topic())
    assert set(queues(client.server)) == {"subscription:c:sub", "subscription:d:sub"}


def no_local(source: Source) -> Source:
    value = Described(Symbol("apache.org:no-local-filter:list"), [])
    return replace(source, filter={Symbol("no-local"): value})


@pytest.mark.parametrize("durable", [False, True])
def test_a_subscriber_can_exclude_the_messages_of_its_own_container(client: Client, durable: bool) -> None:
    asked = no_local(topic(durable=durable))
    answer = client.receiver(None, name="sub", source=asked, credit=10)
    assert answer.source is not None
    assert answer.source.filter == asked.filter
    subscribed(client, "all", topic(durable=durable), 2)
    publish(Client(client.server, container="other"), b"theirs")
    client.collect()
    assert [content for _, content in client.deliveries()] == [b"theirs"] * 2
    publish(Client(client.server), b"mine")
    client.collect()
    assert [content for _, content in client.deliveries()] == [b"mine"]


def test_messages_of_the_own_container_are_accepted_although_nobody_else_subscribes(client: Client) -> None:
    subscribed(client, "sub", no_local(topic()))
    client.sender(None, 5, target=Target("news", capabilities=(Symbol("topic"),)))
    client.post(0, handle=5)
    assert client.outcome(0).state == Accepted()


def test_a_durable_subscription_excludes_them_also_while_its_link_is_away(client: Client) -> None:
    subscribed(client, "sub", no_local(topic()))
    leave(client)
    publish(Client(client.server), b"mine")
    publish(Client(client.server, container="other"), b"theirs")
    subscribed(client, "sub", no_local(topic()))
    client.collect()
    assert [content for _, content in client.deliveries()] == [b"theirs"]


@pytest.mark.rule("DLY-2")
@pytest.mark.parametrize("selects", [False, True])
def test_a_subscriber_does_not_get_its_own_delayed_messages(client: Client, selects: bool) -> None:
    source = no_local(topic())
    if selects:
        selector = Described(Symbol("apache.org:selector-filter:string"), "1 = 1")
        source = replace(source, filter={**(source.filter or {}), Symbol("jms-selector"): selector})
    subscribed(client, "sub", source)
    subscribed(client, "all", topic(), 2)
    delayed = encode_section(MESSAGE_ANNOTATIONS, {Symbol("x-opt-delivery-delay"): 1000})
    for container in ("c", "other"):
        publisher = Client(client.server, container=container)
        publisher.sender(None, 0, target=Target("news", capabilities=(Symbol("topic"),)))
        transfer = Transfer(0, 0, b"t", 0, True)
        publisher.send(0, transfer, payload=delayed + message(container.encode()))
    client.server.now += 1000
    client.server.end_turn()
    client.server.run_disk()
    client.server.end_turn()
    client.collect()
    assert sorted(content for _, content in client.deliveries()) == [b"c", b"other", b"other"]


def test_a_durable_subscription_begins_anew_with_other_filters(client: Client) -> None:
    subscribed(client, "sub", no_local(topic()))
    leave(client)
    publish(Client(client.server, container="other"), b"old")
    subscribed(client, "sub", topic())
    publish(Client(client.server), b"mine")
    client.collect()
    assert [content for _, content in client.deliveries()] == [b"mine"]


def test_other_filters_are_refused_while_a_subscription_is_in_use(client: Client) -> None:
    shared = topic("shared")
    subscribed(client, "sub", shared)
    request = Attach("sub|2", 2, RECEIVER, source=no_local(shared), target=Target())
    client.refused(request, RESOURCE_LOCKED)


def test_routes_by_headers_exclude_own_messages_too(client: Client) -> None:
    directory, vhost = client.server.broker.directory, client.server.broker.directory.vhost("/")
    directory.declare_exchange(vhost, "h", "headers")
    subscribed(client, "sub", no_local(topic(address="h")))
    directory.bind_queue(vhost, "h", "subscription:c:sub", "", {"x-match": "all"})
    publish(Client(client.server), b"mine", address="h")
    publish(Client(client.server, container="other"), b"theirs", address="h")
    client.collect()
    assert {content for _, content in client.deliveries()} == {b"theirs"}


def selecting(source: Source, expression: str) -> Source:
    value = Described(Symbol("apache.org:selector-filter:string"), expression)
    return replace(source, filter={Symbol("jms-selector"): value})


def publish_numbers(made: Server, count: int) -> Client:
    """Publish messages with their number as content, and as the application property `n`."""
    other = Client(made, container="publisher")
    other.sender(None, 5, target=Target("news", capabilities=(Symbol("topic"),)))
    for n in range(count):
        payload = encode_section(APPLICATION_PROPERTIES, {"n": n}) + b"\x00\x53\x75\xa0\x01%d" % n
        payload = encode_header(Header(durable=True)) + payload
        other.send(0, Transfer(5, n, b"%d" % n, 0, settled=False), payload=payload)
    return other


@pytest.mark.parametrize("durable", [False, True])
def test_messages_that_a_subscriber_does_not_select_are_not_kept(client: Client, durable: bool) -> None:
    asked = selecting(topic(durable=durable), "n > 2")
    answer = client.receiver(None, name="sub", source=asked, credit=1)
    assert answer.source is not None
    assert answer.source.filter == asked.filter
    other = publish_numbers(client.server, 5)
    assert [other.outcome(n).state for n in range(5)] == [Accepted()] * 5
    (queue,) = queues(client.server).values()
    assert queue.next_position == 3
    client.collect()
    assert [content for _, content in client.deliveries()] == [b"3"]


def test_a_durable_subscription_selects_also_while_its_link_is_away_and_after_a_restart() -> None:
    made = server()
    client = Client(made)
    subscribed(client, "sub", selecting(topic(), "n > 2"))
    leave(client)
    made.storage.crash()
    again = server(storage=made.storage)
    publish_numbers(again, 5)
    client = Client(again)
    subscribed(client, "sub", selecting(topic(), "n > 2"))
    assert [content for _, content in client.deliveries()] == [b"3", b"4"]


def test_a_durable_subscription_with_another_selector_begins_anew(client: Client) -> None:
    subscribed(client, "sub", selecting(topic(), "n > 2"))
    leave(client)
    publish_numbers(client.server, 5)
    subscribed(client, "sub", selecting(topic(), "n < 2"))
    publish_numbers(client.server, 5)
    client.collect()
    assert [content for _, content in client.deliveries()] == [b"0", b"1"]


def test_publishers_of_other_protocols_are_selected_from_too(client: Client) -> None:
    subscribed(client, "sub", selecting(topic(), "n > 2"))
    other = SimClient(client.server)
    other.open_channel(1)
    for n in (2, 3):
        other.publish(1, "", b"%d" % n, exchange="news", header=Properties(headers={"n": n}).encode())
    client.collect()
    assert [content for _, content in client.deliveries()] == [b"3"]


@pytest.mark.parametrize("value", [b"", b"\x40", b"\xc1\x01", 5])
def test_an_invalid_filter_of_a_queue_is_refused(client: Client, value: object) -> None:
    directory = client.server.broker.directory
    with pytest.raises(BrokerError, match="x-escrowmq-filter"):
        directory.declare_queue(
            directory.vhost("/"), "x", Declaration(arguments={FILTER: value}), client.port.endpoint.owner
        )


def test_a_malformed_selector_leaves_no_queue(client: Client) -> None:
    request = Attach("sub", 2, RECEIVER, source=selecting(topic(), "n >"), target=Target())
    client.refused(request, INVALID_FIELD)
    assert not queues(client.server)


def test_closing_the_link_ends_the_subscription(client: Client) -> None:
    subscribed(client, "sub", topic())
    leave(client, closed=True)
    assert not queues(client.server)


def test_a_subscription_to_another_topic_replaces_it(client: Client) -> None:
    subscribed(client, "sub", topic())
    leave(client)
    publish(client, b"old")
    subscribed(client, "sub", topic(address="weather"))
    other = Client(client.server, container="p")
    publish(other, b"old", address="news")
    publish(other, b"new", address="weather")
    client.collect()
    assert [content for _, content in client.deliveries()] == [b"new"]


def test_a_client_ends_a_subscription_without_its_source(client: Client) -> None:
    subscribed(client, "sub", topic())
    leave(client)
    client.send(0, Attach("sub", 1, RECEIVER, SETTLED_MODE, source=None, target=Target()))
    source = client.expect(Attach).source
    assert source is not None
    assert source.address == "news"
    leave(client, closed=True)
    assert not queues(client.server)
    client.refused(Attach("sub", 1, RECEIVER, SETTLED_MODE, source=None, target=Target()), NOT_FOUND)


@pytest.mark.parametrize("durable", [True, False])
def test_links_share_a_subscription(client: Client, durable: bool) -> None:
    other = Client(client.server, container="other")
    subscribed(client, "s|global", topic("shared", "global", durable=durable), credit=2)
    subscribed(other, "s|global2", topic("shared", "global", durable=durable), credit=2)
    assert len(queues(client.server)) == 1
    publish(Client(client.server, container="p"), b"1", b"2", b"3", b"4")
    client.collect()
    other.collect()
    got = [content for each in (client, other) for _, content in each.deliveries()]
    assert sorted(got) == [b"1", b"2", b"3", b"4"]
    leave(client)
    leave(other)
    assert bool(queues(client.server)) == durable


def test_a_shared_subscription_is_ended_by_any_container_when_no_link_uses_it(client: Client) -> None:
    subscribed(client, "s|global", topic("shared", "global"))
    request = Attach("s|global", 2, RECEIVER, SETTLED_MODE, source=None, target=Target())
    other = Client(client.server, container="other")
    other.refused(request, RESOURCE_LOCKED)
    leave(client)
    other.send(0, request)
    source = other.expect(Attach).source
    assert source is not None
    assert source.address == "/exchanges/news"
    leave(other, 2, closed=True)
    assert not queues(client.server)


def test_a_link_that_fails_does_not_end_the_subscription(client: Client) -> None:
    subscribed(client, "sub", topic())
    subscribed(Client(client.server), "sub", topic())  # it steals the link
    client.collect()
    assert client.expect(Detach).closed
    assert list(queues(client.server)) == ["subscription:c:sub"]


def test_a_name_may_not_be_too_long(client: Client) -> None:
    name = "x" * 250
    client.refused(
        Attach(name, 1, RECEIVER, SETTLED_MODE, source=topic(), target=Target(), initial_delivery_count=None),
        INVALID_FIELD,
    )


def test_a_temporary_topic_lives_as_long_as_its_link_or_its_connection(client: Client) -> None:
    target = Target(dynamic=True, capabilities=(Symbol("temporary-topic"),))
    exchanges = client.server.broker.directory.vhost("/").exchanges
    before = set(exchanges)
    granted = client.sender(None, 3, target=target).target
    assert isinstance(granted, Target)
    subscribed(client, "r", Source(granted.address, capabilities=(Symbol("temporary-topic"),)))
    client.post(0, b"x", handle=3, settled=True)
    assert [content for _, content in client.deliveries()] == [b"x"]
    client.send(0, Detach(handle=3, closed=True))
    assert set(exchanges) == before
    other = Client(client.server, container="other")
    other.sender(None, 3, target=target)
    assert set(exchanges) != before
    client.server.lose(other.port)
    assert set(exchanges) == before
