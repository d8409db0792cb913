"""Python types for the values of AMQP 1.0 (part 1, section 1.6) whose type is more than Python's own says.

    null None     boolean bool   long int      double float   string str   binary bytes   list list   map dict
    ubyte UByte   ushort UShort  uint UInt     ulong ULong    byte Byte    short Short    int Int
    float Float   char Char      symbol Symbol timestamp Timestamp         uuid Uuid      array Array
    decimal32 Decimal32          decimal64 Decimal64          decimal128 Decimal128

All but Described are subclasses of the Python type that has their value, so a reader that does not care about the AMQP
type needs no conversion.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

Value: TypeAlias = Any
"""Any value of the table above, or Described."""


class Symbol(str):
    """A name from a constrained domain, in ASCII."""

    __slots__ = ()


class Char(str):
    """One Unicode character."""

    __slots__ = ()


class UByte(int):
    """0 to 2**8 - 1."""

    __slots__ = ()


class UShort(int):
    """0 to 2**16 - 1."""

    __slots__ = ()


class UInt(int):
    """0 to 2**32 - 1."""

    __slots__ = ()


class ULong(int):
    """0 to 2**64 - 1."""

    __slots__ = ()


class Byte(int):
    """-2**7 to 2**7 - 1."""

    __slots__ = ()


class Short(int):
    """-2**15 to 2**15 - 1."""

    __slots__ = ()


class Int(int):
    """-2**31 to 2**31 - 1."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since the epoch, 64 bits, signed."""

    __slots__ = ()


class Float(float):
    """Single precision."""

    __slots__ = ()


class Uuid(bytes):
    """The 16 octets of a UUID."""

    __slots__ = ()


class Decimal32(bytes):
    """4 octets, opaque."""

    __slots__ = ()


class Decimal64(bytes):
    """8 octets, opaque."""

    __slots__ = ()


class Decimal128(bytes):
    """16 octets, opaque."""

    __slots__ = ()


class Described(NamedTuple):
    """A value with a descriptor, usually ULong or Symbol, that says what the value stands for."""

    descriptor: Value
    value: Value


class Array(list[Any]):
    """Values of one type. `code` is the constructor octet that was on the wire; it is the only trace of the type of an
    empty array.

    If the items are Described, all have the same descriptor.
    """

    __slots__ = ("code",)

    def __init__(self, items: Iterable[Value] = (), code: int | None = None) -> None:
        super().__init__(items)
        self.code = code
