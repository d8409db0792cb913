"""Messages of AMQP 0-10 reach consumers of each other protocol, and the reverse, also as dead letters."""

from __future__ import annotations

import random

import pytest

from escrowmq.columnar.message import row
from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.amqp010.codec.spec import (
    DeliveryProperties,
    MessageAccept,
    MessageProperties,
    MessageReject,
    ReplyTo,
)
from escrowmq.wire.amqp010.codec.types import Datetime, Uuid
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp10.codec import sections
from escrowmq.wire.amqp10.codec.types import Symbol
from escrowmq.wire.formats import translated
from escrowmq.wire.rocketmq.content import PROTOCOL as ROCKETMQ
from escrowmq.wire.rocketmq.content import MessageContent, envelope_of, unpack
from escrowmq.wire.rocketmq.properties import parse
from tests.harness.client import SimClient
from tests.unit.wire.amqp010.clients import Client, SharingServer, server
from tests.unit.wire.amqp010.messaging import Delivered, delivered, header, publish, queue, subscribe
from tests.unit.wire.amqp10.clients import Client as Client10

UUID = bytes(range(16))
URN = "urn:uuid:00010203-0405-0607-0809-0a0b0c0d0e0f"
OWN = MessageProperties(
    content_length=4,
    message_id=UUID,
    correlation_id=b"c",
    reply_to=ReplyTo("", "answers"),
    content_type="text/plain",
    content_encoding="utf-8",
    user_id=b"guest",
    app_id=b"app",
    application_headers={"a": 1, "b": "c", "when": Datetime(3), "x-odd": Uuid(UUID), "m": {"k": [1, "2"]}},
)
HEADER = header(OWN, routing_key="q", delivery_mode=2, priority=7, timestamp=5)


def old(made: SharingServer) -> SimClient:
    client = SimClient(made)
    client.open_channel(1)
    return client


def received(made: SharingServer, name: str = "q") -> list[Delivered]:
    """Everything in a queue, as a client of AMQP 0-10 gets it."""
    client = Client(made, attaches=False)
    client.attach(1, b"reader of " + name.encode())
    subscribe(client, name)
    found = delivered(client)
    client.do(MessageAccept(((0, 1000),)))
    return found


@pytest.mark.rule("MSG-1")
def test_a_message_of_amqp_010_reaches_a_consumer_of_amqp_091() -> None:
    client = Client()
    queue(client.server)
    publish(client, b"body", header=HEADER)
    message = old(client.server).get(1, "q", no_ack=True)
    assert message is not None
    found = Properties.decode(message.header)
    assert (message.body, found.message_id, found.correlation_id, found.reply_to) == (b"body", URN, "c", "answers")
    assert (found.content_type, found.content_encoding, found.user_id) == ("text/plain", "utf-8", "guest")
    assert (found.app_id, found.timestamp, found.delivery_mode, found.priority) == ("app", 5, 2, 7)
    assert found.headers == {"a": 1, "b": "c", "when": 3, "x-odd": URN, "m": {"k": [1, "2"]}}


@pytest.mark.rule("MSG-1")
def test_a_message_of_amqp_010_reaches_a_consumer_of_amqp_10() -> None:
    client = Client()
    queue(client.server)
    publish(client, b"body", header=HEADER)
    new = Client10(client.server)
    new.receiver("q", credit=10, settled=True)
    ((_, content),) = new.deliveries()
    assert content == b"body"


@pytest.mark.rule("MSG-1")
def test_all_properties_of_amqp_010_are_in_the_sections_of_amqp_10() -> None:
    client = Client()
    found = queue(client.server)
    publish(client, b"body", header=HEADER)
    (entry,) = found.order.take(1)
    _, content = translated(entry.run.envelope, entry.content, 100)
    properties = sections.properties(content)
    assert (properties.message_id, properties.correlation_id, properties.reply_to) == (UUID, "c", "/queues/answers")
    assert (properties.content_type, properties.content_encoding) == ("text/plain", "utf-8")
    assert (properties.user_id, properties.group_id, properties.creation_time) == (b"guest", "app", 5000)
    assert properties.subject == "q"
    assert sections.application_properties(content) == {"a": 1, "b": "c", "when": 3000}
    assert sections.message_annotations(content)[Symbol("x-odd")] == UUID
    assert sections.body(content) == sections.Data([b"body"])


@pytest.mark.rule("MSG-1")
def test_a_message_of_amqp_010_reaches_a_consumer_of_rocketmq() -> None:
    client = Client()
    found = queue(client.server)
    publish(client, b"body", header=HEADER)
    (entry,) = found.order.take(1)
    content = unpack(translated(entry.run.envelope, entry.content, ROCKETMQ)[1])
    assert (content.body, content.born_ms) == (b"body", 5000)
    properties = parse(content.properties)
    assert properties["UNIQ_KEY"] == URN.removeprefix("urn:uuid:")
    assert (properties["CORRELATION_ID"], properties["__SHARDINGKEY"], properties["TAGS"]) == ("c", "app", "q")
    assert (properties["a"], properties["b"]) == ("1", "c")


