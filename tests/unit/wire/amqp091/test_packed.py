"""Packed content: its octets, and messages whose properties stay in the content from publisher to consumer."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.frames import content_frames, method_frame
from escrowmq.wire.amqp091.packed import PACKED, pack, properties, readdressed, unpack, with_reply_address
from escrowmq.wire.amqp091.properties import REPLY_TO, Properties
from escrowmq.wire.amqp091.publication import with_reply_to
from escrowmq.wire.amqp091.table import FieldTable
from tests.harness.client import SimClient
from tests.harness.server import SimServer
from tests.unit.wire.amqp091.clients import Server, consuming, pair, queue

octets = st.binary(min_size=1, max_size=300)


@given(octets, octets)
def test_properties_and_body_can_be_separated(props: bytes, body: bytes) -> None:
    content = pack(props, body)
    assert unpack(content) == (props, body)
    assert properties(content) == props


@given(octets, octets)
def test_packed_content_equals_a_publish_on_channel_1(props: bytes, body: bytes) -> None:
    frames = content_frames(1, props, body, 0)
    assert frames[:3] + pack(props, body) == frames


@given(octets, octets, st.integers(2, 65535))
def test_packed_content_can_be_readdressed_to_another_channel(props: bytes, body: bytes, channel: int) -> None:
    frames = content_frames(channel, props, body, 0)
    assert frames[:3] + readdressed(pack(props, body), channel.to_bytes(2, "big")) == frames


@given(octets, st.integers(1, 65535), st.text(max_size=50), st.none() | st.text(max_size=20))
def test_its_reply_to_is_replaced(body: bytes, channel: int, correlation_id: str, message_id: str | None) -> None:
    asks = Properties(correlation_id=correlation_id, reply_to=REPLY_TO, message_id=message_id, timestamp=1).encode()
    sent = content_frames(channel, asks, body, 0)[3:]
    replaced = with_reply_address(sent, sent.index(REPLY_TO.encode()) - 1, b"\x03abc")
    assert replaced == pack(with_reply_to(asks, "abc"), body)


def differing(number: int) -> bytes:
    return Properties(
        content_type="text/plain",
        headers={"n": number, "kind": "x", "trace": f"{number:032}"},
        delivery_mode=2 - number % 7 // 6,
        correlation_id=f"c{number}",
        message_id=f"{number:036}",
        timestamp=1_700_000_000 + number,
    ).encode()


def publish(client: SimClient, channel: int, key: str, numbers: range, exchange: str = "", **options: bool) -> None:
    """Publish messages with different properties in one read."""
    method = method_frame(channel, spec.BasicPublish(exchange, key, **options))
    frames = [method + content_frames(channel, differing(n), b"%d" % n, 0) for n in numbers]
    client.send_bytes(b"".join(frames))


def packed_entries(server: Server, name: str) -> int:
    """Return how many messages of a queue are packed."""
    entries = server.broker.directory.vhosts["/"].queues[name].order.in_memory()
    return sum(entry.run.envelope.protocol == PACKED for entry in entries)


def expected(numbers: range) -> list[tuple[bytes, bytes]]:
    return [(differing(n), b"%d" % n) for n in numbers]


@pytest.mark.rule("MSG-2")
@pytest.mark.rule("ORD-1")
@pytest.mark.parametrize("channel", [1, 3])
def test_differing_messages_arrive_in_order_octet_by_octet(channel: int) -> None:
    _, client = consuming()
    if channel != 1:
        client.open_channel(channel)
    publish(client, channel, "q", range(50))
    assert [(m.header, m.body) for m in client.deliveries()] == expected(range(50))


def test_differing_messages_share_runs() -> None:
    server, client = pair()
    queue(client)
    publish(client, 1, "q", range(50))
    assert packed_entries(server, "q") >= 48
    runs = {id(entry.run) for entry in server.broker.directory.vhosts["/"].queues["q"].order.in_memory()}
    assert len(runs) <= 20  # one message in seven is transient, which ends a run


def test_a_consumer_on_channel_1_gets_packed_messages() -> None:
    _, client = pair()
    queue(client)
    client.open_channel(2)
    publish(client, 2, "q", range(9))
    client.call(1, spec.BasicConsume("q", "t"), spec.BasicConsumeOk)
    assert [(m.header, m.body) for m in client.deliveries()] == expected(range(9))


def test_packed_messages_are_fetched_with_a_small_frame_size() -> None:
    _, client = pair(frame_max=4096)
    queue(client)
    method = method_frame(1, spec.BasicPublish("", "q"))
    body = b"x" * 4000
    client.send_bytes(b"".join([method + content_frames(1, differing(n), body, 4096) for n in range(3)]))
    found = [client.get(1, "q") for _ in range(3)]
    assert [(m.header, m.body) for m in found if m is not None] == [(differing(n), body) for n in range(3)]


def test_unroutable_mandatory_messages_are_returned() -> None:
    _, client = pair()
    publish(client, 1, "nowhere", range(5), mandatory=True)
    client.collect()
    returned = [m for m in client.inbox if isinstance(m.method, spec.BasicReturn)]
    assert [(m.header, m.body) for m in returned] == expected(range(5))


@pytest.mark.rule("MSG-2")
@pytest.mark.rule("ORD-5")
def test_persistent_packed_messages_survive_a_restart() -> None:
    storage = MemoryStorage(random.Random(1))
    client = SimClient(SimServer(storage))
    client.open_channel(1)
    queue(client)
    publish(client, 1, "q", range(5))
    client = SimClient(SimServer(storage))
    client.open_channel(1)
    found = [client.get(1, "q") for _ in range(5)]
    assert [(m.header, m.body) for m in found if m is not None] == expected(range(5))


def dead_lettered(client: SimClient) -> list[tuple[Properties, bytes]]:
    client.call(1, spec.BasicConsume("dead", "t", no_ack=True), spec.BasicConsumeOk)
    return [(Properties.decode(m.header), m.body) for m in client.deliveries()]


@pytest.mark.parametrize("exchange", ["", "amq.headers"])
def test_dead_letters_keep_their_properties(exchange: str) -> None:
    server, client = pair()
    arguments: FieldTable = {
        "x-dead-letter-exchange": exchange,
        "x-dead-letter-routing-key": "dead",
        "x-message-ttl": 1,
    }
    queue(client, "q", arguments)
    queue(client, "dead")
    if exchange:
        client.call(1, spec.QueueBind("dead", exchange, "", arguments={"kind": "x"}), spec.QueueBindOk)
    publish(client, 1, "q", range(6))
    server.after(5)
    found = dead_lettered(client)
    assert [body for _, body in found] == [b"%d" % n for n in range(6)]
    for number, (props, _) in enumerate(found):
        before = Properties.decode(differing(number))
        assert props.headers is not None
        assert props.headers["trace"] == f"{number:032}"
        assert props.headers["x-first-death-queue"] == "q"
        assert (props.message_id, props.correlation_id) == (before.message_id, before.correlation_id)


def through_headers(client: SimClient) -> int:
    client.call(1, spec.QueueBind("q", "amq.headers", "", arguments={"n": 3}), spec.QueueBindOk)
    publish(client, 1, "", range(6), exchange="amq.headers")
    return 1


def limited_in_bytes(client: SimClient) -> int:
    queue(client, "limited", {"x-max-length-bytes": 3})
    publish(client, 1, "limited", range(6))
    return 0


@pytest.mark.parametrize("through", [through_headers, limited_in_bytes])
def test_routing_by_headers_and_limits_see_each_message(through: Callable[[SimClient], int]) -> None:
    _, client = pair()
    queue(client)
    count = through(client)
    assert client.count(1, "q") == count
    if not count:
        assert client.count(1, "limited") == 3


def test_equal_messages_after_differing_ones_form_unpacked_runs() -> None:
    server, client = pair()
    queue(client)
    publish(client, 1, "q", range(4))
    same = method_frame(1, spec.BasicPublish("", "q")) + content_frames(1, differing(7), b"7", 0)
    for _ in range(3):
        client.send_bytes(same * 4)
    assert client.count(1, "q") == 16
    assert packed_entries(server, "q") < 16
