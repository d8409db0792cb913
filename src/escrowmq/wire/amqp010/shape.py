"""The shape of message properties, by which those of a client are checked in few steps.

Most messages of a client differ from the one before in the values of their properties only: ids, times, numbers, texts
of equal lengths. Everything else is fixed: flags, lengths, names and types. Properties that have the shape of earlier
ones need not be decoded.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from escrowmq.wire.amqp010.codec.spec import MessageProperties

LONGEST: Final = 1024
"""Octets of properties above which no shape is learned."""
MOST: Final = 64
"""Shapes that are remembered, by the number of octets."""

_HEAD: Final = 8  # size, code and flags
# The flags of the fields before the headers are in the first octet, in their order, and that of the headers is the
# first one in the second octet.
_LENGTH, _ID, _CORRELATION, _REPLY_TO, _TYPE, _ENCODING, _USER, _APPLICATION = (1 << bit for bit in range(8))
_HEADERS: Final = 1
_WIDTHS: Final = {0x0: 1, 0x1: 2, 0x2: 4, 0x3: 8, 0x4: 16, 0x5: 32, 0x6: 64, 0x7: 128, 0xC: 5, 0xD: 9, 0xF: 0}
"""Octets of a value, by the upper half of its type."""
_TEXTS: Final = {0x85: 1, 0x95: 2}
_BINARIES: Final = {0x80: 1, 0x90: 2, 0xA0: 4}
"""Octets of the length of a value, by its type."""
_CHARACTER: Final = 0x27  # a number that may be none

Place = tuple[int, int, bool]
"""Begin and end of a value that may differ, and whether it is a text."""


class PropertiesShape:
    """The shape of properties of one length. Texts have this shape if they are ASCII, so that they need no decoding.

    `layout` (of the module `struct`) takes the octets that are fixed, which are `fixed`, out of properties. `texts`
    takes out their texts; it is empty if they have none.
    """

    __slots__ = ("_texts", "_unpack", "fixed", "layout", "texts")

    def __init__(self, octets: bytes, places: list[Place]) -> None:
        """Learn the shape of `octets`, which are well-formed, from the values in them, in their order."""
        fixed: list[str] = []
        texts: list[str] = []
        at = 0
        for begin, end, text in places:
            fixed.append(f"{begin - at}s{end - begin}x")
            texts.append(f"{begin - at}x{end - begin}{'s' if text else 'x'}")
            at = end
        self.layout = f"{''.join(fixed)}{len(octets) - at}s"
        self.texts = "".join(texts) if any(text for _, _, text in places) else ""
        self._unpack = Struct(f">{self.layout}").unpack
        self._texts = Struct(f">{self.texts}{len(octets) - at}x").unpack if self.texts else None
        self.fixed: tuple[bytes, ...] = self._unpack(octets)

    def has(self, octets: bytes) -> bool:
        """Return whether `octets`, of the same length, have this shape."""
        if self._unpack(octets) != self.fixed:
            return False
        return octets.isascii() or self._texts is None or all(map(bytes.isascii, self._texts(octets)))


class PropertiesShapes:
    """The latest shapes of one session, by the number of their octets."""

    __slots__ = ("by_size",)

    def __init__(self) -> None:
        self.by_size: dict[int, PropertiesShape] = {}

    def user_of(self, octets: bytes) -> bytes | None:
        """Check encoded message properties, and return the user-id in them. Raises CodecError."""
        shape = self.by_size.get(len(octets))
        if shape is not None and shape.has(octets):
            return None
        found, _ = MessageProperties.read(octets, 0, len(octets))
        if found.user_id is None and len(octets) <= LONGEST:
            places = _places(octets)
            if places is not None:
                if len(self.by_size) >= MOST:
                    self.by_size.clear()
                self.by_size[len(octets)] = PropertiesShape(octets, places)
        return found.user_id


def _places(octets: bytes) -> list[Place] | None:
    """Return the values in well-formed properties without a user-id; None if there are some that have to be decoded."""
    flags, places, at = octets[6], list[Place](), _HEAD
    for flag, width in ((_LENGTH, 8), (_ID, 16)):
        if flags & flag:
            places.append((at, at + width, False))
            at += width
    if flags & _CORRELATION:
        at = _sized(octets, at, 2, places, text=False)
    if flags & _REPLY_TO:
        at += 2 + int.from_bytes(octets[at : at + 2], "big")
    for flag in (_TYPE, _ENCODING):
        if flags & flag:
            at += 1 + octets[at]
    if flags & _APPLICATION:
        at = _sized(octets, at, 2, places, text=False)
    if not octets[7] & _HEADERS:
        return places
    end = at + 4 + int.from_bytes(octets[at : at + 4], "big")
    at += 8
    while at < end:
        at += 1 + octets[at]
        kind = octets[at]
        at += 1
        if kind in _TEXTS or kind in _BINARIES:
            width = _TEXTS.get(kind) or _BINARIES[kind]
            at = _sized(octets, at, width, places, text=kind in _TEXTS)
            continue
        fixed = _WIDTHS.get(kind >> 4)
        if fixed is None or kind == _CHARACTER:
            return None
        places.append((at, at + fixed, False))
        at += fixed
    return places


def _sized(octets: bytes, at: int, width: int, places: list[Place], *, text: bool) -> int:
    """Add a value behind its length, which has `width` octets. Return its end."""
    begin = at + width
    end = begin + int.from_bytes(octets[at:begin], "big")
    places.append((begin, end, text))
    return end
