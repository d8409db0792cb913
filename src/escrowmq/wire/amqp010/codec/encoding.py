"""Writing values of AMQP 0-10. Each Python type of `types.py` has one type octet.

A string of more than 65,535 octets has no type of its own and is written as vbin32, as Qpid's clients do. Binary values
are vbin16 up to this size.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Final

from escrowmq.wire.amqp010.codec.errors import CodecError
from escrowmq.wire.amqp010.codec.structs import Struct
from escrowmq.wire.amqp010.codec.types import (
    Array,
    Char,
    CharUtf32,
    Datetime,
    FixedBinary,
    Float,
    Int8,
    Int16,
    Int32,
    Ranges,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    UnknownStruct,
    Uuid,
    Value,
)

STR16: Final = 0x95
"""The type octet of a str16, of which the arrays of the connection class are."""
_U16_MAX: Final = 0xFFFF
_U32: Final = struct.Struct(">I")
_Writer = Callable[[Value], bytes]


def write_str8(value: str) -> bytes:
    """Return a string with its size in one octet. Raises CodecError if it has more than 255 octets."""
    return write_vbin8(_utf8(value))


def write_str16(value: str) -> bytes:
    """Return a string with its size in two octets. Raises CodecError if it has more than 65,535 octets."""
    return write_vbin16(_utf8(value))


def write_vbin8(value: bytes) -> bytes:
    """Return octets with their number in one octet. Raises CodecError if there are more than 255."""
    return _sized(value, 1)


def write_vbin16(value: bytes) -> bytes:
    """Return octets with their number in two octets. Raises CodecError if there are more than 65,535."""
    return _sized(value, 2)


def write_vbin32(value: bytes) -> bytes:
    """Return octets with their number in four octets."""
    return _sized(value, 4)


def write_uuid(value: bytes) -> bytes:
    """Return 16 octets as they are. Raises CodecError if there are not 16."""
    if len(value) != 16:
        raise CodecError(f"a UUID has 16 octets, not {len(value)}")
    return value


def write_map(value: Mapping[str, Value]) -> bytes:
    """Return a map. Raises CodecError for a value that has no encoding."""
    entries = [_U32.pack(len(value))]
    for key, item in value.items():
        entries += (write_str8(key), write_value(item))
    return _sized(b"".join(entries), 4)


def write_list(value: Sequence[Value]) -> bytes:
    """Return a list. Raises CodecError for an item that has no encoding."""
    return _sized(_U32.pack(len(value)) + b"".join(map(write_value, value)), 4)


def write_array(value: Array) -> bytes:
    """Return an array. Raises CodecError for an item that is not of the array's type."""
    writer = _ITEMS.get(value.code)
    if writer is None:
        raise CodecError(f"an array has no items of type {value.code:#04x}")
    return _sized(bytes((value.code,)) + _U32.pack(len(value)) + b"".join(map(writer, value)), 4)


def write_struct32(value: Struct | UnknownStruct) -> bytes:
    """Return a struct with its size in four octets, and its code. Raises CodecError if it has no code."""
    if isinstance(value, UnknownStruct):
        return _sized(value.code.to_bytes(2, "big") + value.octets, 4)
    if value.CODE < 0:
        raise CodecError(f"{value.NAME} has no code")
    return _sized(value.CODE.to_bytes(2, "big") + value.encode(), 4)


def write_ranges(value: Ranges) -> bytes:
    """Return a sequence-set. Raises CodecError if it has more than 8,191 ranges."""
    return _sized(b"".join([_pack("II", first, last) for first, last in value]), 2)


def write_byte_ranges(value: Ranges) -> bytes:
    """Return byte-ranges. Raises CodecError if there are more than 4,095."""
    return _sized(b"".join([_pack("QQ", first, last) for first, last in value]), 2)


def write_value(value: Value) -> bytes:
    """Return a value behind its type octet. Raises CodecError if its Python type is none of `types.py`, or if it is out
    of the type's range.
    """
    writer = _WRITERS.get(type(value))
    if writer is None:
        if not isinstance(value, Struct):
            raise CodecError(f"{type(value).__name__} has no encoding")
        return b"\xab" + write_struct32(value)
    return writer(value)


def _sized(octets: bytes, width: int) -> bytes:
    try:
        return len(octets).to_bytes(width, "big") + octets
    except OverflowError:
        raise CodecError(f"a value of {len(octets)} octets is too long for its type") from None


