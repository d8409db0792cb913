"""Queues, transfers and subscriptions for the tests beside this file."""

from __future__ import annotations

from typing import Any, NamedTuple

from escrowmq.core.queues.queue import Queue, Session
from escrowmq.core.topology.declaration import Declaration
from escrowmq.wire.amqp010.codec.commands import decode_header, encode_header
from escrowmq.wire.amqp010.codec.spec import (
    CreditUnit,
    DeliveryProperties,
    MessageFlow,
    MessageProperties,
    MessageSubscribe,
    MessageTransfer,
    SessionCompleted,
)
from escrowmq.wire.amqp010.credit import INFINITE
from tests.unit.wire.amqp010.clients import Client, SharingServer


class Delivered(NamedTuple):
    """A transfer from the server."""

    transfer: MessageTransfer
    delivery: DeliveryProperties
    properties: MessageProperties | None
    body: bytes


def queue(server: SharingServer, name: str = "q", *, durable: bool = True, **arguments: object) -> Queue:
    """Declare a queue. Names of arguments get the prefix `x-`, and hyphens for underscores."""
    vhost = server.broker.directory.vhost("/")
    named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    return server.broker.directory.declare_queue(
        vhost, name, Declaration(durable=durable, arguments=named), Session("test")
    )


def header(properties: MessageProperties | None = None, **delivery: Any) -> bytes:
    """Return a header segment with these delivery properties."""
    structs: list[Any] = [DeliveryProperties(**delivery)]
    return encode_header([*structs, properties] if properties is not None else structs)


def octets(client: Client, body: bytes, key: str = "q", *, mode: int | None = 1, to: str = "", **more: Any) -> bytes:
    """Return the frames of a transfer. `mode` is the accept-mode, which is none unless told otherwise."""
    channel = more.pop("channel", 1)
    head = more.pop("header", None) or header(routing_key=key, **more)
    return client.octets(MessageTransfer(to, mode, 0), channel=channel, header=head, body=body)


def publish(client: Client, *bodies: bytes, key: str = "q", **more: Any) -> None:
    """Send transfers in one turn."""
    client.send_bytes(b"".join([octets(client, body, key, **more) for body in bodies]))


def subscribe(
    client: Client,
    name: str = "q",
    *,
    to: str = "d",
    credit: int | None = INFINITE,
    size: int | None = INFINITE,
    channel: int = 1,
    **fields: Any,
) -> None:
    """Subscribe, with credit in messages and in bytes."""
    chosen = {"accept_mode": 0, "acquire_mode": 0} | fields
    client.do(MessageSubscribe(name, to, **chosen), channel=channel)
    if size is not None:
        client.do(MessageFlow(to, CreditUnit.BYTE, size), channel=channel)
    if credit is not None:
        flow(client, credit, to=to, channel=channel)


def flow(client: Client, value: int, unit: int = CreditUnit.MESSAGE, *, to: str = "d", channel: int = 1) -> None:
    """Add to a credit. Deliveries may follow before the completion or after it."""
    number = client.command(MessageFlow(to, unit, value), channel=channel)
    found = [one for one in client.inbox if isinstance(one.operation, SessionCompleted)]
    assert [one.operation.commands for one in found] == [((number, number),)]
    client.inbox.remove(found[0])


def delivered(client: Client) -> list[Delivered]:
    """Return the transfers that have arrived, which must be all that has."""
    found = []
    while client.inbox:
        received = client.expect_message(MessageTransfer)
        assert received.content is not None
        structs: dict[type, Any] = {type(one): one for one in decode_header(received.content.header)}
        found.append(
            Delivered(
                received.operation,
                structs[DeliveryProperties],
                structs.get(MessageProperties),
                received.content.body,
            )
        )
    return found


def bodies(client: Client) -> list[bytes]:
    """Return the bodies of the transfers that have arrived."""
    return [one.body for one in delivered(client)]