@pytest.mark.rule("MSG-1")
def test_a_message_of_amqp_091_reaches_a_consumer_of_amqp_010() -> None:
    made = server()
    publisher = old(made)
    publisher.declare(1, "q")
    props = Properties(
        message_id="m", correlation_id="c", reply_to="r", content_type="t", timestamp=5, delivery_mode=2, type="kind",
        priority=3, expiration="60000", headers={"h": "v", "n": 7},
    )  # fmt: skip
    publisher.publish(1, "q", b"body", header=props.encode())
    (found,) = received(made)
    assert found.body == b"body"
    delivery = found.delivery
    assert (delivery.priority, delivery.delivery_mode, delivery.ttl, delivery.timestamp) == (3, 2, 60_000, 5)
    assert (delivery.exchange, delivery.routing_key) == ("", "q")
    own = found.properties
    assert own is not None
    assert (own.correlation_id, own.reply_to, own.content_type) == (b"c", ReplyTo("", "r"), "t")
    assert own.application_headers == {"h": "v", "n": 7, "x-message-id": "m", "x-jms-type": "kind"}


@pytest.mark.rule("MSG-1")
def test_a_message_of_amqp_10_reaches_a_consumer_of_amqp_010() -> None:
    made = server()
    old(made).declare(1, "q")
    new = Client10(made)
    new.sender("q", 0)
    new.post(0, b"from 1.0", settled=True, durable=True, priority=6)
    (found,) = received(made)
    assert (found.body, found.delivery.priority, found.delivery.delivery_mode) == (b"from 1.0", 6, 2)


@pytest.mark.rule("MSG-1")
def test_a_message_of_rocketmq_reaches_a_consumer_of_amqp_010() -> None:
    made = server()
    old(made).declare(1, "q")
    engine, envelope = made.broker.engine, envelope_of("", "q")
    content = MessageContent(b"UNIQ_KEY\x01u\x02KEYS\x01k\x02TAGS\x01q\x02h\x01v\x02", b"body", born_ms=5000).pack()
    engine.publish(envelope, [content], engine.route(made.broker.directory.vhost("/"), envelope, content))
    (found,) = received(made)
    assert (found.body, found.delivery.timestamp, found.delivery.delivery_mode) == (b"body", 5, 2)
    assert found.properties is not None
    assert found.properties.application_headers == {"x-opt-keys": "k", "h": "v", "x-message-id": "u"}


@pytest.mark.rule("MSG-2")
def test_message_properties_and_body_survive_dead_lettering_compaction_and_restart() -> None:
    storage = MemoryStorage(random.Random(1))
    made = SharingServer(storage=storage)
    client = Client(made)
    queue(made, dead_letter_exchange="", dead_letter_routing_key="dead")
    queue(made, "dead")
    queue(made, "kept")
    publish(client, b"body", header=HEADER)
    publish(client, b"body", header=header(OWN, routing_key="kept", delivery_mode=2))
    client.inbox.clear()
    subscribe(client)
    assert len(delivered(client)) == 1
    client.do(MessageReject(((0, 0),), 0))
    while made.relocate():
        made.end_turn()
        made.run_disk()
    made.tidy()
    made.close()
    again = SharingServer(storage=storage)
    (kept,) = received(again, "kept")
    assert (kept.properties, kept.body) == (OWN, b"body")
    (dead,) = received(again, "dead")
    assert dead.body == b"body"
    assert isinstance(dead.delivery, DeliveryProperties)
    assert (dead.delivery.timestamp, dead.delivery.priority, dead.delivery.routing_key) == (5, 7, "dead")
    own = dead.properties
    assert own is not None
    assert own.application_headers is not None
    assert own.application_headers.pop("x-death")[0]["queue"] == "q"
    for what in ("exchange", "queue", "reason"):
        del own.application_headers[f"x-first-death-{what}"]
    assert own == OWN


@pytest.mark.rule("MSG-3")
def test_headers_exchanges_and_selectors_see_the_same_values_of_all_protocols() -> None:
    made = server()
    publisher = old(made)
    publisher.declare(1, "q")
    publisher.call(1, spec.QueueBind("q", "amq.headers", "", False, {"b": "c", "a": 1}), spec.QueueBindOk)
    client = Client(made)
    publish(client, b"0-10", to="amq.headers", header=HEADER)
    publisher.publish(1, "", b"0-9-1", exchange="amq.headers", header=Properties(headers={"a": 1, "b": "c"}).encode())
    assert publisher.count(1, "q") == 2
    client.inbox.clear()
    subscribe(client, arguments={"x-filter-jms-selector": "a = 1 AND b = 'c'"})
    assert [one.body for one in delivered(client)] == [b"0-10", b"0-9-1"]


@pytest.mark.rule("MSG-4")
def test_spark_sees_the_same_columns() -> None:
    client = Client()
    found = queue(client.server)
    publish(client, b"body", header=HEADER)
    (entry,) = found.order.take(1)
    columns = row(entry.run.envelope, entry.content)
    assert (columns.routing_key, columns.body) == ("q", b"body")
    assert columns.properties["message_id"] == URN
    assert columns.properties["content_type"] == "text/plain"
    assert dict(columns.headers or ())["b"] == "c"
