"""Messages of AMQP 1.0 in the neutral form, and back (docs/guides/protocols.md)."""

from __future__ import annotations

from typing import Any, Final

from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.amqp10.codec import sections, types
from escrowmq.wire.amqp10.codec.composite import encode_composite, resolve
from escrowmq.wire.amqp10.codec.encoding import compound, decode, encode
from escrowmq.wire.amqp10.codec.errors import CodecError
from escrowmq.wire.amqp10.codec.sections import Layout, Properties
from escrowmq.wire.amqp10.codec.types import Described, Symbol, Value
from escrowmq.wire.amqp10.publication import PROTOCOL
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
)

DEFAULT_PRIORITY: Final = 4
KIND: Final = "x-basic-type"
"""The annotation for the property `type` of AMQP 0-9-1, as in RabbitMQ."""
EXCHANGE: Final = "x-exchange"
ROUTING_KEY: Final = "x-routing-key"
"""Annotations that say where a message of another protocol was published, as in RabbitMQ."""

_OWN: Final[dict[type, type]] = {
    Int8: types.Byte,
    Int16: types.Short,
    Int32: types.Int,
    UInt8: types.UByte,
    UInt16: types.UShort,
    UInt32: types.UInt,
    UInt64: types.ULong,
    Float32: types.Float,
    Moment: types.Timestamp,
    UniqueId: types.Uuid,
}
_NEUTRAL: Final[dict[type, type]] = {
    **{own: neutral for neutral, own in _OWN.items()},
    types.Char: str,
    types.Symbol: str,
}
_INEXPRESSIBLE: Final = (Described, types.Decimal32, types.Decimal64, types.Decimal128)


# ---- to the neutral form ----


def to_neutral(envelope: Envelope, content: bytes) -> Neutral:
    """Return a message in the neutral form. If its sections are malformed, all of its content is the body."""
    message = Neutral(
        envelope.exchange,
        envelope.routing_key,
        envelope.extra_keys,
        envelope.deaths,
        durable=envelope.durable,
        priority=None if envelope.priority == DEFAULT_PRIORITY else envelope.priority,
        ttl=envelope.ttl,
        body=content,
        encoded=True,
    )
    try:
        layout = sections.layout(content)
        annotations = _plain(sections.read_map(content, layout.message_annotations))
        properties = _plain(sections.read_map(content, layout.application_properties))
        found = _properties(content, layout)
        body, encoded = _body(content, layout)
    except CodecError:
        return message
    message.annotations, message.properties, message.body, message.encoded = annotations, properties, body, encoded
    annotations.pop(EXCHANGE, None)
    annotations.pop(ROUTING_KEY, None)
    kind = annotations.pop(KIND, None)
    message.kind = kind if isinstance(kind, str) else None
    message.message_id = _id(found.message_id)
    message.user_id = found.user_id
    message.to = found.to
    message.subject = found.subject
    message.reply_to = found.reply_to
    message.correlation_id = _id(found.correlation_id)
    message.content_type = found.content_type
    message.content_encoding = found.content_encoding
    message.expires = found.absolute_expiry_time
    message.created = found.creation_time
    message.group_id = found.group_id
    message.group_sequence = found.group_sequence
    message.reply_to_group_id = found.reply_to_group_id
    return message


def _properties(content: bytes, layout: Layout) -> Properties:
    if layout.properties is None:
        return Properties()
    found = resolve(decode(content, *layout.properties)[0])
    if type(found) is not Properties:
        raise CodecError("the properties of a message are malformed")
    return found


def _body(content: bytes, layout: Layout) -> tuple[bytes, bool]:
    """The octets of a single data section; any other body as it is encoded."""
    if layout.body is None:
        return b"", False
    at, end = layout.body
    if content[at : at + 3] == b"\x00\x53\x75":
        value, stop = decode(content, at + 3, end)
        if stop == end and type(value) is bytes:
            return value, False
    return content[at:end], True


def _id(value: Value) -> Id | None:
    plain = _plain(value)
    return plain if isinstance(plain, str | bytes | UInt64) else None


def _plain(value: Value) -> Plain:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items() if not isinstance(item, _INEXPRESSIBLE)}
    if isinstance(value, list):
        return [_plain(item) for item in value if not isinstance(item, _INEXPRESSIBLE)]
    make = _NEUTRAL.get(type(value))
    return value if make is None else make(value)


# ---- from the neutral form ----


def from_neutral(message: Neutral) -> tuple[Envelope, bytes]:
    """Return envelope and content of a message. The dead-letter history is left to the delivery."""
    annotations = {name: value for name, value in message.annotations.items() if name.isascii()}
    others = {name: value for name, value in message.annotations.items() if not name.isascii()}
    annotations[EXCHANGE] = message.exchange
    annotations[ROUTING_KEY] = message.routing_key
    if message.kind is not None:
        annotations[KIND] = message.kind
    properties = encode_composite(
        Properties(
            message_id=_own(message.message_id),
            user_id=message.user_id,
            to=message.to,
            subject=message.subject,
            reply_to=message.reply_to,
            correlation_id=_own(message.correlation_id),
            content_type=_symbol(message.content_type),
            content_encoding=_symbol(message.content_encoding),
            absolute_expiry_time=message.expires,
            creation_time=message.created,
            group_id=message.group_id,
            group_sequence=message.group_sequence,
            reply_to_group_id=message.reply_to_group_id,
        )
    )
    simple = {
        name: value
        for name, value in (others | message.properties).items()
        if not isinstance(value, dict | list)  # application properties have only simple values
    }
    parts = [
        _section(sections.MESSAGE_ANNOTATIONS, {Symbol(name): value for name, value in annotations.items()}),
        properties if len(properties) > len(_NOTHING) else b"",
        _section(sections.APPLICATION_PROPERTIES, simple),
        message.body if message.encoded and _is_body(message.body) else b"\x00\x53\x75" + encode(message.body),
    ]
    envelope = Envelope(
        message.exchange,
        message.routing_key,
        protocol=PROTOCOL,
        durable=message.durable,
        priority=DEFAULT_PRIORITY if message.priority is None else message.priority,
        ttl=message.ttl,
        extra_keys=message.extra_keys,
        deaths=message.deaths,
    )
    return envelope, b"".join(parts)


_NOTHING: Final = encode_composite(Properties())


def _section(code: int, values: dict[Any, Plain]) -> bytes:
    """A section with a map; empty without entries. Entries that cannot be encoded are left out."""
    items = []
    for name, value in values.items():
        try:
            items.append(encode(name) + encode(_own(value)))
        except CodecError:
            continue
    if not items:
        return b""
    return bytes((0, 0x53, code)) + compound(0xC1, 2 * len(items), b"".join(items))


def _own(value: Plain) -> Value:
    if isinstance(value, dict):
        return {name: _own(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_own(item) for item in value]
    make = _OWN.get(type(value))
    return value if make is None else make(value)


def _symbol(text: str | None) -> str | None:
    return text if text is not None and text.isascii() else None


def _is_body(data: bytes) -> bool:
    """Whether `data` consists of body sections only."""
    try:
        return sections.layout(data).body == (0, len(data))
    except CodecError:
        return False
