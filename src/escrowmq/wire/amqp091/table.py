"""Field tables and field arrays of AMQP 0-9-1, with the meaning that RabbitMQ and its clients give the type tags.

The published XML does not name the tags, and the specification's text and RabbitMQ differ (RabbitMQ's errata: 's' is a
16-bit integer, not a short string; 'l' and 'L' are both signed; 'x' is a byte array). Each tag has one Python type, so
a table that was read is written with its original tags:

    t bool          S str, LongStr (not UTF-8)      x bytes            V None      A list     F dict
    b Byte          s Short                         I int (if it fits) l int, Long            L LongL
    B UnsignedByte  u UnsignedShort                 i UnsignedInt      T Timestamp
    f Float         d float                         D Decimal

The classes have RabbitMQ's names for the types, because its error texts contain them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, TypeAlias

from escrowmq.wire.amqp091.codes import SYNTAX_ERROR
from escrowmq.wire.amqp091.errors import SyntaxFault

FieldValue: TypeAlias = "bool | int | float | str | bytes | Decimal | list[FieldValue] | dict[str, FieldValue] | None"
FieldTable: TypeAlias = "dict[str, FieldValue]"

MAX_DEPTH: Final = 64
"""The deepest nesting of tables and arrays, counting the outermost one. Deeper ones are refused."""


class Byte(int):
    """Tag 'b', -128 to 127."""

    __slots__ = ()


class UnsignedByte(int):
    """Tag 'B', 0 to 255."""

    __slots__ = ()


class Short(int):
    """Tag 's', 16 bits, signed."""

    __slots__ = ()


class UnsignedShort(int):
    """Tag 'u', 16 bits, unsigned."""

    __slots__ = ()


class UnsignedInt(int):
    """Tag 'i', 32 bits, unsigned."""

    __slots__ = ()


class Long(int):
    """Tag 'l', 64 bits, signed: for a number that fits into 'I' but has eight octets on the wire."""

    __slots__ = ()


class LongL(int):
    """Tag 'L', 64 bits, signed as in RabbitMQ."""

    __slots__ = ()


class Timestamp(int):
    """Tag 'T': seconds since the epoch, 64 bits, unsigned."""

    __slots__ = ()


class Float(float):
    """Tag 'f', single precision."""

    __slots__ = ()


class LongStr(bytes):
    """Tag 'S' whose octets are not UTF-8. (With UTF-8 it is `str`.)"""

    __slots__ = ()


_UINT32: Final = struct.Struct(">I")
_DECIMAL: Final = struct.Struct(">Bi")
_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1


# ---- decoding ----


def decode_table(buf: bytes, at: int) -> tuple[FieldTable, int]:
    """Read the table at `at`: its length (4 octets), then its fields. Returns the table and its end.

    If several fields have the same name, the first counts, as in RabbitMQ (the specification leaves it open). Raises
    SyntaxFault (502) for a length beyond the end of `buf`, an unknown tag, a name that is not UTF-8, a value that
    crosses the end of its table, or more than MAX_DEPTH levels.
    """
    at, end = _extent(buf, at, len(buf))
    return _fields(buf, at, end, 1), end


def decode_fields(buf: bytes) -> FieldTable:
    """Read a table without its length: all of `buf` are fields (the form of a SASL AMQPLAIN response).

    Raises the same SyntaxFault (502) as `decode_table`.
    """
    return _fields(buf, 0, len(buf), 1)


def entries(buf: bytes, at: int, end: int) -> list[tuple[str, int, int]]:
    """(name, start, end) of each field between `at` and `end`, for a table that `decode_table` has accepted.

    The octets from start to end are the whole field, so tables can be cut and joined without decoding values.
    """
    found: list[tuple[str, int, int]] = []
    while at < end:
        stop = at + 1 + buf[at]
        _, after = _value(buf, stop, end, 1)
        found.append((buf[at + 1 : stop].decode(), at, after))
        at = after
    return found


def _fault(text: str) -> SyntaxFault:
    return SyntaxFault(SYNTAX_ERROR, f"field table: {text}")


def _extent(buf: bytes, at: int, end: int) -> tuple[int, int]:
    """Start and end of the octets that follow a 4-octet length at `at`."""
    start = at + 4
    if start > end:
        raise _fault("ends within a length")
    stop = start + int.from_bytes(buf[at:start], "big")
    if stop > end:
        raise _fault("a length reaches beyond the end")
    return start, stop


def _fields(buf: bytes, at: int, end: int, depth: int) -> FieldTable:
    table: FieldTable = {}
    while at < end:
        stop = at + 1 + buf[at]
        if stop >= end:
            raise _fault("ends within a field's name")
        try:
            name = buf[at + 1 : stop].decode()
        except UnicodeDecodeError:
            raise _fault("a field's name is not UTF-8") from None
        value, at = _value(buf, stop, end, depth)
        if name not in table:
            table[name] = value
    return table


def _value(buf: bytes, at: int, end: int, depth: int) -> tuple[FieldValue, int]:
    """Read tag and value at `at` (which is below `end`)."""
    tag = buf[at]
    at += 1
    if tag == 0x53:  # S, the most frequent
        start, stop = _extent(buf, at, end)
        return _text(buf[start:stop]), stop
    fixed = _FIXED.get(tag)
    if fixed is not None:
        layout, make = fixed
        stop = at + layout.size
        if stop > end:
            raise _fault("ends within a value")
        return make(*layout.unpack_from(buf, at)), stop
    if tag == 0x56:  # V
        return None, at
    if tag == 0x78:  # x
        start, stop = _extent(buf, at, end)
        return buf[start:stop], stop
    if tag not in (0x41, 0x46):
        raise _fault(f"unknown type tag 0x{tag:02x}")
    if depth >= MAX_DEPTH:
        raise _fault(f"more than {MAX_DEPTH} levels")
    at, stop = _extent(buf, at, end)
    if tag == 0x46:  # F
        return _fields(buf, at, stop, depth + 1), stop
    items: list[FieldValue] = []
    while at < stop:
        if buf[at] == 0x53 and at + 5 <= stop:  # a list may have thousands of texts
            start = at + 5
            at = start + int.from_bytes(buf[at + 1 : start], "big")
            if at > stop:
                raise _fault("a length reaches beyond the end")
            items.append(_text(buf[start:at]))
        else:
            item, at = _value(buf, at, stop, depth + 1)
            items.append(item)
    return items, stop


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return LongStr(data)


def _int32_or_64(value: int) -> int:
    return Long(value) if _INT32_MIN <= value <= _INT32_MAX else value


def _scaled(scale: int, mantissa: int) -> Decimal:
    # From the digits, not by arithmetic: the result must not depend on the thread's decimal context.
    return Decimal((int(mantissa < 0), tuple(map(int, str(abs(mantissa)))), -scale))


def _plain(value: Any) -> Any:
    return value


_FIXED: Final[dict[int, tuple[struct.Struct, Callable[..., FieldValue]]]] = {
    ord("t"): (struct.Struct(">B"), bool),
    ord("b"): (struct.Struct(">b"), Byte),
    ord("B"): (struct.Struct(">B"), UnsignedByte),
    ord("s"): (struct.Struct(">h"), Short),
    ord("u"): (struct.Struct(">H"), UnsignedShort),
    ord("I"): (struct.Struct(">i"), _plain),
    ord("i"): (_UINT32, UnsignedInt),
    ord("l"): (struct.Struct(">q"), _int32_or_64),
    ord("L"): (struct.Struct(">q"), LongL),
    ord("f"): (struct.Struct(">f"), Float),
    ord("d"): (struct.Struct(">d"), _plain),
    ord("D"): (_DECIMAL, _scaled),
    ord("T"): (struct.Struct(">Q"), Timestamp),
}


# ---- encoding ----


def encode_table(table: Mapping[str, FieldValue]) -> bytes:
    """Return the table with its length in front, fields in the mapping's order.

    Raises ValueError if something does not fit the wire (a name over 255 bytes of UTF-8, a number out of its tag's
    range, more than MAX_DEPTH levels) and TypeError for a value that has no tag.
    """
    return _encode_table(table, 1)


def encode_entry(name: str, value: FieldValue) -> bytes:
    """Return one field, name and tagged value, as in a table. Raises the same errors as `encode_table`."""
    return _encode_entry(name, value, 1)


def _encode_table(table: Mapping[str, FieldValue], depth: int) -> bytes:
    data = b"".join([_encode_entry(name, value, depth) for name, value in table.items()])
    return _UINT32.pack(len(data)) + data


def _encode_entry(name: str, value: FieldValue, depth: int) -> bytes:
    encoded = name.encode()
    if len(encoded) > 255:
        raise ValueError(f"field name of {len(encoded)} bytes, at most 255 are possible: {name[:40]!r}…")
    return bytes((len(encoded),)) + encoded + _encode_value(value, depth)


def _encode_value(value: FieldValue, depth: int) -> bytes:
    kind = type(value)
    encode = _ENCODERS.get(kind)
    if encode is not None:
        try:
            return encode(value)
        except (struct.error, OverflowError) as error:
            raise ValueError(f"{kind.__name__} {value!r} does not fit its field: {error}") from None
    if isinstance(value, dict | list):
        if depth >= MAX_DEPTH:
            raise ValueError(f"tables and arrays nested over {MAX_DEPTH} levels")
        if isinstance(value, dict):
            return b"F" + _encode_table(value, depth + 1)
        data = b"".join([_encode_value(item, depth + 1) for item in value])
        return b"A" + _UINT32.pack(len(data)) + data
    raise TypeError(f"no field table tag for {kind.__name__}")


def _packer(tag: str, code: str) -> Callable[[Any], bytes]:
    pack = struct.Struct(f">c{code}").pack
    octet = tag.encode()
    return lambda value: pack(octet, value)


_PACK_I, _PACK_L = _packer("I", "i"), _packer("l", "q")


def _encode_int(value: int) -> bytes:
    return _PACK_I(value) if _INT32_MIN <= value <= _INT32_MAX else _PACK_L(value)


def _encode_str(value: str) -> bytes:
    data = value.encode()
    return b"S" + _UINT32.pack(len(data)) + data


def _encode_decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    # The mantissa has 32 bits, so at most ten digits; no huge number is ever computed.
    if not isinstance(exponent, int) or not -255 <= exponent <= 9 or len(digits) > 10:
        raise ValueError(f"Decimal {value} has no wire form (scale 0 to 255, mantissa of 32 bits)")
    mantissa = int("".join(map(str, digits))) * 10 ** max(exponent, 0)
    return b"D" + _DECIMAL.pack(max(-exponent, 0), -mantissa if sign else mantissa)


_ENCODERS: Final[dict[type, Callable[[Any], bytes]]] = {
    str: _encode_str,
    bool: _packer("t", "B"),
    int: _encode_int,
    Byte: _packer("b", "b"),
    UnsignedByte: _packer("B", "B"),
    Short: _packer("s", "h"),
    UnsignedShort: _packer("u", "H"),
    UnsignedInt: _packer("i", "I"),
    Long: _PACK_L,
    LongL: _packer("L", "q"),
    Float: _packer("f", "f"),
    float: _packer("d", "d"),
    Decimal: _encode_decimal,
    Timestamp: _packer("T", "Q"),
    LongStr: lambda value: b"S" + _UINT32.pack(len(value)) + value,
    bytes: lambda value: b"x" + _UINT32.pack(len(value)) + value,
    type(None): lambda _: b"V",
}