def _utf8(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise CodecError(f"a string has no encoding: {error.reason}") from None


def _pack(layout: str, *values: Value) -> bytes:
    try:
        octets = struct.pack(f">{layout}", *values)
    except (struct.error, OverflowError) as error:
        raise CodecError(str(error)) from None
    return octets


def _number(code: int, layout: str) -> _Writer:
    return lambda value: _pack(f"B{layout}", code, value)


def _text(value: str) -> bytes:
    octets = _utf8(value)
    return b"\x95" + _sized(octets, 2) if len(octets) <= _U16_MAX else b"\xa0" + _sized(octets, 4)


def _binary(value: bytes) -> bytes:
    return b"\x90" + _sized(value, 2) if len(value) <= _U16_MAX else b"\xa0" + _sized(value, 4)


def _fixed(value: bytes) -> bytes:
    code = _FIXED.get(len(value))
    if code is None:
        raise CodecError(f"no fixed binary type has {len(value)} octets")
    return bytes((code,)) + value


def _char(value: str) -> bytes:
    try:
        return b"\x04" + value.encode("latin-1")
    except UnicodeEncodeError:
        raise CodecError("a char is no character of Latin-1") from None


def _decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    number: int
    if not isinstance(exponent, int):
        raise CodecError(f"{value} has no encoding")
    number = int("".join(map(str, digits)) or "0") * 10 ** max(0, min(exponent, 19))
    if exponent > 19 or exponent < -255 or number >> 63:
        raise CodecError("a decimal has too many digits")
    number = -number if sign else number
    width = 4 if -(2**31) <= number < 2**31 else 8
    scale = bytes((max(0, -exponent),))
    return (b"\xc8" if width == 4 else b"\xd8") + scale + number.to_bytes(width, "big", signed=True)


_FIXED: Final = {1: 0x00, 2: 0x10, 4: 0x20, 5: 0xC0, 8: 0x30, 9: 0xD0, 16: 0x40, 32: 0x50, 64: 0x60, 128: 0x70}
"""Type octets of fixed binaries by their width."""
_WRITERS: Final[dict[type, _Writer]] = {
    type(None): lambda _: b"\xf0",
    bool: lambda value: b"\x08\x01" if value else b"\x08\x00",
    Int8: _number(0x01, "b"),
    UInt8: _number(0x02, "B"),
    Int16: _number(0x11, "h"),
    UInt16: _number(0x12, "H"),
    Int32: _number(0x21, "i"),
    UInt32: _number(0x22, "I"),
    int: _number(0x31, "q"),
    UInt64: _number(0x32, "Q"),
    Datetime: _number(0x38, "Q"),
    Float: _number(0x23, "f"),
    float: _number(0x33, "d"),
    Char: _char,
    CharUtf32: lambda value: _pack("BI", 0x27, ord(value)),
    str: _text,
    bytes: _binary,
    FixedBinary: _fixed,
    Uuid: lambda value: b"\x48" + write_uuid(value),
    Decimal: _decimal,
    dict: lambda value: b"\xa8" + write_map(value),
    list: lambda value: b"\xa9" + write_list(value),
    Array: lambda value: b"\xaa" + write_array(value),
    UnknownStruct: lambda value: b"\xab" + write_struct32(value),
}


def _behind(width: int, write: _Writer) -> _Writer:
    """Write a value whose octets have this number, without its type octet."""

    def item(value: Value) -> bytes:
        octets = write(value)[1:]
        if len(octets) != width:
            raise CodecError("an item of an array is not of the array's type")
        return octets

    return item


def _encoded(width: int, encoding: str) -> _Writer:
    def item(value: str) -> bytes:
        try:
            return _sized(value.encode(encoding), width)
        except UnicodeEncodeError as error:
            raise CodecError(f"a string has no encoding: {error.reason}") from None

    return item


def _wide_decimal(value: Decimal) -> bytes:
    octets = _decimal(value)[1:]
    number = int.from_bytes(octets[1:], "big", signed=True)
    return octets[:1] + number.to_bytes(8, "big", signed=True)


_ITEMS: Final[dict[int, _Writer]] = {
    **{code: _behind(width, _fixed) for width, code in _FIXED.items()},
    0x01: lambda value: _pack("b", value),
    0x02: lambda value: _pack("B", value),
    0x04: _behind(1, _char),
    0x08: lambda value: _pack("?", value),
    0x11: lambda value: _pack("h", value),
    0x12: lambda value: _pack("H", value),
    0x21: lambda value: _pack("i", value),
    0x22: lambda value: _pack("I", value),
    0x23: lambda value: _pack("f", value),
    0x27: lambda value: _pack("I", ord(value)),
    0x31: lambda value: _pack("q", value),
    0x32: lambda value: _pack("Q", value),
    0x33: lambda value: _pack("d", value),
    0x38: lambda value: _pack("Q", value),
    0x48: write_uuid,
    0x80: write_vbin8,
    0x84: _encoded(1, "latin-1"),
    0x85: write_str8,
    0x86: _encoded(1, "utf-16-be"),
    0x90: write_vbin16,
    0x94: _encoded(2, "latin-1"),
    0x95: write_str16,
    0x96: _encoded(2, "utf-16-be"),
    0xA0: write_vbin32,
    0xA8: write_map,
    0xA9: write_list,
    0xAA: write_array,
    0xAB: write_struct32,
    0xC8: _behind(5, _decimal),
    0xD8: _wide_decimal,
    0xF0: lambda _: b"",
    0xF1: lambda _: b"",
}
"""Writers of an array's items, which have no type octet of their own."""
