"""Property lists that are read without being decoded: the properties that a broker needs, and the list's shape.

A client's messages usually differ in values, seldom in the layout of their property lists: the flags, the lengths and
the names are the same. A `Shape` is such a layout. Two comparisons show that a list fits a shape; then it is
well-formed and has the same delivery mode, priority and expiration. A list that fits no shape is surveyed: walked once
by its flags.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from escrowmq.wire.amqp091.properties import REPLY_TO

_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_ELSEWHERE: Final = 0x0013
"""Flags of lists that are decoded in full: user-id, which is checked, and undefined flags."""
_FIXED: Final = {ord(tag): size for tag, size in zip("tbBsuIilLTfd", (1, 1, 1, 2, 2, 4, 4, 8, 8, 8, 4, 8), strict=True)}
_REPLY_TO: Final = REPLY_TO.encode()


class Values(NamedTuple):
    """The values that give messages with the same method different envelopes. `expiration` is empty if there is
    none.
    """

    durable: bool
    priority: int
    expiration: bytes


class Survey:
    """The walk over one property list: its values, and the positions of the parts that may differ.

    `values` is None for a list that has to be decoded: one that is malformed, has an array or a nested table, has
    further routing keys, or has text that is not ASCII. `reply_to` is the position of the reply-to property if it asks
    for a direct reply, otherwise 0.
    """

    __slots__ = ("_buf", "_end", "reply_to", "texts", "values", "varying")

    def __init__(self, buf: bytes, at: int, end: int) -> None:
        """Survey the list in `buf` from its flags at `at` up to `end`."""
        self._buf = buf
        self._end = end
        self.reply_to = 0
        self.texts: list[tuple[int, int]] = []
        self.varying: list[tuple[int, int]] = []
        self.values: Values | None = None
        try:
            self.values = self._walk(at)
        except (IndexError, struct.error):
            self.values = None

    def _walk(self, at: int) -> Values | None:
        buf = self._buf
        flags = _U16.unpack_from(buf, at)[0]
        if flags & _ELSEWHERE:
            return None
        at += 2
        for flag in (0x8000, 0x4000):  # content-type, content-encoding
            if flags & flag:
                at = self._text(at)
        if flags & 0x2000:
            at = self._headers(at)
        durable, priority = False, 0
        if flags & 0x1000:
            durable, at = buf[at] == 2, at + 1
        if flags & 0x0800:
            priority, at = buf[at], at + 1
        if flags & 0x0400:  # correlation-id
            at = self._text(at, varies=True)
        if flags & 0x0200:  # reply-to; it may have the length of the name that asks for direct replies
            begin, at = at + 1, self._text(at, varies=buf[at] != len(_REPLY_TO))
            if buf[begin:at] == _REPLY_TO:
                self.reply_to = begin - 1
        expiration = b""
        if flags & 0x0100:
            begin, at = at + 1, at + 1 + buf[at]
            expiration = buf[begin:at]
            if not expiration.isdigit():
                return None
        if flags & 0x0080:  # message-id
            at = self._text(at, varies=True)
        if flags & 0x0040:  # timestamp
            self.varying.append((at, at + 8))
            at += 8
        if flags & 0x0020:  # type
            at = self._text(at)
        for flag in (0x0008, 0x0004):  # app-id, cluster-id
            if flags & flag:
                at = self._text(at)
        if at != self._end:
            return None
        return Values(durable, priority, expiration)

    def _text(self, at: int, *, varies: bool = False) -> int:
        """Return the end of the short string at `at`. Raises IndexError if it is not ASCII."""
        begin = at + 1
        stop = begin + self._buf[at]
        if not self._buf[begin:stop].isascii():
            raise IndexError
        if varies and stop > begin:
            self.texts.append((begin, stop))
        return stop

    def _headers(self, at: int) -> int:
        """Return the end of the headers table at `at`. Raises IndexError if the table has to be decoded."""
        buf = self._buf
        begin, stop = at + 4, at + 4 + _U32.unpack_from(buf, at)[0]
        if stop > self._end or buf.find(b"\x02CC", begin, stop) >= 0 or buf.find(b"\x03BCC", begin, stop) >= 0:
            raise IndexError
        at = begin
        while at < stop:
            name = at + 1
            at = name + buf[at]
            if not buf[name:at].isascii():
                raise IndexError
            tag = buf[at]
            at += 1
            size = _FIXED.get(tag)
            if size is None:
                if tag == 0x56:  # V, which has no value
                    continue
                if tag not in (0x53, 0x78):  # S, x
                    raise IndexError
                size = int(_U32.unpack_from(buf, at)[0])
                at += 4
            if size:
                self.varying.append((at, at + size))
            at += size
        if at != stop:
            raise IndexError
        return int(stop)


class Shape:
    """A layout of content header frames, from the frame's size field on.

    A frame at `at` fits it if `literals(buf, at)` returns `expected` and the texts that `texts(buf, at)` returns are
    ASCII. `length` is the length of the frame without its end octet. `reply_to` is the offset of the reply-to property
    if it asks for a direct reply, otherwise 0.
    """

    __slots__ = ("expected", "length", "literals", "reply_to", "texts", "values")

    def __init__(self, buf: bytes, at: int, survey: Survey, values: Values) -> None:
        """The shape of the frame at `at` in `buf`, with the survey of its property list."""
        self.length = 4 + int(_U32.unpack_from(buf, at)[0])
        self.values = values
        self.reply_to = survey.reply_to and survey.reply_to - at
        # The lower half of the body's size varies, too.
        varying = sorted([(at + 12, at + 16), *survey.texts, *survey.varying])
        literals = struct.Struct(">" + "".join(_layout(at, at + self.length, varying, "x", "s")))
        self.literals = literals.unpack_from
        self.expected = literals.unpack_from(buf, at)
        texts = struct.Struct(">" + "".join(_layout(at, at + self.length, sorted(survey.texts), "s", "x")))
        self.texts = texts.unpack_from


def _layout(at: int, end: int, spans: list[tuple[int, int]], inside: str, outside: str) -> list[str]:
    """Return a `struct` layout of the octets from `at` to `end`, with one code inside the spans and another outside."""
    found: list[str] = []
    for begin, stop in spans:
        if begin > at:
            found.append(f"{begin - at}{outside}")
        found.append(f"{stop - begin}{inside}")
        at = stop
    if end > at:
        found.append(f"{end - at}{outside}")
    return found


class Shapes:
    """The shapes of a connection's messages, by the size of their header frames.

    Long property lists, and those with many fields, are not learned, since a shape takes memory for each field.
    Learning a shape costs as much as surveying ten messages. If a shape is soon replaced, learning it was not worth the
    cost, so the next one is learned later.
    """

    __slots__ = ("_by_size", "_patience", "_waiting")

    MOST: Final = 128
    LONGEST: Final = 1024
    FIELDS: Final = 64

    def __init__(self) -> None:
        self._by_size: dict[int, Shape] = {}
        self._waiting = 0
        self._patience = 1

    def find(self, buf: bytes, at: int) -> Shape | None:
        """Return the known shape for header frames of the size of the one at `at`. The frame need not fit it."""
        return self._by_size.get(_U32.unpack_from(buf, at)[0])

    def learn(self, buf: bytes, at: int, survey: Survey, values: Values) -> Shape | None:
        """Remember the shape of the frame at `at`. Returns None if it is too early to learn another one."""
        if self._waiting:
            self._waiting -= 1
            return None
        size = int(_U32.unpack_from(buf, at)[0])
        if size > self.LONGEST or len(survey.texts) + len(survey.varying) > self.FIELDS:
            return None
        if size in self._by_size or len(self._by_size) >= self.MOST:
            self._patience = min(2 * self._patience, 256)
            self._waiting = self._patience
            if len(self._by_size) >= self.MOST:
                self._by_size.clear()
        shape = self._by_size[size] = Shape(buf, at, survey, values)
        return shape
