"""The identifiers of JMS selectors: the header fields and defined properties of JMS, as fields of AMQP 1.0.

The conversions are those of the specification *AMQP JMS Mapping*, which Qpid JMS follows. Every other identifier is an
application property.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from escrowmq.wire.selectors.operators import Evaluate, field
from escrowmq.wire.selectors.values import APPLICATION, MessageFields

DEFAULT_PRIORITY: Final = 4
_UUID: Final = "ID:AMQP_UUID:"


def identifier_text(value: object) -> object:
    """Return a message-id or correlation-id as JMS shows it: strings as they are, other types with a prefix."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return f"ID:AMQP_ULONG:{value}"
    if isinstance(value, bytes):
        digits = value.hex()
        if type(value) is bytes:
            return f"ID:AMQP_BINARY:{digits.upper()}"
        return f"{_UUID}{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
    return value


def _delivery_mode(value: object) -> object:
    return "PERSISTENT" if value is True else "NON_PERSISTENT"


def _priority(value: object) -> object:
    return DEFAULT_PRIORITY if value is None else value


def _deliveries(value: object) -> object:
    return value + 1 if isinstance(value, int) else 1


def _redelivered(value: object) -> object:
    return isinstance(value, int) and value > 0


def _text(value: object) -> object:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


NAMES: Final[Mapping[str, tuple[str, Callable[[object], object] | None]]] = MappingProxyType(
    {
        "JMSDeliveryMode": ("header.durable", _delivery_mode),
        "JMSPriority": ("header.priority", _priority),
        "JMSRedelivered": ("header.delivery-count", _redelivered),
        "JMSXDeliveryCount": ("header.delivery-count", _deliveries),
        "JMSMessageID": ("properties.message-id", identifier_text),
        "JMSCorrelationID": ("properties.correlation-id", identifier_text),
        "JMSTimestamp": ("properties.creation-time", None),
        "JMSExpiration": ("properties.absolute-expiry-time", None),
        "JMSType": ("properties.subject", None),
        "JMSDestination": ("properties.to", None),
        "JMSReplyTo": ("properties.reply-to", None),
        "JMSXUserID": ("properties.user-id", _text),
        "JMSXGroupID": ("properties.group-id", None),
        "JMSXGroupSeq": ("properties.group-sequence", None),
    }
)
"""The field of each name, and how its value is converted."""


def _qpid_identifier(value: object) -> object:
    """Return a message-id as Qpid JMS for AMQP 0-10 shows it, whose ids are UUIDs."""
    text = identifier_text(value)
    return "ID:" + text.removeprefix(_UUID) if isinstance(text, str) and text.startswith(_UUID) else text


_QPID_NAMES: Final = {**NAMES, "JMSMessageID": ("properties.message-id", _qpid_identifier)}


def jms_name(name: str) -> Evaluate:
    """Return what an identifier of a JMS selector stands for."""
    return _evaluate(name, NAMES)


def qpid_name(name: str) -> Evaluate:
    """Return what an identifier of a selector stands for that a client of AMQP 0-10 sends."""
    return _evaluate(name, _QPID_NAMES)


def _evaluate(name: str, names: Mapping[str, tuple[str, Callable[[object], object] | None]]) -> Evaluate:
    found, convert = names.get(name, (APPLICATION + name, None))
    if convert is None:
        return field(found)
    converted = convert

    def evaluate(values: MessageFields) -> object:
        return converted(values.value(found))

    return evaluate
