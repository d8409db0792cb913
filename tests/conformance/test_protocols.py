"""Messages of each protocol reach consumers of each, through dead-lettering, paging, compaction and restart."""

from __future__ import annotations

import random

import pytest

from escrowmq.core.messages.entry import Entry
from escrowmq.core.queues.credit import UNLIMITED, Credit, Replenishment
from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp10.codec import sections
from escrowmq.wire.amqp10.codec.performatives import Detach
from escrowmq.wire.amqp10.codec.types import Described, Symbol, ULong
from escrowmq.wire.amqp10.delivery import sections_of
from escrowmq.wire.amqp10.publication import Destination, Publications
from escrowmq.wire.formats import translated
from escrowmq.wire.rocketmq.content import PROTOCOL as ROCKETMQ
from escrowmq.wire.rocketmq.content import MessageContent, envelope_of, unpack
from escrowmq.wire.rocketmq.properties import parse
from tests.harness.client import SimClient
from tests.harness.server import Options, SimServer
from tests.unit.core.site import Sink
from tests.unit.wire.amqp10.clients import Client
from tests.unit.wire.amqp10.clients import server as new_server
from tests.unit.wire.amqp10.codec.proton import MESSAGE

BARE = MESSAGE[MESSAGE.index(b"\x00\x53\x73") :]
SMALL = Options(segment_bytes=2000, resident_limit=1)
"""Sizes with which messages are paged out and segments are compacted."""
ARGUMENTS = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


def publish_sections(server: SimServer, key: str, *payloads: bytes) -> None:
    """Publish messages as a link to the queue `key` does."""
    publications = Publications("u", Destination("", key), lambda address: Destination("", address))
    engine = server.broker.engine
    for payload in payloads:
        envelope, content = publications.read(payload)
        engine.publish(envelope, [content], engine.route(server.broker.directory.vhost("/"), envelope))
    server.end_turn()
    server.run_disk()


def taken(server: SimServer, name: str) -> list[Entry]:
    """Deliver everything in a queue to a consumer."""
    sink = Sink()
    queue = server.broker.directory.vhost("/").queue(name)
    server.broker.engine.subscribe(queue, sink, credit=Credit(UNLIMITED, Replenishment.RECEIVER), auto_settle=True)
    server.end_turn()
    return [entry for _, entry in sink.got]


def died(storage: MemoryStorage, publish: bytes | None) -> SimServer:
    """Publish messages to a queue, reject them there, compact the journal, and restart. `publish` is the payload of a
    message of AMQP 1.0; without it, a message of AMQP 0-9-1 is published.
    """
    server = SimServer(storage, SMALL)
    client = SimClient(server)
    client.open_channel(1)
    client.declare(1, "q", arguments=ARGUMENTS)
    client.declare(1, "dead")
    client.declare(1, "filler")
    for _ in range(3):
        if publish is None:
            client.publish(1, "q", b"body", header=PROPERTIES)
        else:
            publish_sections(server, "q", publish)
        client.publish(1, "filler", b"x" * 1500)
    for _ in range(3):
        message = client.get(1, "q")
        assert message is not None
        assert isinstance(message.method, spec.BasicGetOk)
        client.send(1, spec.BasicReject(message.method.delivery_tag, requeue=False))
        assert client.get(1, "filler", no_ack=True) is not None
    while server.relocate():
        server.end_turn()
        server.run_disk()
    server.tidy()
    server.close()
    return SimServer(storage, SMALL)


PROPERTIES = Properties(
    message_id="m", content_type="text/plain", headers={"h": "v"}, delivery_mode=2, timestamp=5, reply_to="r"
).encode()


@pytest.mark.rule("MSG-2")
def test_a_bare_message_of_amqp_10_survives_byte_for_byte() -> None:
    server = died(MemoryStorage(random.Random(1)), MESSAGE)
    entries = taken(server, "dead")
    assert len(entries) == 3
    for entry in entries:
        payload = sections_of(entry.run.envelope, entry.content)
        assert payload.endswith(BARE)
        header, at = sections.split_head(payload)
        assert (sections.decode_header(header).durable, sections.decode_header(header).priority) == (True, 7)
        annotations = sections.message_annotations(payload[at:])
        assert annotations[Symbol("x-opt-q")] == 4
        assert [death["reason"] for death in annotations[Symbol("x-opt-deaths")]] == ["rejected"]


