"""The annotations that the broker adds to deliveries: offsets of streams, and the origin for clients of RabbitMQ."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.core.topology.declaration import Declaration
from escrowmq.wire.amqp10.additions import additions_to
from escrowmq.wire.amqp10.codec.performatives import RECEIVER, Disposition, Transfer
from escrowmq.wire.amqp10.codec.sections import encode_section, message_annotations, split_head
from escrowmq.wire.amqp10.codec.states import Modified
from escrowmq.wire.amqp10.codec.termini import Source
from escrowmq.wire.amqp10.codec.types import Described, Symbol, ULong
from tests.unit.wire.amqp10.clients import Client, Server, body, message, server

OWN = encode_section(0x72, {Symbol("x-own"): 1})
FIRST = Symbol("rabbitmq:stream-offset-spec")
ORIGIN = {"x-exchange": "", "x-routing-key": "q"}
LIKE_RABBITMQ = {"rabbitmq_version": "4.2.0"}


def prepared(**limits: Any) -> tuple[Server, Client]:
    """Return a server with the queue `q` and the stream `s`, and a client that sends to them on the handles 0 and 5."""
    made = server(**limits)
    directory, vhost = made.broker.directory, made.broker.directory.vhost("/")
    client = Client(made)
    for name, arguments in (("q", {}), ("s", {"x-queue-type": "stream"})):
        declaration = Declaration(durable=True, arguments=arguments)
        directory.declare_queue(vhost, name, declaration, client.port.endpoint.owner)
    client.sender("q", 0)
    client.sender("s", 5)
    return made, client


def send(client: Client, *payloads: bytes, handle: int = 0) -> None:
    for number, payload in enumerate(payloads):
        client.send(0, Transfer(handle, number, b"%d" % number, 0, True), payload=payload)


def annotations_in(client: Client) -> list[dict[Any, Any]]:
    """Take the deliveries out of the inbox, and return their annotations."""
    found = [each.payload for each in client.inbox if isinstance(each.performative, Transfer)]
    client.inbox.clear()
    return [message_annotations(payload[split_head(payload)[1] :]) for payload in found]


def read_stream(client: Client) -> list[dict[Any, Any]]:
    client.receiver("s", 6, credit=10, source=Source("s", filter={FIRST: Described(FIRST, "first")}))
    return annotations_in(client)


def test_messages_of_a_stream_carry_their_offset() -> None:
    _, client = prepared()
    send(client, message(b"a"), OWN + message(b"b"), message(b"c", ttl=1000), handle=5)
    found = read_stream(client)
    assert found == [{"x-stream-offset": 0}, {"x-own": 1, "x-stream-offset": 1}, {"x-stream-offset": 2}]
    assert type(found[0][Symbol("x-stream-offset")]) is ULong


def test_messages_of_queues_are_passed_on_as_they_came() -> None:
    _, client = prepared()
    send(client, message(b"a"), OWN + message(b"b"))
    client.receiver("q", credit=10)
    assert annotations_in(client) == [{}, {"x-own": 1}]


def test_clients_of_rabbitmq_are_told_the_origin() -> None:
    _, client = prepared(**LIKE_RABBITMQ)
    send(client, message(b"a"), message(b"b"), OWN + message(b"c"), message(b"d", ttl=1000), message(b"e" * 90))
    client.receiver("q", credit=10)
    bodies = [body(each.payload) for each in client.inbox if isinstance(each.performative, Transfer)]
    assert bodies == [b"a", b"b", b"c", b"d", b"e" * 90]
    assert annotations_in(client) == [ORIGIN, ORIGIN, {"x-own": 1} | ORIGIN, ORIGIN, ORIGIN]


def test_the_origin_and_the_offset_are_told_together() -> None:
    _, client = prepared(**LIKE_RABBITMQ)
    send(client, message(b"a"), handle=5)
    assert read_stream(client) == [{"x-exchange": "", "x-routing-key": "s", "x-stream-offset": 0}]


def test_the_annotations_of_earlier_consumers_are_kept_beside_the_origin() -> None:
    _, client = prepared(**LIKE_RABBITMQ)
    send(client, OWN + message(b"a"))
    client.receiver("q", credit=10)
    client.inbox.clear()
    state = Modified(message_annotations={Symbol("x-opt-tries"): 2})
    client.send(0, Disposition(role=RECEIVER, first=0, settled=True, state=state))
    assert annotations_in(client) == [{"x-own": 1, "x-opt-tries": 2} | ORIGIN]


def test_large_messages_are_annotated_too() -> None:
    _, client = prepared()
    big = b"\x00\x53\x75\xb0" + (100_000).to_bytes(4, "big") + bytes(100_000)
    send(client, big, handle=5)
    client.receiver("s", 6, credit=10, source=Source("s", filter={FIRST: Described(FIRST, "first")}))
    payload = b"".join(each.payload for each in client.inbox if isinstance(each.performative, Transfer))
    assert payload.endswith(big)
    assert message_annotations(payload[split_head(payload)[1] :]) == {"x-stream-offset": 0}


@pytest.mark.parametrize(("name", "origin", "adds"), [("q", False, False), ("q", True, True), ("s", False, True)])
def test_nothing_is_looked_at_where_nothing_is_added(name: str, origin: bool, adds: bool) -> None:
    made, _ = prepared()
    queue = made.broker.directory.vhost("/").queue(name)
    assert (additions_to(queue, origin=origin) is not None) == adds
