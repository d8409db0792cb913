"""Messages of AMQP 0-10 in the neutral form, and back (docs/guides/protocols.md)."""

from __future__ import annotations

from typing import Any, Final

from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.addresses import exchange_address, parts_of_address, queue_address
from escrowmq.wire.amqp010.codec import types
from escrowmq.wire.amqp010.codec.encoding import write_value
from escrowmq.wire.amqp010.codec.errors import CodecError
from escrowmq.wire.amqp010.codec.spec import MessageProperties, ReplyTo
from escrowmq.wire.amqp010.codec.types import Array, Datetime, Value
from escrowmq.wire.amqp010.content import DEFAULT_PRIORITY, PROTOCOL, TransferContent, unpack
from escrowmq.wire.amqp010.headers import is_expressible
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

SUBJECT: Final = "qpid.subject"
"""The header in which clients of Qpid put the subject of a message."""
KIND: Final = "x-jms-type"
"""The header in which Qpid JMS puts the type of a message."""
MESSAGE_ID: Final = "x-message-id"
"""The header for a message-id that is no UUID."""
ENCODED: Final = "amqp-1.0"
"""The type of a message whose body consists of encoded sections of AMQP 1.0, as over AMQP 0-9-1."""

_LONGEST: Final = 255
_LONGEST_BINARY: Final = 65_535
_DEEPEST: Final = 16  # levels of nested values; more than any protocol needs, and fewer than the decoder takes
_MILLISECONDS: Final = 10**11
"""Times in delivery properties from here on are in milliseconds, as Qpid JMS sends them, and not in seconds, as the
specification says. Qpid JMS sends no times in headers, so those are always in seconds."""
_URN: Final = "urn:uuid:"
_OWN: Final[dict[type, type]] = {
    Int8: types.Int8,
    Int16: types.Int16,
    Int32: types.Int32,
    UInt8: types.UInt8,
    UInt16: types.UInt16,
    UInt32: types.UInt32,
    UInt64: types.UInt64,
    Float32: types.Float,
    UniqueId: types.Uuid,
}
_NEUTRAL: Final[dict[type, type]] = {
    **{own: neutral for neutral, own in _OWN.items()},
    types.Char: str,
    types.CharUtf32: str,
    types.FixedBinary: bytes,
}
_ITEMS: Final[dict[int, type]] = {
    0x01: Int8,
    0x02: UInt8,
    0x11: Int16,
    0x12: UInt16,
    0x21: Int32,
    0x22: UInt32,
    0x23: Float32,
    0x32: UInt64,
    0x38: types.Datetime,
    0x48: UniqueId,
}
"""The types of an array's items by its code, as far as Python's own do not tell."""


# ---- to the neutral form ----


def to_neutral(envelope: Envelope, content: bytes) -> Neutral:
    """Return a message in the neutral form. If it is malformed, all of its content is the body."""
    message = Neutral(
        envelope.exchange,
        envelope.routing_key,
        envelope.extra_keys,
        envelope.deaths,
        durable=envelope.durable,
        priority=None if envelope.priority == DEFAULT_PRIORITY else envelope.priority,
        ttl=envelope.ttl,
        subject=envelope.routing_key or None,
        body=content,
    )
    try:
        found = unpack(content)
        message.body = found.body
        properties = read_properties(found.properties)
    except (CodecError, ValueError):
        return message
    headers = dict(properties.application_headers or {})
    subject, kind = headers.pop(SUBJECT, None), headers.pop(KIND, None)
    if isinstance(subject, str):
        message.subject = subject
    if kind == ENCODED:
        message.encoded = True
    elif isinstance(kind, str):
        message.kind = kind
    other_id = headers.pop(MESSAGE_ID, None)
    plain = {name: _plain(value) for name, value in headers.items() if is_expressible(value)}
    message.annotations = {name: value for name, value in plain.items() if name.startswith("x-")}
    message.properties = {name: value for name, value in plain.items() if not name.startswith("x-")}
    if properties.message_id is not None:
        message.message_id = UniqueId(properties.message_id)
    elif isinstance(other_id, str | bytes):
        message.message_id = _plain(other_id)
    message.correlation_id = _id(properties.correlation_id)
    message.user_id = properties.user_id
    message.reply_to = _address(properties.reply_to)
    message.content_type = properties.content_type
    message.content_encoding = properties.content_encoding
    message.group_id = _text(properties.app_id)
    message.created = _milliseconds(found.timestamp)
    message.expires = _milliseconds(found.expiration)
    return message


def read_properties(encoded: bytes) -> MessageProperties:
    """Decode the message properties in stored content. Raises CodecError."""
    if not encoded:
        return MessageProperties()
    found, end = MessageProperties.read(encoded, 0, len(encoded))
    if end != len(encoded):
        raise CodecError("octets follow the message properties")
    return found