@pytest.mark.rule("MSG-1")
def test_a_message_of_amqp_10_reaches_a_consumer_of_amqp_091() -> None:
    server = died(MemoryStorage(random.Random(1)), MESSAGE)
    client = SimClient(server)
    client.open_channel(1)
    client.send(1, spec.BasicConsume("dead", no_ack=True))
    message = client.deliveries()[0]
    found = Properties.decode(message.header)
    assert (found.message_id, found.correlation_id) == ("m-1", "urn:uuid:00000000-0000-0000-0000-000000000000")
    assert (found.delivery_mode, found.priority, found.user_id, found.reply_to) == (2, 7, "u", "r")
    assert (found.content_type, found.content_encoding, found.app_id) == ("text/plain", "utf-8", "g")
    assert (found.timestamp, found.type) == (1, "amqp-1.0")
    assert found.headers is not None
    assert {name: found.headers[name] for name in ("a", "b", "x-opt-q", "x-subject")} == {
        "a": 1,
        "b": "c",
        "x-opt-q": 4,
        "x-subject": "s",
    }
    assert found.headers["x-first-death-queue"] == "q"
    assert sections.body(message.body) == Described(ULong(sections.VALUE), {"k": [1, 2.5]})


@pytest.mark.rule("MSG-1")
def test_a_message_of_amqp_091_reaches_a_consumer_of_amqp_10() -> None:
    server = died(MemoryStorage(random.Random(1)), None)
    (entry, *_) = taken(server, "dead")
    payload = sections_of(entry.run.envelope, entry.content)
    content = payload[sections.split_head(payload)[1] :]
    found = sections.properties(content)
    assert (found.message_id, found.content_type, found.reply_to) == ("m", "text/plain", "/queues/r")
    assert (found.creation_time, found.subject) == (5000, "dead")
    assert sections.application_properties(content) == {"h": "v"}
    assert sections.body(content) == sections.Data([b"body"])
    assert sections.message_annotations(content)[Symbol("x-first-death-queue")] == "q"


@pytest.mark.rule("MSG-3")
def test_a_headers_exchange_routes_messages_of_both_protocols_alike() -> None:
    server = SimServer(MemoryStorage(random.Random(1)))
    client = SimClient(server)
    client.open_channel(1)
    client.declare(1, "q")
    client.call(1, spec.QueueBind("q", "amq.headers", "", False, {"b": "c", "a": 1}), spec.QueueBindOk)
    engine, vhost = server.broker.engine, server.broker.directory.vhost("/")
    for payload, expected in ((MESSAGE, 1), (MESSAGE.replace(b"\xa1\x01c", b"\xa1\x01d"), 0)):
        publications = Publications("u", Destination("amq.headers", ""), lambda address: Destination("", address))
        envelope, content = publications.read(payload)
        assert len(engine.route(vhost, envelope, content)) == expected
    client.publish(1, "", b"body", exchange="amq.headers", header=Properties(headers={"a": 1, "b": "c"}).encode())
    assert client.count(1, "q") == 1


@pytest.mark.rule("MSG-1")
def test_clients_of_both_protocols_exchange_messages_through_one_queue() -> None:
    server = new_server()
    old, new = SimClient(server), Client(server)
    old.open_channel(1)
    old.declare(1, "q")
    new.sender("q", 0)
    new.post(0, b"from 1.0", settled=True, durable=True)
    old.publish(1, "q", b"from 0-9-1", header=PROPERTIES)
    new.receiver("q", 1, credit=10, settled=True)
    assert [content for _, content in new.deliveries()] == [b"from 1.0", b"from 0-9-1"]
    new.send(0, Detach(handle=1, closed=True))
    new.expect(Detach)
    new.post(1, b"from 1.0 again", settled=True)
    old.publish(1, "q", b"from 0-9-1 again", header=PROPERTIES)
    old.send(1, spec.BasicConsume("q", no_ack=True))
    assert old.bodies() == [b"from 1.0 again", b"from 0-9-1 again"]


