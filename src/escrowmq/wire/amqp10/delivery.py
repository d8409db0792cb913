"""The payload of a delivery: header section, annotations, and the bare message as its publisher sent it.

Messages of other protocols are translated. The broker's annotations about a dead letter, and those of earlier
consumers, are added to the publisher's without decoding the others.
"""

from __future__ import annotations

from typing import Any, Final

from escrowmq.core.messages.envelope import Death, Envelope
from escrowmq.core.messages.marks import Marks
from escrowmq.wire.amqp10.annotations import annotated
from escrowmq.wire.amqp10.codec.encoding import encode
from escrowmq.wire.amqp10.codec.sections import Header, encode_header
from escrowmq.wire.amqp10.codec.types import Array, Symbol, Timestamp, UInt, ULong
from escrowmq.wire.amqp10.publication import PROTOCOL
from escrowmq.wire.amqp10.translation import EXCHANGE, ROUTING_KEY
from escrowmq.wire.formats import translated

DEATHS: Final = "x-opt-deaths"
"""The annotation that has the dead-letter history, as in RabbitMQ."""
_NONE: Final[dict[bytes, bytes]] = {}


def sections_of(envelope: Envelope, content: bytes, deliveries: int = 0, marks: Marks | None = None) -> bytes:
    """Return the payload of a delivery: a message of AMQP 1.0, whatever protocol it arrived over.

    Args:
        envelope: the message's envelope.
        content: its content.
        deliveries: how often it was delivered before (`Entry.deliveries`).
        marks: its marks, if it has any.
    """
    if envelope.protocol != PROTOCOL:
        envelope, content = translated(envelope, content, PROTOCOL)
    header = encode_header(
        Header(
            durable=envelope.durable,
            priority=envelope.priority,
            ttl=envelope.ttl,
            first_acquirer=not deliveries,
            delivery_count=deliveries if marks is None else marks.failures,
        )
    )
    added = annotations_of(envelope)
    if marks is not None and marks.annotations:
        added = added | {encode(Symbol(name)): value for name, value in marks.annotations.items()}
    return header + annotated(content, added)


def annotations_of(envelope: Envelope) -> dict[bytes, bytes]:
    """Return the broker's annotations of all messages of `envelope`, names and values encoded. Only dead letters have
    any.
    """
    if not envelope.deaths:
        return _NONE
    if envelope.view is None:
        first = envelope.deaths[-1]
        values: dict[str, Any] = {
            EXCHANGE: envelope.exchange,
            ROUTING_KEY: envelope.routing_key,
            DEATHS: Array([_death(death) for death in envelope.deaths]),
            "x-first-death-exchange": first.exchange,
            "x-first-death-queue": first.queue,
            "x-first-death-reason": first.reason,
        }
        envelope.view = {encode(Symbol(name)): encode(value) for name, value in values.items()}
    found: dict[bytes, bytes] = envelope.view
    return found


def _death(death: Death) -> dict[Symbol, Any]:
    table: dict[Symbol, Any] = {
        Symbol("queue"): death.queue,
        Symbol("reason"): Symbol(death.reason),
        Symbol("count"): ULong(death.times),
        Symbol("first-time"): Timestamp(death.time_ms),
        Symbol("exchange"): death.exchange,
        Symbol("routing-keys"): Array(death.routing_keys),
    }
    if death.ttl is not None:
        table[Symbol("ttl")] = UInt(min(death.ttl, 2**32 - 1))
    return table
