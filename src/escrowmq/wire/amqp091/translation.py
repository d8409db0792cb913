"""Messages of AMQP 0-9-1 in the neutral form, and back (docs/guides/protocols.md)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.addresses import queue_address, queue_of
from escrowmq.wire.amqp091.properties import PERSISTENT, Properties
from escrowmq.wire.amqp091.publication import PROTOCOL
from escrowmq.wire.amqp091.table import (
    Byte,
    FieldTable,
    FieldValue,
    Float,
    Long,
    LongL,
    LongStr,
    Short,
    Timestamp,
    UnsignedByte,
    UnsignedInt,
    UnsignedShort,
    encode_entry,
)
from escrowmq.wire.neutral import (
    Float32,
    Id,
    Int8,
    Int16,
    Int32,
    Moment,
    Neutral,
    Plain,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    UniqueId,
    uuid_text,
)

ENCODED: Final = "amqp-1.0"
"""The property `type` of a message whose body consists of encoded sections of AMQP 1.0, as in RabbitMQ."""
MESSAGE_ID: Final = "x-message-id"
CORRELATION_ID: Final = "x-correlation-id"
SUBJECT: Final = "x-subject"
"""Headers for properties that have no place, or no room, among those of AMQP 0-9-1."""

_LONGEST: Final = 255
_URN: Final = "urn:uuid:"
_LATEST: Final = 2**63 // 1000
_NEUTRAL: Final[dict[type, type]] = {
    Byte: Int8,
    UnsignedByte: UInt8,
    Short: Int16,
    UnsignedShort: UInt16,
    UnsignedInt: UInt32,
    Long: int,
    LongL: int,
    Float: Float32,
    LongStr: bytes,
}
_TABLE: Final[dict[type, type]] = {
    Int8: Byte,
    UInt8: UnsignedByte,
    Int16: Short,
    UInt16: UnsignedShort,
    Int32: int,
    UInt32: UnsignedInt,
    int: Long,
    UInt64: Long,
    Float32: Float,
}


# ---- to the neutral form ----


def to_neutral(envelope: Envelope, routing_key: str, props: bytes, body: bytes) -> Neutral:
    """Return a message with the publisher's properties `props` in the neutral form."""
    found = Properties.decode(props)
    headers = dict(found.headers or {})
    message_id = _id(found.message_id, headers, MESSAGE_ID)
    correlation_id = _id(found.correlation_id, headers, CORRELATION_ID)
    subject = headers.pop(SUBJECT, None)
    keys = headers.pop("CC", None)
    if keys is not None:
        headers["x-cc"] = keys
    plain = {name: _plain(value) for name, value in headers.items() if not isinstance(value, Decimal)}
    timestamp = found.timestamp
    return Neutral(
        envelope.exchange,
        routing_key,
        envelope.extra_keys,
        envelope.deaths,
        durable=envelope.durable,
        priority=found.priority,
        ttl=envelope.ttl,
        annotations={name: value for name, value in plain.items() if name.startswith("x-")},
        message_id=message_id,
        user_id=None if found.user_id is None else found.user_id.encode(),
        subject=subject if isinstance(subject, str) else routing_key or None,
        reply_to=None if found.reply_to is None else queue_address(found.reply_to),
        correlation_id=correlation_id,
        content_type=found.content_type,
        content_encoding=found.content_encoding,
        created=timestamp * 1000 if timestamp is not None and timestamp < _LATEST else None,
        group_id=found.app_id,
        kind=None if found.type == ENCODED else found.type,
        properties={name: value for name, value in plain.items() if not name.startswith("x-")},
        body=body,
        encoded=found.type == ENCODED,
    )


def _id(value: str | None, headers: FieldTable, name: str) -> Id | None:
    other = headers.pop(name, None)
    if value is None:
        return other if isinstance(other, str | bytes) else None
    digits = value[len(_URN) :].replace("-", "")
    if value.startswith(_URN) and len(value) == len(_URN) + 36 and len(digits) == 32:
        try:
            return UniqueId(bytes.fromhex(digits))
        except ValueError:
            return value
    return value


