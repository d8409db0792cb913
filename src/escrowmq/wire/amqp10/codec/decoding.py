"""Reading values of AMQP 1.0 (part 1, sections 1.2 and 1.6).

Each constructor octet has one function in a table. Its upper half says how the size of the value is found, so values
can be skipped without being read. No input makes a value with more than MAX_DEPTH levels, or with many more items than
the input has octets.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from escrowmq.wire.amqp10.codec.errors import CodecError
from escrowmq.wire.amqp10.codec.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Uuid,
    Value,
)

MAX_DEPTH: Final = 32
"""The deepest nesting of described values, lists, maps and arrays. Deeper ones are refused."""
MAX_EMPTY_ITEMS: Final = 64
"""The most items of an array whose items have no octets, such as an array of nulls."""
MAX_DESCRIBED_ITEMS: Final = 10_000
"""The most items of an array, times the descriptors that each of them has."""

_U32: Final = struct.Struct(">I")
_PAIR32: Final = struct.Struct(">II")
_Reader = Callable[[bytes, int, int, int], tuple[Value, int]]


def decode(data: bytes, at: int = 0, end: int | None = None) -> tuple[Value, int]:
    """Return the value at `at`, and its end. Nothing at or beyond `end` (default: all of `data`) is read.

    If a map has equal keys, the last one counts. Keys of a map must be hashable in Python, so lists and maps as keys
    are refused. Raises CodecError for anything malformed.
    """
    size = len(data)
    return _value(data, at, size if end is None or end > size else end, 0)


def skip(data: bytes, at: int, end: int) -> int:
    """Return the end of the value at `at` without reading it. Raises CodecError if it does not end before `end`."""
    return _skip(data, at, min(end, len(data)), 0)


def items_of(data: bytes, at: int, end: int) -> tuple[int, int, int]:
    """(count, start of the items, their end) of the list or map at `at`; keys and values are counted. Raises CodecError
    for anything else.
    """
    if at < end and data[at] == 0x45:
        return 0, at + 1, at + 1
    if at >= end or data[at] not in {0xC0, 0xC1, 0xD0, 0xD1}:
        raise CodecError("a list or a map is needed")
    return _counted(data, at + 1, end, data[at] >= 0xD0)


def _skip(data: bytes, at: int, end: int, depth: int) -> int:
    while at < end and not data[at]:
        depth += 1
        if depth > MAX_DEPTH:
            raise CodecError(f"values are nested deeper than {MAX_DEPTH} levels")
        at = _skip(data, at + 1, end, depth)
    if at >= end:
        raise _short(at)
    kind = data[at] >> 4
    at += 1
    if kind < 4:
        raise CodecError(f"unknown constructor {data[at - 1]:#04x}")
    if kind < 10:
        at += (0, 1, 2, 4, 8, 16)[kind - 4]
    elif kind % 2 == 0:
        at += 1 + data[at] if at < end else 1
    else:
        at += 4 + _U32.unpack_from(data, at)[0] if at + 4 <= end else 4
    if at > end:
        raise _short(at)
    return at


def _short(at: int) -> CodecError:
    return CodecError(f"a value ends at octet {at}, beyond its end")


def _value(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
    if at >= end:
        raise _short(at)
    return _READERS[data[at]](data, at + 1, end, depth)


def _unknown(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
    raise CodecError(f"unknown constructor {data[at - 1]:#04x}")


def _described(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
    descriptor, at = _value(data, at, end, _deeper(depth))
    value, at = _value(data, at, end, depth + 1)
    return Described(descriptor, value), at


def _deeper(depth: int) -> int:
    if depth >= MAX_DEPTH:
        raise CodecError(f"values are nested deeper than {MAX_DEPTH} levels")
    return depth + 1


def _constant(make: Callable[[], Value]) -> _Reader:
    def read(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        return make(), at

    return read


def _number(layout: str, make: Callable[[Value], Value] | None = None) -> _Reader:
    unpack_from = struct.Struct(layout).unpack_from
    size = struct.calcsize(layout)

    def read(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        if at + size > end:
            raise _short(at + size)
        value = unpack_from(data, at)[0]
        return (value if make is None else make(value)), at + size

    return read


def _octets(size: int, make: Callable[[bytes], Value]) -> _Reader:
    def read(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        if at + size > end:
            raise _short(at + size)
        return make(data[at : at + size]), at + size

    return read


def _boolean(value: int) -> bool:
    if value > 1:
        raise CodecError(f"{value} is no boolean")
    return value == 1


def _char(value: int) -> Char:
    if value > 0x10FFFF or 0xD800 <= value < 0xE000:
        raise CodecError(f"{value:#x} is no Unicode character")
    return Char(chr(value))


def _string(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CodecError(f"a string is not valid UTF-8: {error.reason}") from None


def _symbol(data: bytes) -> Symbol:
    try:
        return Symbol(data, "ascii")
    except UnicodeDecodeError:
        raise CodecError("a symbol contains octets that are not ASCII") from None


def _extent(data: bytes, at: int, end: int, wide: bool) -> tuple[int, int]:
    """(start, end) of a value that begins with its size in one octet, or in four."""
    start = at + 4 if wide else at + 1
    if start > end:
        raise _short(start)
    stop: int = start + (_U32.unpack_from(data, at)[0] if wide else data[at])
    if stop > end:
        raise _short(stop)
    return start, stop


def _variable8(make: Callable[[bytes], Value]) -> _Reader:
    """The reader of a value that begins with its size in one octet. These are frequent, so it makes no further call."""

    def read(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        at += 1
        if at > end:
            raise _short(at)
        stop = at + data[at - 1]
        if stop > end:
            raise _short(stop)
        return make(data[at:stop]), stop

    return read


def _variable32(make: Callable[[bytes], Value]) -> _Reader:
    def read(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        at, stop = _extent(data, at, end, True)
        return make(data[at:stop]), stop

    return read


def _counted(data: bytes, at: int, end: int, wide: bool) -> tuple[int, int, int]:
    """(count, start of the items, end) of a list, map or array."""
    at, stop = _extent(data, at, end, wide)
    start = at + 4 if wide else at + 1
    if start > stop:
        raise _short(start)
    return (_U32.unpack_from(data, at)[0] if wide else data[at]), start, stop


def _items(data: bytes, at: int, end: int, wide: bool, depth: int) -> tuple[list[Value], int]:
    count, at, stop = _counted(data, at, end, wide)
    if count > stop - at:
        raise CodecError(f"{count} items cannot be in {stop - at} octets")
    depth = _deeper(depth)
    items = []
    for _ in range(count):
        if at >= stop:
            raise _short(at)
        item, at = _READERS[data[at]](data, at + 1, stop, depth)
        items.append(item)
    if at != stop:
        raise CodecError(f"{stop - at} octets follow the last item of a list or map")
    return items, stop


def _list(wide: bool) -> _Reader:
    def read(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        return _items(data, at, end, wide, depth)

    return read


def _map(wide: bool) -> _Reader:
    def read(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        items, at = _items(data, at, end, wide, depth)
        if len(items) % 2:
            raise CodecError("a map has a key without a value")
        try:
            return dict(zip(items[::2], items[1::2], strict=True)), at
        except TypeError:
            raise CodecError("a key of a map is a list, a map or an array") from None

    return read


def _array(wide: bool) -> _Reader:
    def read(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        count, at, stop = _counted(data, at, end, wide)
        depth = _deeper(depth)
        descriptors = []
        while at < stop and not data[at]:
            depth = _deeper(depth)
            descriptor, at = _value(data, at + 1, stop, depth)
            descriptors.append(descriptor)
        if at >= stop:
            raise _short(at)
        code = data[at]
        at += 1
        if count > (stop - at if code >= 0x50 else MAX_EMPTY_ITEMS):
            raise CodecError(f"an array cannot have {count} items in {stop - at} octets")
        if len(descriptors) * count > MAX_DESCRIBED_ITEMS:
            raise CodecError(f"an array has {count} items with {len(descriptors)} descriptors")
        plain = _PLAIN.get(code)
        if plain is not None and not descriptors:
            layout, width, make = plain
            if count * width != stop - at:
                raise CodecError(f"an array cannot have {count} items in {stop - at} octets")
            return Array(map(make, struct.unpack_from(f">{count}{layout}", data, at)), code=code), stop
        reader = _READERS[code]
        items = Array(code=code)
        for _ in range(count):
            item, at = reader(data, at, stop, depth)
            for descriptor in reversed(descriptors):
                item = Described(descriptor, item)
            items.append(item)
        if at != stop:
            raise CodecError(f"{stop - at} octets follow the last item of an array")
        return items, stop

    return read


_PLAIN: Final[dict[int, tuple[str, int, Callable[[int], Value]]]] = {
    0x50: ("B", 1, UByte),
    0x51: ("b", 1, Byte),
    0x52: ("B", 1, UInt),
    0x53: ("B", 1, ULong),
    0x54: ("b", 1, Int),
    0x55: ("b", 1, int),
    0x60: ("H", 2, UShort),
    0x61: ("h", 2, Short),
    0x70: ("I", 4, UInt),
    0x71: ("i", 4, Int),
}
"""Numbers of which arrays are decoded together: their layout, their width, and their type."""
_READERS: Final[list[_Reader]] = [_unknown] * 256
"""By constructor octet."""

for _code, _reader in {
    0x00: _described,
    0x40: _constant(lambda: None),
    0x41: _constant(lambda: True),
    0x42: _constant(lambda: False),
    0x43: _constant(lambda: UInt(0)),
    0x44: _constant(lambda: ULong(0)),
    0x45: _constant(list),
    0x50: _number(">B", UByte),
    0x51: _number(">b", Byte),
    0x52: _number(">B", UInt),
    0x53: _number(">B", ULong),
    0x54: _number(">b", Int),
    0x55: _number(">b"),
    0x56: _number(">B", _boolean),
    0x60: _number(">H", UShort),
    0x61: _number(">h", Short),
    0x70: _number(">I", UInt),
    0x71: _number(">i", Int),
    0x72: _number(">f", Float),
    0x73: _number(">I", _char),
    0x74: _octets(4, Decimal32),
    0x80: _number(">Q", ULong),
    0x81: _number(">q"),
    0x82: _number(">d"),
    0x83: _number(">q", Timestamp),
    0x84: _octets(8, Decimal64),
    0x94: _octets(16, Decimal128),
    0x98: _octets(16, Uuid),
    0xA0: _variable8(bytes),
    0xA1: _variable8(_string),
    0xA3: _variable8(_symbol),
    0xB0: _variable32(bytes),
    0xB1: _variable32(_string),
    0xB3: _variable32(_symbol),
    0xC0: _list(False),
    0xC1: _map(False),
    0xD0: _list(True),
    0xD1: _map(True),
    0xE0: _array(False),
    0xF0: _array(True),
}.items():
    _READERS[_code] = _reader
