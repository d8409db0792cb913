"""The sections of a message (part 3, section 3.2), found by their sizes; values are read only on request.

    header, delivery annotations, message annotations, properties, application properties, body, footer

All but the body are optional. The bare message is properties, application properties and body.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from escrowmq.wire.amqp10.codec.composite import (
    BINARY,
    BOOLEAN,
    MESSAGE_ID,
    STRING,
    SYMBOL,
    TIMESTAMP,
    UBYTE,
    UINT,
    composite,
    resolve,
)
from escrowmq.wire.amqp10.codec.decoding import items_of
from escrowmq.wire.amqp10.codec.encoding import compound, decode, encode, skip
from escrowmq.wire.amqp10.codec.errors import CodecError
from escrowmq.wire.amqp10.codec.types import Described, Symbol, ULong, Uuid, Value

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78
MOST_SECTIONS: Final = 5_000
"""Sections of one message."""

_NAMES: Final = {
    b"amqp:header:list": HEADER,
    b"amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    b"amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    b"amqp:properties:list": PROPERTIES,
    b"amqp:application-properties:map": APPLICATION_PROPERTIES,
    b"amqp:data:binary": DATA,
    b"amqp:amqp-sequence:list": SEQUENCE,
    b"amqp:amqp-value:*": VALUE,
    b"amqp:footer:map": FOOTER,
}

Extent: TypeAlias = tuple[int, int]
"""Start and end of a section, with its descriptor."""


@composite(HEADER, "amqp:header:list", BOOLEAN, UBYTE, UINT, BOOLEAN, UINT)
@dataclass(slots=True)
class Header:
    """Details of the delivery. `ttl` is in milliseconds; `delivery_count` is that of unsuccessful attempts."""

    durable: bool = False
    priority: int = 4
    ttl: int | None = None
    first_acquirer: bool = False
    delivery_count: int = 0


@composite(
    PROPERTIES,
    "amqp:properties:list",
    MESSAGE_ID,
    BINARY,
    STRING,
    STRING,
    STRING,
    MESSAGE_ID,
    SYMBOL,
    SYMBOL,
    TIMESTAMP,
    TIMESTAMP,
    STRING,
    UINT,
    STRING,
)
@dataclass(slots=True)
class Properties:
    """The standard properties of a bare message. Times are in milliseconds since the epoch."""

    message_id: ULong | Uuid | bytes | str | None = None
    user_id: bytes | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: ULong | Uuid | bytes | str | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_time: int | None = None
    creation_time: int | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None


class Layout(NamedTuple):
    """The extents of a message's sections. `body` is from the first to the last of its sections."""

    message_annotations: Extent | None
    properties: Extent | None
    application_properties: Extent | None
    body: Extent | None
    footer: Extent | None


class Data(tuple[bytes, ...]):
    """A body of data sections."""

    __slots__ = ()


class Sequence(tuple[list[Value], ...]):
    """A body of sequence sections."""

    __slots__ = ()


Body: TypeAlias = "Data | Sequence | Described | None"
"""A body: Data, Sequence, Described(VALUE, value), or None if it is missing."""


def _section(data: bytes, at: int, end: int) -> tuple[int, int, int]:
    """(code, start of the value, end) of the section at `at`."""
    if data[at : at + 2] == b"\x00\x53" and at + 3 < end:
        code, start = data[at + 2], at + 3
    else:
        if at >= end or data[at]:
            raise CodecError("a section of a message has no descriptor")
        start = skip(data, at + 1, end)
        descriptor, _ = decode(data, at + 1, start)
        code = _code(descriptor)
    if not HEADER <= code <= FOOTER:
        raise CodecError(f"a section of a message has the unknown descriptor {code:#x}")
    return code, start, skip(data, start, end)


def section_end(payload: bytes, at: int) -> int:
    """Return the end of the section at `at`. Raises CodecError if it is malformed or cut off."""
    return _section(payload, at, len(payload))[2]


def _code(descriptor: Value) -> int:
    if type(descriptor) is ULong:
        return int(descriptor)
    if type(descriptor) is Symbol:
        return _NAMES.get(descriptor.encode(), 0)
    raise CodecError("the descriptor of a section is neither ulong nor symbol")


