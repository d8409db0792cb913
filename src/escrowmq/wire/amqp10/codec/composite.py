"""Composite types (part 1, section 1.4): classes whose values are described lists.

A class is declared with its descriptors and with the kinds of its fields, in the specification's order. Fields without
a default are mandatory. A field that is absent or null has its default value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any, Final, NamedTuple, TypeVar

from escrowmq.wire.amqp10.codec.encoding import encode
from escrowmq.wire.amqp10.codec.errors import CodecError
from escrowmq.wire.amqp10.codec.types import (
    Array,
    Described,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Uuid,
    Value,
)

_C = TypeVar("_C")


class FieldKind(NamedTuple):
    """The type of a field. `read` makes the attribute of a decoded value and raises CodecError for other types, `write`
    makes a value that can be encoded. Neither gets None, except where `empty` is the attribute of an absent field.
    """

    read: Callable[[Value], Any]
    write: Callable[[Any], Value]
    empty: Any = None


class _Shape(NamedTuple):
    """A class, its descriptor, and name, kind and default of each field; MISSING is the default of mandatory ones."""

    make: type
    name: str
    descriptor: ULong
    fields: tuple[tuple[str, FieldKind, Any], ...]
    defaults: dict[str, Any]
    mandatory: tuple[str, ...]


_BY_DESCRIPTOR: Final[dict[Value, _Shape]] = {}
_BY_CLASS: Final[dict[type, _Shape]] = {}


def composite(code: int, name: str, *kinds: FieldKind) -> Callable[[type[_C]], type[_C]]:
    """Register a dataclass as the composite with these descriptors. Each field has the kind of its place."""

    def register(made: type[_C]) -> type[_C]:
        declared: tuple[Field[Any], ...] = fields(made)  # type: ignore[arg-type]
        shape = _Shape(
            made,
            name,
            ULong(code),
            tuple((field.name, kind, field.default) for field, kind in zip(declared, kinds, strict=True)),
            {field.name: field.default for field in declared},
            tuple(field.name for field in declared if field.default is MISSING),
        )
        _BY_DESCRIPTOR[code] = _BY_DESCRIPTOR[name] = _BY_CLASS[made] = shape
        return made

    return register


def resolve(value: Value) -> Value:
    """Return the composite that `value` describes, or `value` itself if it is not Described or has a descriptor that no
    composite has.

    Raises CodecError if the fields do not fit the composite.
    """
    if type(value) is not Described or not isinstance(value.descriptor, ULong | Symbol):
        return value
    shape = _BY_DESCRIPTOR.get(value.descriptor)
    if shape is None:
        return value
    values = value.value
    if type(values) is not list or len(values) > len(shape.fields):
        raise CodecError(f"{shape.name} must be a list of at most {len(shape.fields)} fields")
    return _made(shape, values)


def _made(shape: _Shape, values: list[Value]) -> Any:
    attributes = shape.defaults.copy()
    for (name, kind, _), value in zip(shape.fields, values, strict=False):
        if value is not None:
            try:
                attributes[name] = kind.read(value)
            except CodecError as error:
                raise CodecError(f"field {name.replace('_', '-')} of {shape.name}: {error}") from None
    for name in shape.mandatory:
        if attributes[name] is MISSING:
            raise CodecError(f"{shape.name} lacks its mandatory field {name.replace('_', '-')}")
    return shape.make(**attributes)


def described(item: Any) -> Value:
    """Return a composite as a value that can be encoded; anything that is no composite is returned as it is.

    Trailing nulls are left out. A flag that has its default value, and an empty list of symbols, become null.
    """
    shape = _BY_CLASS.get(type(item))
    if shape is None:
        return item
    values: list[Value] = []
    for name, kind, default in shape.fields:
        value = getattr(item, name)
        if value is None or value == kind.empty or (value is False and default is False):
            values.append(None)
        else:
            values.append(kind.write(value))
    while values and values[-1] is None:
        values.pop()
    return Described(shape.descriptor, values)


def encode_composite(item: Any) -> bytes:
    """Return the encoding of a composite. Raises CodecError if a field is out of its type's range."""
    return encode(described(item))


# ---- kinds of fields ----


def _of(*types: type) -> Callable[[Value], Value]:
    names = " or ".join(kind.__name__.lower() for kind in types)

    def read(value: Value) -> Value:
        if type(value) not in types:
            raise CodecError(f"a value of type {type(value).__name__.lower()} stands where {names} must be")
        return value

    return read


def _integer(kind: type[int]) -> FieldKind:
    check = _of(kind)
    return FieldKind(lambda value: int(check(value)), kind)


def one_of(*types: type) -> FieldKind:
    """A field for one of several composites."""
    expected = ", ".join(kind.__name__.lower() for kind in types)

    def read(value: Value) -> Value:
        item = resolve(value)
        if type(item) not in types:
            raise CodecError(f"a value is none of: {expected}")
        return item

    return FieldKind(read, described)


def _symbols(value: Value) -> tuple[Symbol, ...]:
    items = value if type(value) is Array else [value]
    if any(type(item) is not Symbol for item in items):
        raise CodecError("an item of a list of symbols is no symbol")
    return tuple(items)


def _write_symbols(value: Any) -> Value:
    items = [Symbol(item) for item in ([value] if isinstance(value, str) else value)]
    return items[0] if len(items) == 1 else Array(items)


def _read_symbolic(value: Value) -> dict[Value, Value]:
    if type(value) is not dict or any(type(key) not in {Symbol, ULong, str} for key in value):
        raise CodecError("a map must have symbols as keys")
    # RabbitMQ's Python client sends the annotations of `modified` with strings as keys.
    return {Symbol(key) if type(key) is str else key: resolve(item) for key, item in value.items()}


def _write_symbolic(value: dict[Value, Value]) -> Value:
    return {Symbol(key) if type(key) is str else key: described(item) for key, item in value.items()}


def _any(value: Value) -> Value:
    return value


BOOLEAN: Final = FieldKind(_of(bool), bool)
UBYTE: Final = _integer(UByte)
USHORT: Final = _integer(UShort)
UINT: Final = _integer(UInt)
ULONG: Final = _integer(ULong)
TIMESTAMP: Final = _integer(Timestamp)
BINARY: Final = FieldKind(_of(bytes), bytes)
STRING: Final = FieldKind(_of(str), str)
SYMBOL: Final = FieldKind(_of(Symbol), Symbol)
SYMBOLS: Final = FieldKind(_symbols, _write_symbols, ())
FIELDS: Final = FieldKind(_read_symbolic, _write_symbolic)
"""A map from symbols (or ulong, which is reserved) to any values. Composites among the values are read as such."""
MESSAGE_ID: Final = FieldKind(_of(ULong, Uuid, bytes, str), _any)
