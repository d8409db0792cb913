"""Python types for the values of AMQP 0-10 whose type is more than Python's own says.

    void None         boolean, bit bool     int64 int         double float      str8, str16 and the like  str
    int8 Int8         int16 Int16           int32 Int32       float Float       vbin8, vbin16, vbin32     bytes
    uint8 UInt8       uint16 UInt16         uint32 UInt32     uint64 UInt64     bin8 to bin1024           FixedBinary
    char Char         char-utf32 CharUtf32  uuid Uuid         datetime Datetime dec32, dec64              Decimal
    map dict          list list             array Array       struct32 Struct, or UnknownStruct

All but the structs are subclasses of the Python type that has their value, so a reader that does not care about the
type of AMQP needs no conversion.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

Value: TypeAlias = Any
"""Any value of the table above."""
Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""First and last number of each range: a sequence-set, whose numbers wrap at 2**32, or byte-ranges."""


class Int8(int):
    """-2**7 to 2**7 - 1."""

    __slots__ = ()


class Int16(int):
    """-2**15 to 2**15 - 1."""

    __slots__ = ()


class Int32(int):
    """-2**31 to 2**31 - 1."""

    __slots__ = ()


class UInt8(int):
    """0 to 2**8 - 1."""

    __slots__ = ()


class UInt16(int):
    """0 to 2**16 - 1."""

    __slots__ = ()


class UInt32(int):
    """0 to 2**32 - 1."""

    __slots__ = ()


class UInt64(int):
    """0 to 2**64 - 1."""

    __slots__ = ()


class Datetime(int):
    """Seconds since the epoch, 0 to 2**64 - 1."""

    __slots__ = ()


class Float(float):
    """Single precision."""

    __slots__ = ()


class Char(str):
    """One character of Latin-1."""

    __slots__ = ()


class CharUtf32(str):
    """One Unicode character."""

    __slots__ = ()


class Uuid(bytes):
    """16 octets."""

    __slots__ = ()


class FixedBinary(bytes):
    """1, 2, 4, 5, 8, 9, 16, 32, 64 or 128 octets; the number of octets determines the type."""

    __slots__ = ()


class Array(list[Value]):
    """Items of one type, whose octet is `code`. Their Python types are the plain ones: `int`, not `UInt8`."""

    __slots__ = ("code",)

    def __init__(self, items: Iterable[Value] = (), *, code: int) -> None:
        super().__init__(items)
        self.code = code

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Array) and self.code != other.code:
            return False
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __repr__(self) -> str:
        return f"Array({list(self)!r}, code={self.code:#04x})"


class UnknownStruct(NamedTuple):
    """A struct32 with a code that the specification does not define, and its octets behind the code."""

    code: int
    octets: bytes
