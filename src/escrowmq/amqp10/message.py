"""A message with all sections of AMQP 1.0, built by keyword arguments, encoded once, and decoded on demand."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from escrowmq.amqp10.errors import UsageError
from escrowmq.wire.amqp10.codec import sections
from escrowmq.wire.amqp10.codec.composite import encode_composite
from escrowmq.wire.amqp10.codec.encoding import decode
from escrowmq.wire.amqp10.codec.errors import CodecError
from escrowmq.wire.amqp10.codec.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
)
from escrowmq.wire.amqp10.codec.types import Symbol, Timestamp, ULong, Uuid

_HEADER_FIELDS: Final = ("durable", "priority", "ttl", "first_acquirer", "delivery_count")
_PROPERTY_FIELDS: Final = (
    "message_id",
    "user_id",
    "to",
    "subject",
    "reply_to",
    "correlation_id",
    "content_type",
    "content_encoding",
    "absolute_expiry_time",
    "creation_time",
    "group_id",
    "group_sequence",
    "reply_to_group_id",
)
_DURABLE_HEADER: Final = b"\x00\x53\x70\xc0\x02\x01\x41"


class AmqpValue:
    """A body that is sent as an amqp-value section, whatever its type: `Message(AmqpValue(b"..."))`."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AmqpValue) and self.value == other.value

    def __hash__(self) -> int:
        return hash((AmqpValue, repr(self.value)))

    def __repr__(self) -> str:
        return f"AmqpValue({self.value!r})"


class AmqpSequence(list[Any]):
    """A body that is sent as an amqp-sequence section: `Message(AmqpSequence([1, 2, 3]))`."""


class Message:
    """A message to send, or one that was received.

    `body` is bytes (a data section), an `AmqpSequence`, or any other value (an amqp-value section; `AmqpValue` forces
    it). The keyword arguments are the fields of header and properties. A `uuid.UUID` is accepted as an id. Times are
    aware `datetime` objects or milliseconds since 1970; `ttl` is a `timedelta` or milliseconds. `annotations`,
    `application_properties`, `delivery_annotations` and `footer` are mappings. `durable=False` makes it transient.
    """

    __slots__ = (
        "annotations",
        "application_properties",
        "body",
        "delivery_annotations",
        "footer",
        "header",
        "properties",
    )

    def __init__(
        self,
        body: Any = b"",
        *,
        application_properties: Mapping[str, Any] | None = None,
        annotations: Mapping[str, Any] | None = None,
        delivery_annotations: Mapping[str, Any] | None = None,
        footer: Mapping[str, Any] | None = None,
        durable: bool = True,
        **fields: Any,
    ) -> None:
        self.body = body
        self.application_properties = dict(application_properties or {})
        self.annotations = _symbols(annotations)
        self.delivery_annotations = _symbols(delivery_annotations)
        self.footer = _symbols(footer)
        self.header: dict[str, Any] = {"durable": durable}
        self.properties: dict[str, Any] = {}
        for name, value in fields.items():
            if name in _HEADER_FIELDS:
                self.header[name] = value
            elif name in _PROPERTY_FIELDS:
                self.properties[name] = value
            else:
                raise UsageError(f"a message has no field {name!r}; put it into application_properties or annotations")

    def __getattr__(self, name: str) -> Any:
        """Return a field of the header or of the properties; None if it is not set."""
        if name in _PROPERTY_FIELDS:
            return self.properties.get(name)
        if name in _HEADER_FIELDS:
            return self.header.get(name)
        raise AttributeError(f"a message has no field {name!r}")

    def __repr__(self) -> str:
        fields = "".join(f", {name}={value!r}" for name, value in self.properties.items())
        return f"Message({self.body!r}{fields})"

    def encode(self) -> bytes:
        """Return all sections in wire format.

        Raises:
            UsageError: A value cannot be encoded.
        """
        try:
            return b"".join(self._sections())
        except (CodecError, TypeError, ValueError, OverflowError) as error:
            raise UsageError(f"the message cannot be encoded: {error}") from error

    def _sections(self) -> list[bytes]:
        found = [_DURABLE_HEADER if self.header == {"durable": True} else _header(self.header)]
        if self.delivery_annotations:
            found.append(sections.encode_section(DELIVERY_ANNOTATIONS, self.delivery_annotations))
        if self.annotations:
            found.append(sections.encode_section(MESSAGE_ANNOTATIONS, self.annotations))
        if self.properties:
            found.append(_properties(self.properties))
        if self.application_properties:
            plain = {key: _plain(value) for key, value in self.application_properties.items()}
            found.append(sections.encode_section(APPLICATION_PROPERTIES, plain))
        found.append(encode_body(self.body))
        if self.footer:
            found.append(sections.encode_section(FOOTER, self.footer))
        return found

    @classmethod
    def decode(cls, data: bytes) -> Message:
        """Return the message in `data`, which holds all its sections.

        Raises:
            UsageError: The bytes are not a message of AMQP 1.0. The delivery can be rejected.
        """
        try:
            return _decoded(cls, data)
        except CodecError as error:
            raise UsageError(f"the message cannot be decoded: {error}") from error


