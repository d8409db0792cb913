"""Messages of the load as transfers of AMQP 0-10."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

from escrowmq.perf.block import PublishBlock
from escrowmq.perf.messages import LoadMessage
from escrowmq.wire.amqp010.codec.commands import encode_command, encode_header
from escrowmq.wire.amqp010.codec.frames import BODY, COMMAND, HEAD_SIZE, HEADER, Segment, assembly
from escrowmq.wire.amqp010.codec.spec import (
    AcceptMode,
    AcquireMode,
    DeliveryMode,
    DeliveryProperties,
    MessageProperties,
    MessageTransfer,
)

_PRIORITY = 4  # of messages that have none
_BEFORE_BODY = 4  # pieces: heads and payloads of the command and of the header


def header_of(message: LoadMessage, exchange: str, routing_key: str, *, durable: bool) -> bytes:
    """Return the header segment of a message, as clients fill it in. Ids are UUIDs, as the protocol has them."""
    delivery = DeliveryProperties(
        priority=_PRIORITY if message.priority is None else message.priority,
        delivery_mode=DeliveryMode.PERSISTENT if durable else DeliveryMode.NON_PERSISTENT,
        timestamp=message.timestamp,
        exchange=exchange,
        routing_key=routing_key,
    )
    own = MessageProperties(
        content_length=len(message.body),
        message_id=None if message.message_id is None else UUID(message.message_id).bytes,
        correlation_id=None if message.correlation_id is None else message.correlation_id.encode(),
        content_type="application/octet-stream",
        application_headers=None if message.headers is None else dict(message.headers),
    )
    return encode_header([delivery, own])


def transfer_block(
    made: Iterable[LoadMessage],
    channel: int,
    exchange: str,
    keys: Iterator[str],
    *,
    durable: bool,
    explicit: bool,
    frame_max: int,
) -> PublishBlock:
    """Transfers of these messages, under the next routing keys. The broker is to accept each if that is `explicit`."""
    accepts = AcceptMode.EXPLICIT if explicit else AcceptMode.NONE
    command = encode_command(MessageTransfer(exchange, accepts, AcquireMode.PRE_ACQUIRED))
    units: list[bytes] = []
    bodies_at: list[int] = []
    for message, key in zip(made, keys, strict=False):
        head: list[Segment] = [
            (COMMAND, command),
            (HEADER, header_of(message, exchange, key, durable=durable)),
            (BODY, message.body),
        ]
        pieces = assembly(channel, head, frame_max)
        bodies_at.append(sum(map(len, pieces[:_BEFORE_BODY])) + HEAD_SIZE)
        units.append(b"".join(pieces))
    return PublishBlock(units, bodies_at)
