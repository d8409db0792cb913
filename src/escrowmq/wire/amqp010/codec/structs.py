"""What the generated classes in `spec.py` have in common: compounds of optional fields behind presence flags.

A compound begins with 16 presence flags, of which the first octet has the first eight fields. Fields that are absent
have no octets. A bit is nothing but its flag.
"""

from __future__ import annotations

from typing import ClassVar, Final, Self

from escrowmq.wire.amqp010.codec.errors import CodecError

STRUCTS: Final[dict[int, type[Struct]]] = {}
"""Structs by code: those that may be where a struct32 is expected."""


class Compound:
    """A struct, command or control. Fields are attributes in wire order. An absent one is None, an absent bit False."""

    __slots__ = ()

    NAME: ClassVar[str]
    """The name of the specification, such as `queue.declare`."""
    CODE: ClassVar[int]
    """Class and number, an octet each; -1 for a struct without a code."""
    FIELDS: ClassVar[tuple[tuple[str, str], ...]]
    """(attribute, wire type) of each field."""

    def encode(self) -> bytes:
        """Return presence flags and fields. Raises CodecError for a value that its field cannot have."""
        raise NotImplementedError

    @classmethod
    def decode(cls, payload: bytes, at: int, end: int, depth: int = 0) -> Self:
        """Read presence flags and fields, which fill `payload` from `at` to `end`. Raises CodecError.

        `depth` is the number of maps, lists, arrays and structs around this compound.
        """
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name, _ in self.FIELDS)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        present = [(name, getattr(self, name)) for name, _ in self.FIELDS]
        shown = ", ".join(f"{name}={value!r}" for name, value in present if value is not None and value is not False)
        return f"{type(self).__name__}({shown})"


class Struct(Compound):
    """A struct. `SIZE` is the number of octets of its size, which comes before its code, if it has one."""

    __slots__ = ()

    SIZE: ClassVar[int]

    def __init_subclass__(cls) -> None:
        if cls.CODE >= 0:
            STRUCTS[cls.CODE] = cls

    def write(self) -> bytes:
        """Return the struct with its size and its code. Raises CodecError."""
        octets = self.encode()
        if self.CODE >= 0:
            octets = self.CODE.to_bytes(2, "big") + octets
        try:
            return len(octets).to_bytes(self.SIZE, "big") + octets
        except OverflowError:
            raise CodecError(f"{self.NAME}: {len(octets)} octets are too many") from None

    @classmethod
    def read(cls, payload: bytes, at: int, end: int, depth: int = 0) -> tuple[Self, int]:
        """Read the struct at `at`, with its size and its code. Return it and its end. Raises CodecError."""
        start = at + cls.SIZE
        stop = start + int.from_bytes(payload[at:start], "big")
        if stop > end or start > end:
            raise CodecError(f"{cls.NAME}: reaches beyond the end")
        if cls.CODE >= 0:
            if stop - start < 2 or int.from_bytes(payload[start : start + 2], "big") != cls.CODE:
                raise CodecError(f"{cls.NAME}: another struct is in its place")
            start += 2
        return cls.decode(payload, start, stop, depth), stop


class Command(Compound):
    """A command: a numbered operation of a session."""

    __slots__ = ()

    RESULT: ClassVar[type[Struct] | None] = None
    """The struct that answers the command, if any."""


class Control(Compound):
    """A control: an operation of the connection, or of a session itself."""

    __slots__ = ()
