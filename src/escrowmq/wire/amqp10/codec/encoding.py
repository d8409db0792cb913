"""Writing values of AMQP 1.0 (part 1, section 1.6), each in its smallest encoding. `decode` is here too."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Final

from escrowmq.wire.amqp10.codec.decoding import MAX_DEPTH, MAX_EMPTY_ITEMS, decode, skip
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

__all__ = ["MAX_DEPTH", "CodecError", "decode", "encode", "skip"]

_HEAD8: Final = struct.Struct(">BB")
_HEAD32: Final = struct.Struct(">BI")
_COMPOUND8: Final = struct.Struct(">BBB")
_COMPOUND32: Final = struct.Struct(">BII")
_U32: Final = struct.Struct(">I")

_MANY: Final = 100


def encode(value: Value) -> bytes:
    """Return the encoding of `value`. Raises CodecError for a value without an encoding: of an unknown type, out of its
    type's range, or nested too deep.
    """
    return _encode(value, 0)


def _encode(value: Value, depth: int) -> bytes:
    writer = _WRITERS.get(type(value)) or _WRITERS[_type_of(value)]
    if depth > MAX_DEPTH:
        raise CodecError(f"values are nested deeper than {MAX_DEPTH} levels")
    try:
        return writer(value, depth)
    except (struct.error, OverflowError):
        raise CodecError(f"{value!r} is out of the range of {type(value).__name__}") from None
    except UnicodeEncodeError as error:
        raise CodecError(f"a {type(value).__name__} cannot be encoded: {error.reason}") from None


def _type_of(value: Value) -> type:
    for kind in type(value).__mro__:
        if kind in _WRITERS:
            return kind
    if isinstance(value, bytearray | memoryview):
        return bytes
    raise CodecError(f"a {type(value).__name__} has no encoding in AMQP 1.0")


def _null(value: None, depth: int) -> bytes:
    return b"\x40"


def _boolean(value: bool, depth: int) -> bytes:
    return b"\x41" if value else b"\x42"


def _fixed(code: int, layout: str) -> Callable[[Value, int], bytes]:
    pack = struct.Struct(">B" + layout).pack

    def write(value: Value, depth: int) -> bytes:
        return pack(code, value)

    return write


def _integer(
    small: int, low: int, high: int, large: int, layout: str, zero: bytes = b""
) -> Callable[[int, int], bytes]:
    """An integer type that has a form of one octet for `low` to `high`, and perhaps one of none for zero."""
    pack_small = struct.Struct(">Bb" if low else ">BB").pack
    pack_large = struct.Struct(">B" + layout).pack

    def write(value: int, depth: int) -> bytes:
        if value == 0 and zero:
            return zero
        return pack_small(small, value) if low <= value <= high else pack_large(large, value)

    return write


def _opaque(code: int, size: int) -> Callable[[bytes, int], bytes]:
    def write(value: bytes, depth: int) -> bytes:
        if len(value) != size:
            raise CodecError(f"a {type(value).__name__} has {size} octets, not {len(value)}")
        return bytes((code,)) + value

    return write


def _char(value: str, depth: int) -> bytes:
    if len(value) != 1:
        raise CodecError("a Char is one character")
    return b"\x73" + value.encode("utf-32-be")


def _variable(code: int, data: bytes) -> bytes:
    """Octets behind their size, with `code` for a size of one octet and `code` + 16 for four."""
    size = len(data)
    return (_HEAD8.pack(code, size) if size < 256 else _HEAD32.pack(code + 16, size)) + data


def _binary(value: bytes, depth: int) -> bytes:
    return _variable(0xA0, value)


def _string(value: str, depth: int) -> bytes:
    return _variable(0xA1, value.encode())


def _symbol(value: str, depth: int) -> bytes:
    return _variable(0xA3, value.encode("ascii"))


def compound(code: int, count: int, items: bytes) -> bytes:
    """Return a list (`code` 0xC0) or map (0xC1) of encoded items; for a map, keys and values are counted."""
    size = len(items)
    if size < 255 and count < 256:
        return _COMPOUND8.pack(code, size + 1, count) + items
    return _COMPOUND32.pack(code + 16, size + 4, count) + items


def _list(value: list[Value], depth: int) -> bytes:
    if not value:
        return b"\x45"
    return compound(0xC0, len(value), b"".join([_encode(item, depth + 1) for item in value]))


def _map(value: dict[Value, Value], depth: int) -> bytes:
    if len(value) >= _MANY and set(map(type, value)) == {bytes} and all(each is None for each in value.values()):
        sizes = set(map(len, value))
        if len(sizes) == 1 and max(sizes) < 256:
            return compound(0xC1, 2 * len(value), _keys_alone(value, max(sizes)))
    items = [_encode(item, depth + 1) for pair in value.items() for item in pair]
    return compound(0xC1, len(items), b"".join(items))


def _keys_alone(value: Iterable[bytes], size: int) -> bytes:
    """Return the items of a map whose keys have this size, and whose values are null: that of unsettled deliveries."""
    head = bytes((0xA0, size))
    return head + (b"\x40" + head).join(value) + b"\x40"


def _described(value: Described, depth: int) -> bytes:
    return b"\x00" + _encode(value.descriptor, depth + 1) + _encode(value.value, depth + 1)


def _array(value: Array, depth: int) -> bytes:
    constructor, items = _elements(value, depth + 1)
    body = constructor + b"".join(items)
    if len(body) < 255 and len(items) < 256:
        return _COMPOUND8.pack(0xE0, len(body) + 1, len(items)) + body
    return _COMPOUND32.pack(0xF0, len(body) + 4, len(items)) + body


def _elements(values: Array, depth: int) -> tuple[bytes, list[bytes]]:
    """The constructor of an array, and its items without it."""
    if not values:
        return bytes((0x40 if values.code is None else values.code,)), []
    first = values[0]
    if isinstance(first, Described):
        if any(not isinstance(value, Described) or value.descriptor != first.descriptor for value in values):
            raise CodecError("the items of an array have different descriptors")
        constructor, items = _elements(Array([value.value for value in values]), depth + 1)
        return b"\x00" + _encode(first.descriptor, depth) + constructor, items
    kind = type(first) if type(first) in _WRITERS else _type_of(first)
    if any(type(value) is not kind and _type_of(value) is not kind for value in values):
        raise CodecError("the items of an array have different types")
    return _uniform(kind, values, depth)


def _uniform(kind: type, values: Array, depth: int) -> tuple[bytes, list[bytes]]:
    """The items of one type in one encoding: the largest, or if all of them allow it, the smallest."""
    if kind is type(None) and len(values) > MAX_EMPTY_ITEMS:
        raise CodecError(f"an array has more than {MAX_EMPTY_ITEMS} nulls")
    encoded = [_encode(value, depth) for value in values]
    code, layout = _ELEMENTS[kind]
    if layout is not None:
        pack = struct.Struct(layout).pack
        return bytes((code,)), [pack(value) for value in values]
    if len({item[0] for item in encoded}) == 1 and encoded[0][0] != 0x45:
        return encoded[0][:1], [item[1:] for item in encoded]
    return bytes((code,)), [_widened(kind, item) for item in encoded]


def _widened(kind: type, item: bytes) -> bytes:
    """An encoded item of variable size without its constructor, its sizes in four octets."""
    code = item[0]
    if code == 0x45:
        return b"\x00\x00\x00\x04\x00\x00\x00\x00"
    if code & 0x10:
        return item[1:]
    if kind in {list, dict, Array}:
        return _U32.pack(item[1] + 3) + _U32.pack(item[2]) + item[3:]
    return _U32.pack(item[1]) + item[2:]


_WRITERS: Final[dict[type, Callable[[Value, int], bytes]]] = {
    type(None): _null,
    bool: _boolean,
    int: _integer(0x55, -128, 127, 0x81, "q"),
    float: _fixed(0x82, "d"),
    str: _string,
    bytes: _binary,
    list: _list,
    tuple: _list,
    dict: _map,
    Described: _described,
    Array: _array,
    Symbol: _symbol,
    Char: _char,
    UByte: _fixed(0x50, "B"),
    UShort: _fixed(0x60, "H"),
    UInt: _integer(0x52, 0, 255, 0x70, "I", b"\x43"),
    ULong: _integer(0x53, 0, 255, 0x80, "Q", b"\x44"),
    Byte: _fixed(0x51, "b"),
    Short: _fixed(0x61, "h"),
    Int: _integer(0x54, -128, 127, 0x71, "i"),
    Timestamp: _fixed(0x83, "q"),
    Float: _fixed(0x72, "f"),
    Uuid: _opaque(0x98, 16),
    Decimal32: _opaque(0x74, 4),
    Decimal64: _opaque(0x84, 8),
    Decimal128: _opaque(0x94, 16),
}
"""The functions that write a value with its constructor."""

_ELEMENTS: Final[dict[type, tuple[int, str | None]]] = {
    type(None): (0x40, None),
    bool: (0x56, ">?"),
    int: (0x81, ">q"),
    float: (0x82, None),
    str: (0xB1, None),
    bytes: (0xB0, None),
    list: (0xD0, None),
    tuple: (0xD0, None),
    dict: (0xD1, None),
    Array: (0xF0, None),
    Symbol: (0xB3, None),
    Char: (0x73, None),
    UByte: (0x50, None),
    UShort: (0x60, None),
    UInt: (0x70, ">I"),
    ULong: (0x80, ">Q"),
    Byte: (0x51, None),
    Short: (0x61, None),
    Int: (0x71, ">i"),
    Timestamp: (0x83, None),
    Float: (0x72, None),
    Uuid: (0x98, None),
    Decimal32: (0x74, None),
    Decimal64: (0x84, None),
    Decimal128: (0x94, None),
}
"""The constructor of an array's items, and the layout of those integers that have smaller encodings elsewhere."""