def _plain(value: FieldValue) -> Plain:
    if type(value) is int:
        return Int32(value) if -(2**31) <= value < 2**31 else value
    if isinstance(value, Timestamp):
        return Moment(value * 1000)
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items() if not isinstance(item, Decimal)}
    if isinstance(value, list):
        return [_plain(item) for item in value if not isinstance(item, Decimal)]
    make = _NEUTRAL.get(type(value))
    return value if make is None else make(value)


# ---- from the neutral form ----


def from_neutral(message: Neutral) -> tuple[Envelope, bytes]:
    """Return envelope and body of a message. Dead-letter headers are left to the delivery."""
    headers: FieldTable = {}
    properties = Properties(
        content_type=_short(message.content_type),
        content_encoding=_short(message.content_encoding),
        delivery_mode=PERSISTENT if message.durable else 1,
        priority=message.priority,
        correlation_id=_text_of(message.correlation_id, headers, CORRELATION_ID),
        reply_to=None if message.reply_to is None else _short(queue_of(message.reply_to)),
        expiration=None if message.ttl is None else str(message.ttl),
        message_id=_text_of(message.message_id, headers, MESSAGE_ID),
        timestamp=None if message.created is None or message.created < 0 else message.created // 1000,
        type=ENCODED if message.encoded else _short(message.kind),
        user_id=None if message.user_id is None else _user(message.user_id),
        app_id=_short(message.group_id),
    )
    if message.subject is not None and message.subject != message.routing_key:
        headers[SUBJECT] = message.subject
    for name, value in (message.annotations | message.properties).items():
        if len(name.encode()) <= _LONGEST:
            headers["CC" if name == "x-cc" else name] = _field(value)
    properties.headers = headers or None
    envelope = Envelope(
        message.exchange,
        message.routing_key,
        properties.encode(),
        protocol=PROTOCOL,
        durable=message.durable,
        priority=message.priority or 0,
        ttl=message.ttl,
        extra_keys=message.extra_keys,
        deaths=message.deaths,
    )
    return envelope, message.body


def fitted(props: bytes, room: int) -> bytes:
    """Return properties without as many headers as necessary for them to have at most `room` bytes, the longest first.
    A header frame cannot be divided, and messages of other protocols may have more headers than a client accepts.
    """
    over = len(props) - room
    if over <= 0:
        return props
    properties = Properties.decode(props)
    headers = properties.headers or {}
    sizes = {name: len(encode_entry(name, value)) for name, value in headers.items()}
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        if over <= 0:
            break
        del headers[name]
        over -= sizes[name]
    return properties.encode()


def _short(text: str | None) -> str | None:
    """`text`, unless it does not fit into a short string."""
    return None if text is None or len(text.encode()) > _LONGEST else text


def _user(user_id: bytes) -> str | None:
    try:
        return _short(user_id.decode())
    except UnicodeDecodeError:
        return None


def _text_of(value: Id | None, headers: FieldTable, name: str) -> str | None:
    """An id as a short string; one that has no such form goes into the header `name`."""
    if isinstance(value, UniqueId):
        return _uuid(value)
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, bytes) or (value is not None and _short(value) is None):
        headers[name] = value
        return None
    return value


def _uuid(value: bytes) -> str:
    return _URN + uuid_text(value)


def _field(value: Any) -> FieldValue:
    kind = type(value)
    if kind is UniqueId:
        return _uuid(value)
    if kind is Moment:
        return Timestamp(max(value, 0) // 1000)
    if isinstance(value, dict):
        return {str(name): _field(item) for name, item in value.items() if len(str(name).encode()) <= _LONGEST}
    if isinstance(value, list):
        return [_field(item) for item in value]
    if kind is UInt64 and value >= 2**63:
        return str(int(value))
    make = _TABLE.get(kind)
    return value if make is None else make(value)  # type: ignore[no-any-return]