def split_head(payload: bytes) -> tuple[bytes, int]:
    """Return the encoded header section (empty if there is none), and the offset at which the content begins: the
    message annotations and all that follows. Delivery annotations lie between the two.

    Raises CodecError if one of these two sections is malformed. Later ones are not read.
    """
    header = b""
    at = 0
    end = len(payload)
    if payload[:3] == b"\x00\x53\x70" and payload[3:4] == b"\xc0" and end > 4:
        at = 5 + payload[4]
        header = payload[:at]
        if at > end:
            raise CodecError("the header section is cut off")
    while payload[at : at + 1] == b"\x00" and payload[at + 1 : at + 3] not in _CONTENT:
        code, _, stop = _section(payload, at, end)
        if code > DELIVERY_ANNOTATIONS:
            break
        if code == HEADER:
            if at:
                raise CodecError("a message has its header section in the wrong place")
            header = payload[:stop]
        at = stop
    return header, at


_CONTENT: Final = frozenset(bytes((0x53, code)) for code in range(MESSAGE_ANNOTATIONS, FOOTER + 1))


def decode_header(section: bytes) -> Header:
    """Return a header section; an empty one gives the defaults. Raises CodecError if it is malformed."""
    if not section:
        return Header()
    value, at = decode(section)
    header = resolve(value)
    if type(header) is not Header or at != len(section):
        raise CodecError("a header section is malformed")
    return header


def encode_header(header: Header) -> bytes:
    """Return a header section in its smallest form; it is empty if all fields have their defaults.

    Raises CodecError if a field is out of range.
    """
    if not 0 <= header.priority < 256:
        raise CodecError(f"{header.priority} is no priority")
    fields = [
        b"\x41" if header.durable else b"\x40",
        b"\x40" if header.priority == 4 else bytes((0x50, header.priority)),
        b"\x40" if header.ttl is None else encode(_UINT(header.ttl)),
        b"\x41" if header.first_acquirer else b"\x40",
        encode(_UINT(header.delivery_count)) if header.delivery_count else b"\x40",
    ]
    while fields and fields[-1] == b"\x40":
        fields.pop()
    return b"\x00\x53\x70" + compound(0xC0, len(fields), b"".join(fields)) if fields else b""


_UINT: Final = UINT.write


def layout(content: bytes, at: int = 0) -> Layout:
    """Return the extents of the sections from `at` on: message annotations, bare message and footer.

    Raises CodecError if a section is unknown, repeated or in the wrong place, or ends beyond `content`.
    """
    found: dict[int, Extent] = {}
    end = len(content)
    last = DELIVERY_ANNOTATIONS
    while at < end:
        code, _, stop = _section(content, at, end)
        if code == last and code in {DATA, SEQUENCE}:
            found[code] = (found[code][0], stop)
        elif code <= last or (code <= VALUE and last >= DATA):
            raise CodecError(f"the section {code:#x} of a message is repeated or in the wrong place")
        else:
            found[code] = (at, stop)
        last = code
        at = stop
    body = found.get(DATA) or found.get(SEQUENCE) or found.get(VALUE)
    return Layout(
        found.get(MESSAGE_ANNOTATIONS),
        found.get(PROPERTIES),
        found.get(APPLICATION_PROPERTIES),
        body,
        found.get(FOOTER),
    )


def check_sizes(content: bytes, most: int) -> None:
    """Check that the sections before the body have at most `most` octets, since they are decoded at once, and that
    there are not too many sections. Nothing is decoded. Raises CodecError.
    """
    at = count = 0
    end = len(content)
    while at < end:
        code, _, at = _section(content, at, end)
        count += 1
        if code < DATA and at > most:
            raise CodecError(f"annotations and properties of a message have more than {most} bytes")
        if count > MOST_SECTIONS:
            raise CodecError(f"a message has more than {MOST_SECTIONS} sections")


def message_annotations(content: bytes) -> dict[Value, Value]:
    """Return the message annotations. Raises CodecError if the content is malformed."""
    return read_map(content, layout(content).message_annotations)