ROCKET = MessageContent(b"UNIQ_KEY\x01u\x02KEYS\x01k\x02TAGS\x01a\x02h\x01v\x02", b"body", flag=7, born_ms=5000)


def publish_rocket(server: SimServer, exchange: str, tag: str) -> None:
    """Publish a message as a client of RocketMQ does."""
    engine, envelope = server.broker.engine, envelope_of(exchange, tag)
    content = ROCKET.pack()
    engine.publish(envelope, [content], engine.route(server.broker.directory.vhost("/"), envelope, content))
    server.end_turn()
    server.run_disk()


@pytest.mark.rule("MSG-1")
def test_a_message_of_rocketmq_reaches_consumers_of_both_versions_of_amqp() -> None:
    server = SimServer(MemoryStorage(random.Random(1)))
    client = SimClient(server)
    client.open_channel(1)
    client.declare(1, "q")
    publish_rocket(server, "", "q")
    publish_rocket(server, "", "q")
    message = client.get(1, "q", no_ack=True)
    assert message is not None
    found = Properties.decode(message.header)
    assert (message.body, found.message_id, found.delivery_mode, found.timestamp) == (b"body", "u", 2, 5)
    assert found.headers == {"x-opt-keys": "k", "h": "v"}
    (entry,) = taken(server, "q")
    payload = sections_of(entry.run.envelope, entry.content)
    content = payload[sections.split_head(payload)[1] :]
    assert (sections.properties(content).message_id, sections.properties(content).subject) == ("u", "q")
    assert sections.application_properties(content) == {"h": "v"}
    assert sections.body(content) == sections.Data([b"body"])


@pytest.mark.rule("MSG-1")
def test_messages_of_both_versions_of_amqp_reach_a_consumer_of_rocketmq() -> None:
    server = SimServer(MemoryStorage(random.Random(1)))
    client = SimClient(server)
    client.open_channel(1)
    client.declare(1, "q")
    client.publish(1, "q", b"old", header=PROPERTIES)
    publish_sections(server, "q", MESSAGE)
    old, new = (unpack(translated(entry.run.envelope, entry.content, ROCKETMQ)[1]) for entry in taken(server, "q"))
    assert (old.body, old.born_ms) == (b"old", 5000)
    assert parse(old.properties) == {"UNIQ_KEY": "m", "TAGS": "q", "h": "v"}
    assert parse(new.properties) == {
        "UNIQ_KEY": "m-1",
        "TAGS": "q",
        "__SHARDINGKEY": "g",
        "CORRELATION_ID": "00000000-0000-0000-0000-000000000000",
        "a": "1",
        "b": "c",
        "x-opt-q": "4",
    }


@pytest.mark.rule("MSG-2")
def test_a_message_of_rocketmq_survives_a_restart_byte_for_byte() -> None:
    storage = MemoryStorage(random.Random(1))
    server = SimServer(storage, SMALL)
    client = SimClient(server)
    client.open_channel(1)
    client.declare(1, "q", arguments=ARGUMENTS)
    client.declare(1, "dead")
    publish_rocket(server, "", "q")
    message = client.get(1, "q")
    assert message is not None
    assert isinstance(message.method, spec.BasicGetOk)
    client.send(1, spec.BasicReject(message.method.delivery_tag, requeue=False))
    server.tidy()
    server.close()
    (entry,) = taken(SimServer(storage, SMALL), "dead")
    assert unpack(entry.content) == ROCKET


@pytest.mark.rule("MSG-3")
def test_a_headers_exchange_sees_the_user_properties_of_rocketmq() -> None:
    server = SimServer(MemoryStorage(random.Random(1)))
    client = SimClient(server)
    client.open_channel(1)
    client.declare(1, "q")
    client.call(1, spec.QueueBind("q", "amq.headers", "", False, {"h": "v"}), spec.QueueBindOk)
    publish_rocket(server, "amq.headers", "")
    assert client.count(1, "q") == 1
