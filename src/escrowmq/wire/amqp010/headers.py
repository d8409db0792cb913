"""Application headers as other parts of the broker see them: values that a publisher of AMQP 0-9-1 would have sent, and
the dead-letter history.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from escrowmq.wire.amqp010.codec.structs import Struct
from escrowmq.wire.amqp010.codec.types import Datetime, UnknownStruct, Value

if TYPE_CHECKING:
    from escrowmq.core.messages.envelope import Death, Envelope

_INEXPRESSIBLE: Final = (Decimal, Struct, UnknownStruct)


class Timestamp(int):
    """A time in seconds since the epoch, with the name by which the core knows times."""

    __slots__ = ()


def is_expressible(value: Value) -> bool:
    """Return whether other protocols have such values."""
    return not isinstance(value, _INEXPRESSIBLE)


def header_values(headers: dict[str, Value]) -> dict[str, Any]:
    """Return headers with values as a publisher of AMQP 0-9-1 would have sent them. Others are left out."""
    return {name: _header_value(value) for name, value in headers.items() if is_expressible(value)}


def _header_value(value: Value) -> Any:
    if isinstance(value, Datetime):
        return Timestamp(value)
    if isinstance(value, dict):
        return header_values(value)
    if isinstance(value, list):
        return [_header_value(item) for item in value if is_expressible(item)]
    return value


def with_history(envelope: Envelope, headers: dict[str, Value]) -> dict[str, Value]:
    """Return the headers of a dead letter: those of the message, and the headers that RabbitMQ's clients know.

    If the publisher sent such a history along, its entries follow the others.
    """
    if not envelope.deaths:
        return headers
    first, earlier = envelope.deaths[-1], headers.get("x-death")
    before = earlier if isinstance(earlier, list) else []
    history: dict[str, Value] = {"x-death": [*map(_death, envelope.deaths), *before]}
    if not any(f"x-first-death-{what}" in headers for what in ("exchange", "queue", "reason")):
        history["x-first-death-exchange"] = first.exchange
        history["x-first-death-queue"] = first.queue
        history["x-first-death-reason"] = first.reason
    return headers | history


def _death(death: Death) -> dict[str, Value]:
    table: dict[str, Value] = {
        "count": death.times,
        "reason": death.reason,
        "queue": death.queue,
        "time": Datetime(death.time_ms // 1000),
        "exchange": death.exchange,
        "routing-keys": [*death.routing_keys],
    }
    if death.ttl is not None:
        table["original-expiration"] = str(death.ttl)
    return table
