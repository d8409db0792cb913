"""The order of service: waiting consumers come before a get, and the queues of a channel take turns."""

from __future__ import annotations

import random

import pytest

from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.frames import method_frame
from tests.harness.client import TRANSIENT, SimClient
from tests.harness.frames import publish_frames
from tests.harness.server import SimServer


@pytest.fixture
def client() -> SimClient:
    client = SimClient(SimServer(MemoryStorage(random.Random(1))))
    client.open_channel(1)
    return client


def at_once(client: SimClient, method: spec.BasicGet | spec.QueueDeclare | spec.QueuePurge | spec.QueueDelete) -> None:
    """Send a publish and a method together, so that both arrive in one turn of the server."""
    publish = publish_frames(1, spec.BasicPublish("", "q"), TRANSIENT, b"x")
    client.send_bytes(publish + method_frame(1, method))


def test_a_waiting_consumer_comes_before_a_get(client: SimClient) -> None:
    client.declare(1, "q")
    client.call(1, spec.BasicConsume("q", "c"), spec.BasicConsumeOk)
    at_once(client, spec.BasicGet("q"))
    client.expect(1, spec.BasicDeliver)
    client.expect(1, spec.BasicGetEmpty)


def test_delivered_messages_are_not_counted_as_ready(client: SimClient) -> None:
    client.declare(1, "q")
    client.call(1, spec.BasicConsume("q", "c"), spec.BasicConsumeOk)
    at_once(client, spec.QueueDeclare("q", passive=True))
    client.expect(1, spec.BasicDeliver)
    assert client.expect(1, spec.QueueDeclareOk).message_count == 0
    at_once(client, spec.QueueDeclare("q", durable=True))
    client.expect(1, spec.BasicDeliver)
    assert client.expect(1, spec.QueueDeclareOk).message_count == 0
    at_once(client, spec.QueuePurge("q"))  # removes messages published in the same turn, before consumers are served
    assert client.expect(1, spec.QueuePurgeOk).message_count == 1
    at_once(client, spec.QueueDelete("q", if_empty=True))
    client.expect(1, spec.BasicDeliver)
    assert client.expect(1, spec.QueueDeleteOk).message_count == 0


def test_queues_take_turns_in_the_prefetch_limit_of_a_channel(client: SimClient) -> None:
    names = ["a", "b", "c"]
    for name in names:
        client.declare(1, name)
        client.publish(1, name, *[name.encode()] * 4)
    client.call(1, spec.BasicQos(0, 1, True), spec.BasicQosOk)
    for name in names:
        client.send(1, spec.BasicConsume(name, name))
    found = []
    for tag in range(1, 13):
        found += client.bodies()
        client.send(1, spec.BasicAck(tag))
    assert sorted(found[:3]) == sorted(found[3:6]) == [b"a", b"b", b"c"]
    assert sorted(found) == [b"a"] * 4 + [b"b"] * 4 + [b"c"] * 4


def test_messages_go_to_the_consumers_that_existed_when_they_were_published(client: SimClient) -> None:
    client.declare(1, "q")
    for tag in ("first", "second"):
        client.call(1, spec.BasicConsume("q", tag, no_ack=True), spec.BasicConsumeOk)
    publishes = [publish_frames(1, spec.BasicPublish("", "q"), TRANSIENT, str(i).encode()) for i in range(8)]
    cancels = [method_frame(1, spec.BasicCancel(tag)) for tag in ("first", "second", "third")]
    client.send_bytes(
        b"".join(publishes[:2])
        + cancels[0]
        + b"".join(publishes[2:4])
        + method_frame(1, spec.BasicConsume("q", "third", no_ack=True, arguments={"x-priority": 1}))
        + b"".join(publishes[4:6])
        + cancels[2]
        + b"".join(publishes[6:])
        + cancels[1]
    )
    found: dict[str, list[bytes]] = {}
    for message in client.deliveries():
        assert isinstance(message.method, spec.BasicDeliver)
        found.setdefault(message.method.consumer_tag, []).append(message.body)
    assert len(found["first"]) == 1
    assert sorted(found["first"] + found["second"]) == [b"0", b"1", b"2", b"3", b"6", b"7"]
    assert found["third"] == [b"4", b"5"]


def test_a_message_with_a_ttl_of_zero_goes_to_waiting_consumers_only(client: SimClient) -> None:
    client.declare(1, "q", arguments={"x-message-ttl": 0})
    at_once(client, spec.BasicGet("q"))
    client.expect(1, spec.BasicGetEmpty)
    at_once(client, spec.QueueDeclare("q", passive=True))
    assert client.expect(1, spec.QueueDeclareOk).message_count == 0
    client.call(1, spec.BasicConsume("q", "c"), spec.BasicConsumeOk)
    at_once(client, spec.BasicGet("q"))
    tag = client.expect(1, spec.BasicDeliver).delivery_tag
    client.expect(1, spec.BasicGetEmpty)
    client.send(1, spec.BasicReject(tag, requeue=True))
    assert not client.inbox
    assert client.count(1, "q") == 0


def test_line_ends_are_removed_from_names(client: SimClient) -> None:
    client.call(1, spec.ExchangeDeclare("an\r\nex\nchange\n", "fanout"), spec.ExchangeDeclareOk)
    assert client.declare(1, "a\nqueue\r\n").queue == "aqueue"
    client.call(1, spec.QueueBind("aqueue\n", "anexchange"), spec.QueueBindOk)
    client.publish(1, "", b"x", exchange="anexchange")
    assert client.call(1, spec.QueueDelete("aq\nueue"), spec.QueueDeleteOk).message_count == 1
    client.call(1, spec.ExchangeDelete("an\nexchange"), spec.ExchangeDeleteOk)
    client.send(1, spec.ExchangeDeclare("anexchange", passive=True))
    assert client.expect(1, spec.ChannelClose).reply_code == 404
