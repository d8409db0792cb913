"""Content properties of class 60 (basic): full decoding, and a scan that finds the properties that a broker needs.

In this whole module, `props` is the tail of a content header frame's payload, from octet 12 on: 16 flag bits, then the
properties whose bit is set, in the order of the specification (0-9-1, section 4.2.6.1). A message keeps these octets
unchanged; a connection caches the results of `scan` under them.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import ClassVar, Final

from escrowmq.wire.amqp091.codes import BASIC_PROPERTIES, SYNTAX_ERROR
from escrowmq.wire.amqp091.errors import SyntaxFault
from escrowmq.wire.amqp091.table import FieldTable, FieldValue, decode_table, encode_entry, encode_table, entries

_SHORT: Final = struct.Struct(">H")
_LONG: Final = struct.Struct(">I")
_LONGLONG: Final = struct.Struct(">Q")
_FITS: Final = {"shortstr": "text of at most 255 bytes", "octet": "a number from 0 to 255", "timestamp": "from 1970 on"}
"""The values that a property can have, for error texts."""

_FLAG: Final[dict[str, int]] = {name: 0x8000 >> n for n, (name, _) in enumerate(BASIC_PROPERTIES)}
_HEADERS: Final = _FLAG["headers"]
_EXPIRATION: Final = _FLAG["expiration"]
_UNDEFINED_FLAGS: Final = 0xFFFF & ~sum(_FLAG.values())

NO_PROPERTIES: Final = b"\x00\x00"
"""The octets of a message without any property."""
REPLY_TO: Final = "amq.rabbitmq.reply-to"
"""The `reply-to` and queue name by which a client requests direct replies, as in RabbitMQ."""
PERSISTENT: Final = 2
"""The `delivery_mode` of a message that survives a restart."""


def _flags(props: bytes) -> int:
    if len(props) < 2:
        raise SyntaxFault(SYNTAX_ERROR, "content header: ends within the property flags")
    flags: int = _SHORT.unpack_from(props)[0]
    # Bit 0 would announce a second flag word, but class 60 has no fifteenth property, so no valid one can follow.
    if flags & _UNDEFINED_FLAGS:
        raise SyntaxFault(SYNTAX_ERROR, f"content header: undefined property flags 0x{flags & _UNDEFINED_FLAGS:04x}")
    return flags


class Properties:
    """The fourteen properties, `None` where absent. `timestamp` is in seconds since the epoch."""

    __slots__ = (
        "app_id",
        "cluster_id",
        "content_encoding",
        "content_type",
        "correlation_id",
        "delivery_mode",
        "expiration",
        "headers",
        "message_id",
        "priority",
        "reply_to",
        "timestamp",
        "type",
        "user_id",
    )

    CLASS_ID: ClassVar[int] = 60

    def __init__(
        self,
        *,
        content_type: str | None = None,
        content_encoding: str | None = None,
        headers: FieldTable | None = None,
        delivery_mode: int | None = None,
        priority: int | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        expiration: str | None = None,
        message_id: str | None = None,
        timestamp: int | None = None,
        type: str | None = None,
        user_id: str | None = None,
        app_id: str | None = None,
        cluster_id: str | None = None,
    ) -> None:
        self.content_type = content_type
        self.content_encoding = content_encoding
        self.headers = headers
        self.delivery_mode = delivery_mode
        self.priority = priority
        self.correlation_id = correlation_id
        self.reply_to = reply_to
        self.expiration = expiration
        self.message_id = message_id
        self.timestamp = timestamp
        self.type = type
        self.user_id = user_id
        self.app_id = app_id
        self.cluster_id = cluster_id

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Properties):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        present = [name for name, _ in BASIC_PROPERTIES if getattr(self, name) is not None]
        return f"Properties({', '.join(f'{name}={getattr(self, name)!r}' for name in present)})"

    def encode(self) -> bytes:
        """Flags and property list. Raises ValueError or TypeError if a value does not fit, as `encode_table` does."""
        flags, parts = 0, [b""]
        for name, kind in BASIC_PROPERTIES:
            value = getattr(self, name)
            if value is None:
                continue
            flags |= _FLAG[name]
            try:
                if kind == "shortstr":
                    data = value.encode()
                    parts.append(bytes((len(data),)) + data)
                elif kind == "table":
                    parts.append(encode_table(value))
                elif kind == "octet":
                    parts.append(bytes((value,)))
                else:
                    parts.append(_LONGLONG.pack(value))
            except (ValueError, struct.error) as error:
                raise ValueError(f"property {name}: {f'{_FITS[kind]} is needed' if kind in _FITS else error}") from None
        parts[0] = _SHORT.pack(flags)
        return b"".join(parts)

    @classmethod
    def decode(cls, props: bytes) -> Properties:
        """Read flags and property list. Raises SyntaxFault (502) for the same input as `scan`."""
        flags, at = _flags(props), 2
        found = cls()
        try:
            for name, kind in BASIC_PROPERTIES:
                if not flags & _FLAG[name]:
                    continue
                value: object
                if kind == "shortstr":
                    end = at + 1 + props[at]
                    value = props[at + 1 : end].decode()
                elif kind == "table":
                    value, end = decode_table(props, at)
                elif kind == "octet":
                    value, end = props[at], at + 1
                else:
                    (value,), end = _LONGLONG.unpack_from(props, at), at + 8
                setattr(found, name, value)
                at = end
        except (IndexError, struct.error, UnicodeDecodeError) as error:
            raise SyntaxFault(SYNTAX_ERROR, f"content header: {error}") from None
        if at != len(props):
            raise SyntaxFault(SYNTAX_ERROR, "content header: properties do not fill the frame")
        return found


class Scan:
    """The result of `scan`. Offsets count from the start of `props`, flags included.

    `headers_at` is where the headers table (its length field) begins, or would begin if there were one. `headers_size`
    is its size with the length field, 0 if there is none. `expiration_at` and `expiration_size` describe the expiration
    in the same way. `headers` is the decoded table or None. `has_cc` and `has_bcc` say whether it has the headers `CC`
    and `BCC`.
    """

    __slots__ = (
        "delivery_mode",
        "expiration",
        "expiration_at",
        "expiration_size",
        "has_bcc",
        "has_cc",
        "headers",
        "headers_at",
        "headers_size",
        "priority",
        "reply_to",
        "user_id",
    )

    def __init__(self) -> None:
        self.delivery_mode: int | None = None
        self.priority: int | None = None
        self.reply_to: str | None = None
        self.expiration: str | None = None
        self.user_id: str | None = None
        self.headers: FieldTable | None = None
        self.has_cc = False
        self.has_bcc = False
        self.headers_at = 2
        self.headers_size = 0
        self.expiration_at = 2
        self.expiration_size = 0


def scan(props: bytes) -> Scan:
    """Find the properties that a broker needs, and check the others. Raises SyntaxFault (502) if `props` is malformed.

    It is meant to run once for each distinct `props` of a connection. Properties that it accepts can later be decoded
    and rewritten without a fault.
    """
    flags, at, size = _flags(props), 2, len(props)
    found = Scan()
    try:
        if flags & 0x8000:  # content-type
            at = _skip(props, at)
        if flags & 0x4000:  # content-encoding
            at = _skip(props, at)
        found.headers_at = at
        if flags & 0x2000:
            found.headers, at = decode_table(props, at)
            found.headers_size = at - found.headers_at
            found.has_cc = "CC" in found.headers
            found.has_bcc = "BCC" in found.headers
        if flags & 0x1000:
            found.delivery_mode = props[at]
            at += 1
        if flags & 0x0800:
            found.priority = props[at]
            at += 1
        if flags & 0x0600:
            if flags & 0x0400:  # correlation-id
                at = _skip(props, at)
            if flags & 0x0200:
                end = at + 1 + props[at]
                found.reply_to = props[at + 1 : end].decode()
                at = end
        found.expiration_at = at
        if flags & 0x01FC:
            if flags & 0x0100:
                end = at + 1 + props[at]
                found.expiration = props[at + 1 : end].decode()
                found.expiration_size, at = end - at, end
            if flags & 0x0080:  # message-id
                at = _skip(props, at)
            if flags & 0x0040:  # timestamp
                at += 8
            if flags & 0x0020:  # type
                at = _skip(props, at)
            if flags & 0x0010:
                end = at + 1 + props[at]
                found.user_id = props[at + 1 : end].decode()
                at = end
            if flags & 0x0008:  # app-id
                at = _skip(props, at)
            if flags & 0x0004:  # cluster-id
                at = _skip(props, at)
    except (IndexError, UnicodeDecodeError) as error:
        raise SyntaxFault(SYNTAX_ERROR, f"content header: {error}") from None
    if at != size:
        raise SyntaxFault(SYNTAX_ERROR, "content header: properties do not fill the frame")
    return found


def _skip(props: bytes, at: int) -> int:
    """Return the end of the short string at `at`, which must be UTF-8."""
    end = at + 1 + props[at]
    props[at + 1 : end].decode()
    return end


# ---- rewriting: everything else stays unchanged, octet by octet ----
#
# Each function takes the scan of the same octets. `without_expiration` leaves everything before the expiration in
# place, so a headers function may follow it with the same scan; any other sequence needs a new scan in between.


def without_expiration(props: bytes, found: Scan) -> bytes:
    """Return `props` without the expiration property."""
    if not found.expiration_size:
        return props
    at = found.expiration_at
    flags = _SHORT.unpack_from(props)[0] & ~_EXPIRATION
    return _SHORT.pack(flags) + props[2:at] + props[at + found.expiration_size :]


def with_headers(props: bytes, found: Scan, headers: FieldTable | None) -> bytes:
    """Return `props` with another headers table (None: without one). Raises the same errors as `encode_table`."""
    return _with_table(props, found, b"" if headers is None else encode_table(headers))


def with_header(props: bytes, found: Scan, name: str, value: FieldValue) -> bytes:
    """Return `props` with one header set; the others stay octet by octet. Raises the same errors as `encode_table`."""
    return _with_fields(props, found, _kept(props, found, (name,)) + encode_entry(name, value))


def without_headers(props: bytes, found: Scan, names: Collection[str]) -> bytes:
    """Return `props` without the headers of these names. The table stays, even if it is empty then."""
    if found.headers is None or found.headers.keys().isdisjoint(names):
        return props
    return _with_fields(props, found, _kept(props, found, names))


def _kept(props: bytes, found: Scan, names: Collection[str]) -> bytes:
    """Return the octets of the headers table's fields, without its length and without the fields of these names."""
    if found.headers is None:
        return b""
    start, end = found.headers_at + 4, found.headers_at + found.headers_size
    if found.headers.keys().isdisjoint(names):
        return props[start:end]
    return b"".join([props[a:b] for name, a, b in entries(props, start, end) if name not in names])


def _with_fields(props: bytes, found: Scan, fields: bytes) -> bytes:
    return _with_table(props, found, _LONG.pack(len(fields)) + fields)


def _with_table(props: bytes, found: Scan, table: bytes) -> bytes:
    flags = _SHORT.unpack_from(props)[0]
    flags = flags | _HEADERS if table else flags & ~_HEADERS
    at = found.headers_at
    return _SHORT.pack(flags) + props[2:at] + table + props[at + found.headers_size :]