def application_properties(content: bytes) -> dict[Value, Value]:
    """Return the application properties. Raises CodecError if the content is malformed."""
    return read_map(content, layout(content).application_properties)


def read_map(content: bytes, extent: Extent | None) -> dict[Value, Value]:
    """Return the map in a section; an absent one is empty. Raises CodecError if it is malformed."""
    if extent is None:
        return {}
    value = decode(content, *extent)[0].value
    if type(value) is not dict:
        raise CodecError("a section that must be a map is none")
    return value


def properties(content: bytes) -> Properties:
    """Return the properties. Raises CodecError if the content is malformed."""
    extent = layout(content).properties
    if extent is None:
        return Properties()
    item = resolve(decode(content, *extent)[0])
    if type(item) is not Properties:
        raise CodecError("the properties of a message are malformed")
    return item


def annotations_at(content: bytes) -> tuple[int, int]:
    """Return where the value of the message annotations begins and ends, or (0, 0) if the content does not begin with
    them. Raises CodecError if the first section is malformed.
    """
    if content[:1] != b"\x00":
        return 0, 0
    code, start, stop = _section(content, 0, len(content))
    return (start, stop) if code == MESSAGE_ANNOTATIONS else (0, 0)


def annotates(content: bytes, name: str) -> bool:
    """Return whether a content that begins with message annotations may have the annotation `name`: whether its octets
    occur in that section.
    """
    code = content[3:4]
    if code == b"\xc1":
        end = 5 + content[4] if len(content) > 4 else 0
    else:
        _, _, end = _section(content, 0, len(content))
    return content.find(name.encode(), 0, end) >= 0


def address_of(content: bytes) -> tuple[str | None, str | None]:
    """Return the properties `to` and `subject`. Raises CodecError if a section up to these properties is malformed."""
    at = 0
    end = len(content)
    code = start = stop = 0
    while at < end and code < PROPERTIES:
        code, start, stop = _section(content, at, end)
        at = stop
    if code != PROPERTIES:
        return None, None
    fields, at, stop = items_of(content, start, stop)
    found: list[Value] = [None] * 4
    for place in range(min(fields, 4)):
        if place < 2:
            at = skip(content, at, stop)
        else:
            found[place], at = decode(content, at, stop)
    if any(type(value) not in {str, type(None)} for value in found[2:]):
        raise CodecError("the property to or subject is no string")
    return found[2], found[3]


def claims_user(data: bytes, at: int, end: int) -> bool:
    """Return whether the content data[at:end] may have the property `user-id`.

    It is False only if there is surely none, and is meant to be fast for the usual encodings.
    """
    try:
        if data[at : at + 3] == b"\x00\x53\x72":
            code = data[at + 3]
            if code != 0xC1:
                return True
            at += 5 + data[at + 4]
        if at >= end or data[at : at + 2] != b"\x00\x53":
            return at < end
        if data[at + 2] != PROPERTIES:
            return False
        code = data[at + 3]
        if code != 0xC0:
            return code != 0x45
        if data[at + 5] < 2:
            return False
        at += 6
        size = _ID_SIZES[data[at]]
        at += size or 2 + data[at + 1]
        return at >= end or data[at] != 0x40
    except (IndexError, KeyError):
        return True


_ID_SIZES: Final = {0x40: 1, 0x44: 1, 0x53: 2, 0x80: 9, 0x98: 17, 0xA0: 0, 0xA1: 0}
"""Octets of a message-id by its constructor; 0 if the second octet says it."""


def body(content: bytes) -> Body:
    """Return the body. Raises CodecError if the content is malformed."""
    extent = layout(content).body
    if extent is None:
        return None
    at, end = extent
    code, *_ = _section(content, at, end)
    values = []
    while at < end:
        section, at = decode(content, at, end)
        values.append(section.value)
    if code == VALUE:
        return Described(ULong(VALUE), values[0])
    if any(type(value) is not (bytes if code == DATA else list) for value in values):
        raise CodecError("the body of a message is malformed")
    return Data(values) if code == DATA else Sequence(values)


def encode_section(code: int, value: Value) -> bytes:
    """Return a section with any value. Raises CodecError if the value has no encoding."""
    return bytes((0, 0x53, code)) + encode(value)
