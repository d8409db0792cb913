"""The shape of a producer's transfers, by which many are read in few steps.

Most transfers of a link differ from the one before only in size, number, tag, and in the values of the message: ids,
times, application properties, body. Everything else is fixed, up to the end of the message's properties: descriptors,
type codes and lengths. One slice of each transfer has all of that. Whether the fixed octets are the same in all of them
is found out at once, one column of octets after the other.

A shape is *plain* if it fixes that a message has no annotations, no `user-id` and no absolute expiry time. Such
messages need not be looked at one by one.
"""

from __future__ import annotations

from struct import Struct, pack
from typing import Final, NamedTuple

_LEAST_CHUNK: Final = 8
_GROWTH: Final = 8
"""Transfers that are read before their likeness is checked: few at first, because others may follow."""
_NUMBERS: Final = 1 << 32
_LONGEST_HEAD: Final = 2048

_ANNOTATED: Final = b"\x00\x53\x72"
_PROPERTIES: Final = b"\x00\x53\x73\xc0"
_BODIES: Final = frozenset((0x74, 0x75, 0x76, 0x77))
_NULL: Final = 0x40
_EXCLUDED: Final = frozenset((1, 8))  # user-id and absolute-expiry-time, among the fields of the properties
# Octets of a value behind its type code, by the upper half of the code. Lengths of one octet follow the codes 0xA0 to
# 0xAF.
_WIDTHS: Final = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_WITH_LENGTH: Final = 0xA


class AlikeTransfers(NamedTuple):
    """Transfers that were read: their contents, their tags, and the end of the last one. They need no look at each of
    them if they are `plain`.
    """

    contents: list[bytes]
    tags: list[bytes]
    end: int
    plain: bool


class TransferShape:
    """The shape of transfers whose numbers have four octets."""

    __slots__ = ("_columns", "_length", "_number_at", "_tag", "_unpack", "_values", "content_at", "plain")

    def __init__(self, data: bytes, at: int, tag_at: int, tag_end: int, content: int, end: int) -> None:
        """Learn the shape of the transfer in data[at:end], whose tag with its type code is at `tag_at`."""
        fixed, behind = _fixed_properties(data, content, end)
        self.plain = fixed is not None
        first, number = at + 4, tag_at - 4
        behind = min(behind, end)
        self._length = behind - first
        self.content_at = content - at
        self._number_at = number - first
        self._tag = slice(tag_at + 2 - first, tag_end - first)
        self._unpack = Struct(f">I{self._length}s").unpack_from
        self._columns = [
            (place - first, data[place : place + 1])
            for places in (range(first, number), range(tag_at, tag_at + 2), range(tag_end, min(content + 3, behind)))
            for place in places
        ]
        self._values = [(place - first, data[place : place + 1]) for place in fixed or ()]

    def read(self, data: bytes, at: int, number: int, most: int, *, tagged: bool) -> AlikeTransfers:
        """Read the transfers of this shape that begin at `at`, whose numbers continue from `number`, and whose frames
        have at most `most` octets. Tags are returned if the transfers are `tagged`, which is to say unsettled.
        """
        contents: list[bytes] = []
        tags: list[bytes] = []
        plain, chunk = self.plain, _LEAST_CHUNK
        unpack, content_at = self._unpack, self.content_at
        least = 4 + self._length
        last = len(data) - least
        while at <= last:
            begin = len(contents)
            heads: list[bytes] = []
            add, add_head = contents.append, heads.append
            stop, size = at, 0
            for _ in range(chunk):
                size, head = unpack(data, stop)
                if not least <= size <= most:
                    break
                add(data[stop + content_at : stop + size])
                add_head(head)
                stop += size
                if stop > last:
                    break
            if stop > len(data):
                stop -= size
                del contents[-1], heads[-1]
            good, alike = self._like(heads, number + begin)
            plain = plain and alike
            if tagged:
                tags += [head[self._tag] for head in heads[:good]]
            if good < len(heads):
                del contents[begin + good :]
                stop = at + good * content_at + sum(map(len, contents[begin:]))
            at = stop
            if good < chunk:
                break
            chunk *= _GROWTH
        return AlikeTransfers(contents, tags, at, plain)

    def _like(self, heads: list[bytes], number: int) -> tuple[int, bool]:
        """Return how many of `heads`, from the first one on, have this shape, apart from the values of properties, and
        whether all of these do in that respect too.
        """
        count = min(len(heads), _NUMBERS - number)
        if count <= 0:
            return 0, True
        length = self._length
        octets = b"".join(heads)
        good = count
        numbers = pack(f">{count}I", *range(number, number + count))
        for i in range(4):
            column, expected = octets[self._number_at + i :: length], numbers[i::4]
            if column != expected:
                good = min(good, next((k for k in range(count) if column[k] != expected[k]), count))
        for place, octet in self._columns:
            column = octets[place::length]
            if column.count(octet) < len(column):
                good = min(good, len(column) - len(column.lstrip(octet)))
        octets = octets[: good * length]
        return good, all(octets[place::length].count(octet) == good for place, octet in self._values)


def _fixed_properties(data: bytes, content: int, end: int) -> tuple[list[int] | None, int]:
    """Return the places behind the third octet of the content at `content` that are the same in all messages with the
    same fields of the same lengths, and the end of the properties. Places are None if the message is not plain.
    """
    at = content + 3
    if not data.startswith(_PROPERTIES, content):
        plain = at <= end and data.startswith(b"\x00\x53", content) and data[content + 2] in _BODIES
        return ([] if plain else None), at
    if content + 6 > end or content + 5 + data[content + 4] > min(end, content + _LONGEST_HEAD):
        return None, at
    behind = content + 5 + data[content + 4]
    places = [content + 3, content + 4, content + 5]
    place = content + 6
    for field in range(data[content + 5]):
        if place >= behind:
            return None, at
        code = data[place]
        places.append(place)
        if field in _EXCLUDED and code != _NULL:
            return None, at
        width = _WIDTHS.get(code >> 4)
        if width is None:
            if code >> 4 != _WITH_LENGTH or place + 1 >= behind:
                return None, at
            places.append(place + 1)
            width = 1 + data[place + 1]
        place += 1 + width
    return (places, behind) if place == behind else (None, at)
