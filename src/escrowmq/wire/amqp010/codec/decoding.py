"""Reading values of AMQP 0-10.

Each type octet has one function in a table. No input makes a value with more than MAX_DEPTH levels, or with many more
items than the input has octets.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Final

from escrowmq.wire.amqp010.codec.errors import CodecError
from escrowmq.wire.amqp010.codec.structs import STRUCTS, Struct
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

MAX_DEPTH: Final = 32
"""The deepest nesting of maps, lists, arrays and structs. Deeper ones are refused."""
MAX_EMPTY_ITEMS: Final = 64
"""The most items of an array whose items have no octets, such as an array of voids."""
STRUCT32: Final = 0xAB
"""The type octet of a struct32."""

_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_CODED: Final = struct.Struct(">IH")  # size and code of a struct32
_Reader = Callable[[bytes, int, int, int], tuple[Value, int]]


def read_map(payload: bytes, at: int, end: int, depth: int = 0) -> tuple[dict[str, Value], int]:
    """Return the map at `at`, and its end. If a map has equal keys, the last one counts. A map without octets is empty.

    Raises CodecError for anything malformed, and for anything at or beyond `end`.
    """
    at, stop = _extent(payload, at, end)
    result: dict[str, Value] = {}
    if at == stop:
        return result, stop
    depth = _deeper(depth)
    count, at = _count(payload, at, stop)
    for _ in range(count):
        if at >= stop:
            raise _short(at)
        behind = at + 1 + payload[at]
        if behind >= stop:
            raise _short(behind)
        key = _text(payload[at + 1 : behind])
        result[key], at = _READERS[payload[behind]](payload, behind + 1, stop, depth)
    if at != stop:
        raise CodecError(f"{stop - at} octets follow the last entry of a map")
    return result, stop


def read_list(payload: bytes, at: int, end: int, depth: int = 0) -> tuple[list[Value], int]:
    """Return the list at `at`, and its end. Raises CodecError as `read_map`."""
    at, stop = _extent(payload, at, end)
    result: list[Value] = []
    if at == stop:
        return result, stop
    depth = _deeper(depth)
    count, at = _count(payload, at, stop)
    for _ in range(count):
        if at >= stop:
            raise _short(at)
        item, at = _READERS[payload[at]](payload, at + 1, stop, depth)
        result.append(item)
    if at != stop:
        raise CodecError(f"{stop - at} octets follow the last item of a list")
    return result, stop


def read_array(payload: bytes, at: int, end: int, depth: int = 0) -> tuple[Array, int]:
    """Return the array at `at`, and its end. An array without octets is one of no voids. Raises CodecError as
    `read_map`.
    """
    at, stop = _extent(payload, at, end)
    if at == stop:
        return Array(code=0xF0), stop
    depth = _deeper(depth)
    code = payload[at]
    if stop - at < 5:
        raise _short(stop)
    (count,) = _U32.unpack_from(payload, at + 1)
    at += 5
    if count > (MAX_EMPTY_ITEMS if code >= 0xF0 else stop - at):
        raise CodecError(f"an array cannot have {count} items in {stop - at} octets")
    plain = _PLAIN.get(code)
    if plain is not None:
        layout, width = plain
        if count * width != stop - at:
            raise CodecError(f"an array cannot have {count} items in {stop - at} octets")
        return Array(struct.unpack_from(f">{count}{layout}", payload, at), code=code), stop
    reader, result = _READERS[code], Array(code=code)
    for _ in range(count):
        item, at = reader(payload, at, stop, depth)
        result.append(item)
    if at != stop:
        raise CodecError(f"{stop - at} octets follow the last item of an array")
    return result, stop


def read_struct32(payload: bytes, at: int, end: int, depth: int = 0) -> tuple[Struct | UnknownStruct, int]:
    """Return the struct at `at` that its code names, and its end. Raises CodecError as `read_map`."""
    if end - at < 6:
        raise _short(at + 6)
    size, code = _CODED.unpack_from(payload, at)
    stop = at + 4 + size
    if size < 2 or stop > end:
        raise _short(stop)
    kind = STRUCTS.get(code)
    if kind is None:
        return UnknownStruct(code, payload[at + 6 : stop]), stop
    return kind.decode(payload, at + 6, stop, _deeper(depth)), stop


def read_ranges(payload: bytes, at: int, end: int) -> tuple[Ranges, int]:
    """Return the sequence-set at `at`, and its end. Raises CodecError as `read_map`."""
    return _pairs(payload, at, end, "I", 8)


def read_byte_ranges(payload: bytes, at: int, end: int) -> tuple[Ranges, int]:
    """Return the byte-ranges at `at`, and their end. Raises CodecError as `read_map`."""
    return _pairs(payload, at, end, "Q", 16)


def _pairs(payload: bytes, at: int, end: int, layout: str, width: int) -> tuple[Ranges, int]:
    start = at + 2
    if start > end:
        raise _short(start)
    (size,) = _U16.unpack_from(payload, at)
    if start + size > end:
        raise _short(start + size)
    if size % width:
        raise CodecError(f"a set of ranges has {size} octets, which is no multiple of {width}")
    numbers = struct.unpack_from(f">{2 * size // width}{layout}", payload, start)
    return tuple(zip(numbers[::2], numbers[1::2], strict=True)), start + size


def _short(at: int) -> CodecError:
    return CodecError(f"a value ends at octet {at}, beyond its end")


def _deeper(depth: int) -> int:
    if depth >= MAX_DEPTH:
        raise CodecError(f"values are nested deeper than {MAX_DEPTH} levels")
    return depth + 1


def _extent(payload: bytes, at: int, end: int) -> tuple[int, int]:
    """(start, end) of a value that begins with its size in four octets."""
    start = at + 4
    if start > end:
        raise _short(start)
    stop: int = start + _U32.unpack_from(payload, at)[0]
    if stop > end:
        raise _short(stop)
    return start, stop


def _count(payload: bytes, at: int, stop: int) -> tuple[int, int]:
    """(count, start of the entries) of a map or list. Each entry has at least one octet."""
    start = at + 4
    if start > stop:
        raise _short(start)
    (count,) = _U32.unpack_from(payload, at)
    if count > stop - start:
        raise CodecError(f"{count} entries cannot be in {stop - start} octets")
    return count, start


def _text(octets: bytes) -> str:
    try:
        return octets.decode()
    except UnicodeDecodeError as error:
        raise CodecError(f"a string is not valid UTF-8: {error.reason}") from None


def _latin(octets: bytes) -> str:
    return octets.decode("latin-1")


def _utf16(octets: bytes) -> str:
    try:
        return octets.decode("utf-16-be")
    except UnicodeDecodeError as error:
        raise CodecError(f"a string is not valid UTF-16: {error.reason}") from None


def _unknown(payload: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
    raise CodecError("unknown type of a value")


def _constant(value: Value) -> _Reader:
    def read(payload: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        return value, at

    return read


def _number(layout: str, make: Callable[[Value], Value] | None = None) -> _Reader:
    unpack_from = struct.Struct(layout).unpack_from
    size = struct.calcsize(layout)

    def read(payload: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        if at + size > end:
            raise _short(at + size)
        value = unpack_from(payload, at)[0]
        return (value if make is None else make(value)), at + size

    return read


def _octets(size: int, make: Callable[[bytes], Value]) -> _Reader:
    def read(payload: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        if at + size > end:
            raise _short(at + size)
        return make(payload[at : at + size]), at + size

    return read


def _variable(width: int, make: Callable[[bytes], Value]) -> _Reader:
    def read(payload: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        start = at + width
        if start > end:
            raise _short(start)
        stop = start + int.from_bytes(payload[at:start], "big")
        if stop > end:
            raise _short(stop)
        return make(payload[start:stop]), stop

    return read


def _wide_char(value: int) -> CharUtf32:
    if value > 0x10FFFF or 0xD800 <= value < 0xE000:
        raise CodecError(f"{value:#x} is no Unicode character")
    return CharUtf32(chr(value))


def _decimal(octets: bytes) -> Decimal:
    """Return the decimal of a scale in one octet, and a signed number."""
    number = int.from_bytes(octets[1:], "big", signed=True)
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -octets[0]))


_PLAIN: Final[dict[int, tuple[str, int]]] = {
    0x01: ("b", 1),
    0x02: ("B", 1),
    0x11: ("h", 2),
    0x12: ("H", 2),
    0x21: ("i", 4),
    0x22: ("I", 4),
    0x31: ("q", 8),
    0x32: ("Q", 8),
}
"""Numbers of which arrays are decoded together: their layout, and their width."""
_READERS: Final[list[_Reader]] = [_unknown] * 256
"""By type octet."""

for _code, _reader in {
    0x00: _octets(1, FixedBinary),
    0x01: _number(">b", Int8),
    0x02: _number(">B", UInt8),
    0x04: _octets(1, lambda octet: Char(octet, "latin-1")),
    0x08: _number(">B", bool),
    0x10: _octets(2, FixedBinary),
    0x11: _number(">h", Int16),
    0x12: _number(">H", UInt16),
    0x20: _octets(4, FixedBinary),
    0x21: _number(">i", Int32),
    0x22: _number(">I", UInt32),
    0x23: _number(">f", Float),
    0x27: _number(">I", _wide_char),
    0x30: _octets(8, FixedBinary),
    0x31: _number(">q"),
    0x32: _number(">Q", UInt64),
    0x33: _number(">d"),
    0x38: _number(">Q", Datetime),
    0x40: _octets(16, FixedBinary),
    0x48: _octets(16, Uuid),
    0x50: _octets(32, FixedBinary),
    0x60: _octets(64, FixedBinary),
    0x70: _octets(128, FixedBinary),
    0x80: _variable(1, bytes),
    0x84: _variable(1, _latin),
    0x85: _variable(1, _text),
    0x86: _variable(1, _utf16),
    0x90: _variable(2, bytes),
    0x94: _variable(2, _latin),
    0x95: _variable(2, _text),
    0x96: _variable(2, _utf16),
    0xA0: _variable(4, bytes),
    0xA8: read_map,
    0xA9: read_list,
    0xAA: read_array,
    STRUCT32: read_struct32,
    0xC0: _octets(5, FixedBinary),
    0xC8: _octets(5, _decimal),
    0xD0: _octets(9, FixedBinary),
    0xD8: _octets(9, _decimal),
    0xF0: _constant(None),
    0xF1: _constant(True),
}.items():
    _READERS[_code] = _reader