def encode_body(body: Any) -> bytes:
    """Return the body's section in wire format."""
    if isinstance(body, bytes | bytearray | memoryview):
        size = len(body)
        if size < 256:
            return b"\x00\x53\x75\xa0" + size.to_bytes(1, "big") + body
        return b"\x00\x53\x75\xb0" + size.to_bytes(4, "big") + body
    if isinstance(body, AmqpSequence):
        return sections.encode_section(SEQUENCE, [_plain(item) for item in body])
    return sections.encode_section(VALUE, _plain(body.value if isinstance(body, AmqpValue) else body))


def _header(fields: Mapping[str, Any]) -> bytes:
    ttl = fields.get("ttl")
    return sections.encode_header(
        sections.Header(
            durable=bool(fields.get("durable", False)),
            priority=fields.get("priority", 4),
            ttl=None if ttl is None else _milliseconds(ttl),
            first_acquirer=bool(fields.get("first_acquirer", False)),
            delivery_count=fields.get("delivery_count", 0),
        )
    )


def _properties(fields: Mapping[str, Any]) -> bytes:
    values = {name: _plain(value) for name, value in fields.items() if value is not None}
    if isinstance(values.get("user_id"), str):
        values["user_id"] = values["user_id"].encode()
    for name in ("message_id", "correlation_id"):
        if type(values.get(name)) is int:
            values[name] = ULong(values[name])
    return encode_composite(sections.Properties(**values))


def _plain(value: Any) -> Any:
    """Convert Python's own types for UUIDs and times into those of the codec."""
    if isinstance(value, uuid.UUID):
        return Uuid(value.bytes)
    if isinstance(value, datetime):
        return Timestamp(round(value.timestamp() * 1000))
    return value


def _milliseconds(value: Any) -> int:
    return value // timedelta(milliseconds=1) if isinstance(value, timedelta) else int(value)


def _symbols(given: Mapping[str, Any] | None) -> dict[Any, Any]:
    return {Symbol(key) if type(key) is str else key: _plain(value) for key, value in (given or {}).items()}


def moment(milliseconds: int) -> datetime:
    """Return a time of a message, such as `creation_time`, as an aware `datetime`."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _native(value: Any) -> Any:
    return uuid.UUID(bytes=bytes(value)) if isinstance(value, Uuid) else value


def _decoded(kind: type[Message], data: bytes) -> Message:
    message = kind()
    message.header = {}
    bodies: list[tuple[int, Any]] = []
    at, end = 0, len(data)
    while at < end:
        value, at = decode(data, at, end)
        code = getattr(value, "descriptor", None)
        code = _SYMBOLS.get(code, code)
        content = getattr(value, "value", None)
        if code in (DATA, SEQUENCE, VALUE):
            bodies.append((code, content))
        elif code == HEADER:
            message.header = dict(zip(_HEADER_FIELDS, content or (), strict=False))
        elif code == PROPERTIES:
            named = zip(_PROPERTY_FIELDS, content or (), strict=False)
            message.properties = {name: _native(field) for name, field in named if field is not None}
        elif code in _MAPPINGS and isinstance(content, dict):
            setattr(message, _MAPPINGS[code], {key: _native(field) for key, field in content.items()})
        else:
            raise CodecError(f"{code!r} is no section of a message")
    message.body = _body(bodies)
    return message


def _body(bodies: list[tuple[int, Any]]) -> Any:
    if not bodies:
        return None
    code, first = bodies[0]
    if code == DATA:
        return first if len(bodies) == 1 else b"".join(content for _, content in bodies)
    if code == SEQUENCE:
        return AmqpSequence(item for _, content in bodies for item in content)
    return AmqpValue(first) if isinstance(first, bytes) else _native(first)


_MAPPINGS: Final = {
    DELIVERY_ANNOTATIONS: "delivery_annotations",
    MESSAGE_ANNOTATIONS: "annotations",
    APPLICATION_PROPERTIES: "application_properties",
    FOOTER: "footer",
}
_SYMBOLS: Final[dict[Any, int]] = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}