def _milliseconds(time: int | None) -> int | None:
    if time is None:
        return None
    found = time if time >= _MILLISECONDS else time * 1000
    return found if found < 2**63 else None


def _id(value: bytes | None) -> Id | None:
    if value is None:
        return None
    text = _text(value)
    if text is None:
        return value
    digits = text[len(_URN) :].replace("-", "")
    if text.startswith(_URN) and len(text) == len(_URN) + 36 and len(digits) == 32:
        try:
            return UniqueId(bytes.fromhex(digits))
        except ValueError:
            return text
    return text


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _address(reply_to: ReplyTo | None) -> str | None:
    if reply_to is None:
        return None
    exchange, key = reply_to.exchange or "", reply_to.routing_key or ""
    if exchange:
        return exchange_address(exchange, key)
    return queue_address(key) if key else None


def _plain(value: Value) -> Plain:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items() if is_expressible(item)}
    if isinstance(value, Array):
        make = _ITEMS.get(value.code)
        return [_plain(item if make is None else make(item)) for item in value if is_expressible(item)]
    if isinstance(value, list):
        return [_plain(item) for item in value if is_expressible(item)]
    if isinstance(value, Datetime):
        time = value * 1000
        return Moment(time) if time < 2**63 else None
    make = _NEUTRAL.get(type(value))
    return value if make is None else make(value)


# ---- from the neutral form ----


def from_neutral(message: Neutral) -> tuple[Envelope, bytes]:
    """Return envelope and content of a message. The dead-letter history is left to the delivery."""
    headers = _headers(message.annotations | message.properties)
    if message.subject is not None and message.subject != message.routing_key:
        headers |= _headers({SUBJECT: message.subject})
    if message.encoded or message.kind is not None:
        headers |= _headers({KIND: ENCODED if message.encoded else message.kind})
    message_id = message.message_id
    if message_id is not None and not isinstance(message_id, UniqueId):
        headers |= _headers({MESSAGE_ID: str(int(message_id)) if isinstance(message_id, UInt64) else message_id})
    properties = MessageProperties(
        content_length=len(message.body),
        message_id=types.Uuid(message_id) if isinstance(message_id, UniqueId) else None,
        correlation_id=_binary(_octets(message.correlation_id)),
        reply_to=_reply_to(message.reply_to),
        content_type=_short(message.content_type),
        content_encoding=_short(message.content_encoding),
        user_id=_binary(message.user_id),
        app_id=_binary(_octets(message.group_id)),
        application_headers=headers or None,
    )
    created, expires = message.created, message.expires
    content = TransferContent(
        properties.write(),
        message.body,
        None if created is None or created < 0 else created // 1000,
        None if expires is None or expires < 0 else expires // 1000,
    )
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
    return envelope, content.pack()


def _headers(values: dict[str, Plain]) -> dict[str, Value]:
    """Headers in this protocol's types. Those that cannot be encoded are left out."""
    found: dict[str, Value] = {}
    for name, value in values.items():
        own = _own(value)
        try:
            if len(name.encode()) <= _LONGEST and _depth(own) <= _DEEPEST:
                write_value(own)
                found[name] = own
        except (CodecError, UnicodeEncodeError):
            continue
    return found


def _depth(value: Value) -> int:
    deepest, level = 0, [value]
    while level and deepest <= _DEEPEST:
        items: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                items += one.values()
            elif isinstance(one, list):
                items += one
        deepest, level = deepest + bool(items), items
    return deepest


def _own(value: Plain) -> Value:
    if isinstance(value, dict):
        return {str(name): _own(item) for name, item in value.items() if len(str(name).encode()) <= _LONGEST}
    if isinstance(value, list):
        return [_own(item) for item in value]
    if isinstance(value, Moment):
        return Datetime(max(value, 0) // 1000)
    make = _OWN.get(type(value))
    return value if make is None else make(value)


def _octets(value: Id | None) -> bytes | None:
    """An id as the octets that a client of AMQP 0-10 expects: those of its text."""
    if isinstance(value, UniqueId):
        return (_URN + uuid_text(value)).encode()
    if isinstance(value, int):
        return str(int(value)).encode()
    return value.encode() if isinstance(value, str) else value


def _binary(value: bytes | None) -> bytes | None:
    return None if value is None or len(value) > _LONGEST_BINARY else value


def _short(text: str | None) -> str | None:
    return None if text is None or len(text.encode()) > _LONGEST else text


def _reply_to(address: str | None) -> ReplyTo | None:
    if address is None:
        return None
    exchange, key = parts_of_address(address)
    if max(len(exchange.encode()), len(key.encode())) > _LONGEST:
        return None
    return ReplyTo(exchange=exchange, routing_key=key)
