"""Publishes that are read together give the same messages as publishes that are read individually."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.amqp091 import codes, spec
from escrowmq.wire.amqp091.frames import content_frames, method_frame
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.table import FieldTable, FieldValue
from tests.harness.client import SimClient
from tests.harness.server import SimServer
from tests.unit.wire.amqp091.clients import consuming
from tests.unit.wire.amqp091.test_shape import lists

messages = st.lists(st.tuples(lists, st.binary(max_size=20)), max_size=12)


def frames(props: bytes, body: bytes, channel: int = 1) -> bytes:
    return method_frame(channel, spec.BasicPublish("", "q")) + content_frames(channel, props, body, 0)


def delivered(pieces: list[bytes]) -> tuple[list[tuple[bytes, bytes]], list[tuple[int, str]]]:
    """Return the messages that a consumer gets from these octets, and the errors that the publisher gets."""
    server, client = consuming()
    for piece in pieces:
        if not client.closed:
            client.send_bytes(piece)
    return [(m.header, m.body) for m in client.deliveries()], server.faults


def differing(number: int, channel: int) -> bytes:
    return frames(Properties(message_id=f"{number:04}", timestamp=number).encode(), b"%d" % number, channel)


@pytest.mark.parametrize("channel", [1, 2])
def test_differing_messages_may_be_cut_anywhere(channel: int) -> None:
    whole = [differing(n, channel) for n in range(6)]
    first, octets = b"".join(whole[:2]), b"".join(whole[2:])
    complete = delivered(whole)
    assert [body for _, body in complete[0]] == [b"%d" % n for n in range(6)]
    for cut in range(len(octets)):
        assert delivered([first, octets[:cut], octets[cut:]]) == complete, cut


@given(messages, st.integers(1, 3), st.data())
def test_any_segmentation_gives_the_same_messages(
    some: list[tuple[bytes, bytes]], times: int, data: st.DataObject
) -> None:
    whole = [frames(props, body) for props, body in some for _ in range(times)]
    octets = b"".join(whole)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(octets)), max_size=4)))
    pieces = [octets[a:b] for a, b in zip([0, *cuts], [*cuts, len(octets)], strict=True)]
    assert delivered(pieces) == delivered(whole)


@pytest.mark.parametrize(("size", "large"), [(8191, False), (8192, True), (100_000, True)])
def test_the_server_is_told_whether_the_last_publish_had_a_large_body(size: int, large: bool) -> None:
    server, client = consuming()
    endpoint = client.port.endpoint
    for body, expected in ((bytes(size), large), (b"small", False), (bytes(size), large)):
        client.publish(1, "q", body)
        assert endpoint.large_bodies == expected
    assert not server.faults


@pytest.fixture
def delaying() -> SimClient:
    """Return a client with a fanout exchange `x` that delays messages, and a queue `q` that is bound to it."""
    client = SimClient(SimServer(MemoryStorage(random.Random(1))))
    client.open_channel(1, mode="confirm")
    arguments: FieldTable = {"x-delayed-type": "fanout"}
    declare = spec.ExchangeDeclare("x", "x-delayed-message", durable=True, arguments=arguments)
    client.call(1, declare, spec.ExchangeDeclareOk)
    client.declare(1, "q")
    client.call(1, spec.QueueBind("q", "x", "k"), spec.QueueBindOk)
    return client


def arrived(client: SimClient) -> list[bytes]:
    """End a turn at the server's time, and take the messages of the queue."""
    client.server.end_turn()
    found = []
    while (message := client.get(1, "q", no_ack=True)) is not None:
        found.append(message.body)
    return found


@pytest.mark.rule("DLY-1")
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("varied", [True, False])
def test_messages_with_the_header_x_delay_arrive_when_they_are_due(
    delaying: SimClient, *, together: bool, varied: bool
) -> None:
    sent = b""
    for n in range(60):
        headers: FieldTable = {"x-delay": 1000 * (n % 3 + 1)} if n % 4 else {}
        props = Properties(delivery_mode=2, headers=headers, message_id=f"{n}" if varied else None).encode()
        octets = method_frame(1, spec.BasicPublish("x", "k", True)) + content_frames(1, props, b"%d" % n, 0)
        sent += octets
        if not together:
            delaying.send_bytes(octets)
    if together:
        delaying.send_bytes(sent)
    delaying.collect()
    answers = [message.method for message in delaying.inbox]
    assert {type(method) for method in answers} == {spec.BasicAck}, "delayed messages are confirmed and not returned"
    delaying.inbox.clear()
    assert arrived(delaying) == [b"%d" % n for n in range(60) if n % 4 == 0]
    for seconds in (1, 2, 3):
        delaying.server.now += 1000
        assert arrived(delaying) == [b"%d" % n for n in range(60) if n % 4 and n % 3 + 1 == seconds]


@pytest.mark.rule("DLY-3")
@pytest.mark.parametrize("delay", ["soon", 1 << 32, [1]])
def test_an_invalid_header_x_delay_closes_the_channel(delaying: SimClient, delay: FieldValue) -> None:
    delaying.publish(1, "k", b"a", exchange="x", header=Properties(headers={"x-delay": delay}).encode())
    close = delaying.expect(1, spec.ChannelClose)
    assert (close.reply_code, "x-delay" in close.reply_text) == (codes.PRECONDITION_FAILED, True)
