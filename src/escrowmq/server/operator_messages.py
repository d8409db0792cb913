"""Messages that operators publish and take, in the form of AMQP 0-9-1: their properties as values of JSON."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.amqp091.codes import BASIC_PROPERTIES
from escrowmq.wire.amqp091.delivery import parts_of
from escrowmq.wire.amqp091.keyed import routing_key_of
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.publication import envelope_of

_TYPES: Final[Mapping[str, tuple[type, str]]] = {
    "shortstr": (str, "a text"),
    "table": (dict, "an object"),
    "octet": (int, "a whole number"),
    "timestamp": (int, "a whole number"),
}
"""The values of JSON for each type of a property."""


def composed(exchange: str, routing_key: str, properties: Mapping[str, Any], user: str, most: int) -> Envelope:
    """Return the envelope of a message with these properties, which have at most `most` bytes when encoded. Raises
    INVALID_ARGUMENT for others, and PRECONDITION_FAILED for the name of another user.
    """
    known = [name for name, _ in BASIC_PROPERTIES]
    for name in properties:
        if name not in known:
            raise BrokerError(Condition.INVALID_ARGUMENT, f"unknown property {name!r}; known ones: {', '.join(known)}")
    claimed = properties.get("user_id")
    if claimed is not None and user and claimed != user:
        raise BrokerError(
            Condition.PRECONDITION_FAILED,
            f"user_id property set to '{claimed}' but authenticated user was '{user}'",
        )
    for name, kind in BASIC_PROPERTIES:
        value, (types, needed) = properties.get(name), _TYPES[kind]
        if value is not None and (not isinstance(value, types) or isinstance(value, bool)):
            raise BrokerError(Condition.INVALID_ARGUMENT, f"property {name}: {needed} is needed")
    try:
        encoded = Properties(**properties).encode()
    except (ValueError, TypeError, AttributeError) as error:
        raise BrokerError(Condition.INVALID_ARGUMENT, f"invalid properties: {error}") from error
    if len(encoded) > most:
        raise BrokerError(Condition.INVALID_ARGUMENT, f"the properties have more than {most} bytes")
    return envelope_of(exchange, routing_key, encoded)[0]


def delivered(envelope: Envelope, content: bytes) -> tuple[str, dict[str, Any], bytes]:
    """Return routing key, properties and body of a message as a client would get them."""
    encoded, body = parts_of(envelope, content)
    properties = Properties.decode(encoded)
    found = {name: getattr(properties, name) for name, _ in BASIC_PROPERTIES}
    shown = {name: _plain(value) for name, value in found.items() if value is not None}
    return routing_key_of(envelope, content), shown, body


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    return str(value) if isinstance(value, Decimal) else value
