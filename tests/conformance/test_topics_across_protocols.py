"""A message that a client of any protocol sends to a topic reaches clients of all protocols, and Spark's reader, as a
dead letter, after compaction and a restart.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from escrowmq.amqp10.message import Message
from escrowmq.core.groups.options import GroupOptions
from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.amqp091 import bulk, spec
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp10.codec import sections
from escrowmq.wire.amqp10.codec.performatives import Transfer
from escrowmq.wire.amqp10.codec.termini import Source
from escrowmq.wire.amqp10.codec.types import Described, Symbol
from escrowmq.wire.rocketmq.content import PROTOCOL as ROCKETMQ
from escrowmq.wire.rocketmq.content import unpack
from escrowmq.wire.rocketmq.grpc.settings import duration
from escrowmq.wire.rocketmq.properties import parse
from escrowmq.wire.rocketmq.proto.definition_pb2 import Code, MessageQueue, Resource
from escrowmq.wire.rocketmq.proto.service_pb2 import ReceiveMessageRequest, SendMessageRequest
from tests.harness.client import SimClient
from tests.harness.server import Options
from tests.unit.wire.amqp091.clients import Server
from tests.unit.wire.amqp10.clients import Client as NewClient
from tests.unit.wire.rocketmq.grpc.peer import GrpcPeer, message
from tests.unit.wire.rocketmq.remoting import clients as remoting

if TYPE_CHECKING:
    from escrowmq.core.queues.stream import StreamQueue

SMALL: Final = Options(segment_bytes=2000, resident_limit=1)
"""Sizes with which messages are paged out and segments are compacted."""


class Seen(NamedTuple):
    """A message as its consumer sees it."""

    ident: str
    key: str
    shop: str
    body: bytes


SENT: Final = {name: Seen(f"id-{name}", "tag", "north", name.encode()) for name in ("0-9-1", "1.0", "classic", "grpc")}


# -- producers


def publish_091(server: Server, seen: Seen) -> None:
    client = SimClient(server)
    client.open_channel(1)
    header = Properties(message_id=seen.ident, headers={"shop": seen.shop}, delivery_mode=2).encode()
    client.publish(1, seen.key, seen.body, exchange="t", header=header)


def publish_10(server: Server, seen: Seen) -> None:
    client = NewClient(server)
    client.sender(f"/exchanges/t/{seen.key}")
    sent = Message(seen.body, message_id=seen.ident, subject=seen.key, application_properties={"shop": seen.shop})
    client.send(0, Transfer(0, 0, b"0", 0, True), payload=sent.encode())


def publish_classic(server: Server, seen: Seen) -> None:
    client = remoting.Client(server)
    assert client.publish("t", seen.body, UNIQ_KEY=seen.ident, TAGS=seen.key, shop=seen.shop).code == 0


def publish_grpc(server: Server, seen: Seen) -> None:
    sent = message("t", seen.body, seen.ident, tag=seen.key, properties={"shop": seen.shop})
    answer = GrpcPeer(server).run("SendMessage", SendMessageRequest(messages=[sent]))
    assert answer.status.code == Code.OK


PRODUCERS: Final[dict[str, Callable[[Server, Seen], None]]] = {
    "0-9-1": publish_091,
    "1.0": publish_10,
    "classic": publish_classic,
    "grpc": publish_grpc,
}


# -- consumers of the topic `dead`, which has one partition


def consumed_091(server: Server) -> list[Seen]:
    client = SimClient(server)
    client.open_channel(1, prefetch=100)
    client.send(1, spec.BasicConsume("dead-0", arguments={"x-stream-offset": "first"}))
    found = []
    for each in client.deliveries():
        properties = Properties.decode(each.header)
        assert isinstance(each.method, spec.BasicDeliver)
        assert properties.headers is not None
        found.append(
            Seen(properties.message_id or "", each.method.routing_key, str(properties.headers["shop"]), each.body)
        )
    return found


def consumed_10(server: Server) -> list[Seen]:
    client = NewClient(server)
    start = Symbol("rabbitmq:stream-offset-spec")
    client.receiver(
        None, source=Source("/queues/dead-0", filter={start: Described(start, "first")}), credit=10, settled=True
    )
    found = []
    while client.inbox:
        payload = client.expect_message(Transfer).payload
        content = payload[sections.split_head(payload)[1] :]
        properties = sections.properties(content)
        body = sections.body(content)
        assert isinstance(body, sections.Data)
        shop = str(sections.application_properties(content)["shop"])
        found.append(Seen(str(properties.message_id), str(properties.subject), shop, bytes(body[0])))
    return found


def consumed_classic(server: Server) -> list[Seen]:
    pulled = remoting.Client(server).pull("dead", 0, 0, "classic-readers")
    found = []
    for each in remoting.messages(pulled.body):
        properties = parse(each.content.properties)
        found.append(Seen(properties["UNIQ_KEY"], properties["TAGS"], properties["shop"], each.content.body))
    return found


def consumed_grpc(server: Server) -> list[Seen]:
    peer = GrpcPeer(server)
    queue = MessageQueue(topic=Resource(name="dead"), id=-1)
    request = ReceiveMessageRequest(
        group=Resource(name="readers"), message_queue=queue, batch_size=32, invisible_duration=duration(30_000)
    )
    number = peer.begin("ReceiveMessage", request, grpc_timeout="30S")
    received = [
        each.message for each in peer.responses("ReceiveMessage", number) if each.WhichOneof("content") == "message"
    ]
    return [
        Seen(each.system_properties.message_id, each.system_properties.tag, each.user_properties["shop"], each.body)
        for each in received
    ]


def consumed_spark(server: Server) -> list[Seen]:
    client = SimClient(server)
    client.open_channel(1)
    client.send(1, spec.EscrowRead("dead-0", "", 1))
    found = []
    for each in bulk.decode(client.inbox.popleft().body).messages():
        properties = Properties.decode(each.properties)
        assert properties.headers is not None
        shop = str(properties.headers["shop"])
        found.append(Seen(properties.message_id or "", each.routing_key.decode(), shop, each.body))
    return found


CONSUMERS: Final[dict[str, Callable[[Server], list[Seen]]]] = {
    "0-9-1": consumed_091,
    "1.0": consumed_10,
    "classic": consumed_classic,
    "grpc": consumed_grpc,
    "Spark": consumed_spark,
}


def stored(stream: StreamQueue) -> set[bytes]:
    """Return the contents in the form of RocketMQ that a stream has."""
    entries = [entry for position in range(stream.begin, stream.end) for entry in stream.read(position, 1)]
    return {bytes(entry.content) for entry in entries if entry.run.envelope.protocol == ROCKETMQ}


@pytest.fixture(scope="module")
def died() -> tuple[MemoryStorage, set[bytes]]:
    """Send a message by each protocol to a topic, let a group dead-letter all of them, delete the topic, compact the
    journal. Return the journal, and the contents that clients of RocketMQ had sent.
    """
    storage = MemoryStorage(random.Random(1))
    server = Server(SMALL, storage)
    broker = server.broker
    vhost = broker.directory.vhost("/")
    topic = broker.topics.declare(vhost, "t", 1)
    broker.topics.declare(vhost, "dead", 1)
    group = broker.groups.declare("/", "g", GroupOptions(dead_letter_topic="dead"), user="guest")
    filler = SimClient(server)
    filler.open_channel(1)
    filler.declare(1, "filler")
    for name, publish in PRODUCERS.items():
        publish(server, SENT[name])
        filler.publish(1, "filler", b"x" * 1500)
    contents = stored(topic.streams[0])
    for lease in group.lease(topic.streams, 10, 30_000).leases:
        group.dead_letter(lease.handle)
    server.end_turn()
    server.run_disk()
    broker.topics.delete(vhost, "t")
    for _ in PRODUCERS:
        assert filler.get(1, "filler", no_ack=True) is not None
    while server.relocate():
        server.end_turn()
        server.run_disk()
    server.tidy()
    server.close()
    return storage, contents


@pytest.fixture
def server(died: tuple[MemoryStorage, set[bytes]]) -> Iterator[Server]:
    """Start a server with this journal. A consumer adds nothing to it but its own group."""
    made = Server(SMALL, died[0])
    yield made
    made.run_disk()
    made.close()


@pytest.mark.rule("MSG-1", "MSG-4", "HALF-9")
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_a_dead_letter_of_each_protocol_reaches_consumers_of_each(server: Server, consumer: str) -> None:
    assert sorted(CONSUMERS[consumer](server)) == sorted(SENT.values())


@pytest.mark.rule("MSG-2")
def test_the_contents_of_rocketmq_are_unchanged_as_dead_letters(
    server: Server, died: tuple[MemoryStorage, set[bytes]]
) -> None:
    topic = server.broker.topics.find(server.broker.directory.vhost("/"), "dead")
    assert topic is not None
    assert stored(topic.streams[0]) == died[1]
    assert {unpack(content).body for content in died[1]} == {b"classic", b"grpc"}
