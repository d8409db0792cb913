"""Decodes header blocks (HPACK, RFC 7541), fast for the blocks that clients of gRPC send.

Such a block has a dozen fields. Most are entries of the table, which cost an index; the others are literals, which cost
a slice. Codes of Huffman are left to the library hpack. If a client leaves the table as it is, its blocks begin with
the same octets, and the fields there are decoded once.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import Final, NamedTuple

from hpack.exceptions import HPACKDecodingError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

Field = tuple[bytes, bytes]

TABLE_BYTES: Final = 4096
"""The largest dynamic table, which is that of the RFC as long as no setting asks for another one."""
ENTRY_BYTES: Final = 32
"""The cost of a field in the table and in a list, besides its name and value."""
_STATIC: Final = tuple((bytes(name), bytes(value)) for name, value in HeaderTable.STATIC_TABLE)
_FIRST_DYNAMIC: Final = len(_STATIC) + 1
_MOST_SHIFT: Final = 28
_KIND: Final = 64
"""The first octets of a block, which often have the path. Blocks that differ there have little in common."""
_MOST_KINDS: Final = 16
_LONGEST_KEPT: Final = 1024
_CACHED: Final = 1024
_CACHED_BYTES: Final = 128


class HeaderBlockError(ValueError):
    """A header block is malformed. The text says how."""


class HeaderListTooLarge(ValueError):  # noqa: N818 - named after the fault
    """A header list is longer than the limit."""


class _Start(NamedTuple):
    """What several blocks begin with, the fields there, and how many octets their lists may have beyond these."""

    octets: bytes
    fields: tuple[Field, ...]
    left: int


class HeaderDecoder:
    """The decoding side of one connection, with its dynamic table. After an error it cannot be used any more."""

    __slots__ = ("_entries", "_latest", "_limit", "_most", "_size", "_starts")

    def __init__(self, limit_bytes: int) -> None:
        """`limit_bytes` bounds a decoded list, in which each field costs `ENTRY_BYTES` more than its octets."""
        self._limit = limit_bytes
        self._entries: deque[Field] = deque()
        self._size = 0
        self._most = TABLE_BYTES
        # By their first octets, since the table changed: the latest block, and what it has in common with others.
        self._latest: dict[bytes, bytes] = {}
        self._starts: dict[bytes, _Start] = {}

    def decode(self, block: bytes) -> list[Field]:
        """Return the fields of a block. Raises HeaderBlockError, or HeaderListTooLarge."""
        kind = block[:_KIND]
        start = self._starts.get(kind)
        if start is not None:
            if block.startswith(start.octets):
                return self._decode(block, len(start.octets), start.left, list(start.fields))
            del self._starts[kind]
        found = self._decode(block, 0, self._limit, [])
        if len(block) <= _LONGEST_KEPT:
            self._learn(kind, block)
        return found

    def _learn(self, kind: bytes, block: bytes) -> None:
        """Keep the fields that this block has in common with the one of its kind before it."""
        latest = self._latest.get(kind)
        if latest is None and len(self._latest) >= _MOST_KINDS:
            return
        self._latest[kind] = block
        if latest is None:
            return
        shorter = min(len(latest), len(block))
        common, end = next((i for i in range(shorter) if latest[i] != block[i]), shorter), 0
        while end < common and (behind := _behind(block, end)) <= common:
            end = behind
        if end:
            fields = self._decode(block[:end], 0, self._limit, [])
            left = self._limit - sum([len(name) + len(value) + ENTRY_BYTES for name, value in fields])
            self._starts[kind] = _Start(block[:end], tuple(fields), left)

    def _changed(self) -> None:
        """The table has changed, so that indexes have other meanings."""
        if self._latest:
            self._latest.clear()
            self._starts.clear()

    def _decode(self, block: bytes, at: int, left: int, found: list[Field]) -> list[Field]:
        """Add the fields of a block from `at` on to those before. Their list may have `left` further octets."""
        end = len(block)
        try:
            while at < end:
                octet = block[at]
                at += 1
                if octet & 0x80:
                    index = octet & 0x7F
                    if index == 0x7F:
                        index, at = _integer(block, at, 0x7F)
                    field = self._at(index)
                elif octet & 0x60 == 0x20:
                    if found:
                        raise HeaderBlockError("a new size of the table after a field")
                    at = self._resize(block, at, octet & 0x1F)
                    continue
                else:
                    mask = 0x3F if octet & 0x40 else 0x0F
                    index = octet & mask
                    if index == mask:
                        index, at = _integer(block, at, mask)
                    if index:
                        name = self._at(index)[0]
                    else:
                        name, at = _string(block, at)
                    value, at = _string(block, at)
                    field = name, value
                    if octet & 0x40:
                        self._add(field)
                left -= len(field[0]) + len(field[1]) + ENTRY_BYTES
                if left < 0:
                    raise HeaderListTooLarge(f"more than {self._limit} octets of headers")
                found.append(field)
        except IndexError:
            raise HeaderBlockError("the block ends within a field, or names an entry that the table lacks") from None
        return found

    def _at(self, index: int) -> Field:
        if index < _FIRST_DYNAMIC:
            if not index:
                raise HeaderBlockError("entry 0 of the table does not exist")
            return _STATIC[index - 1]
        return self._entries[index - _FIRST_DYNAMIC]

    def _add(self, field: Field) -> None:
        self._changed()
        self._entries.appendleft(field)
        self._size += len(field[0]) + len(field[1]) + ENTRY_BYTES
        if self._size > self._most:
            self._evict()

    def _evict(self) -> None:
        while self._size > self._most:
            name, value = self._entries.pop()
            self._size -= len(name) + len(value) + ENTRY_BYTES

    def _resize(self, block: bytes, at: int, size: int) -> int:
        if size == 0x1F:
            size, at = _integer(block, at, 0x1F)
        if size > TABLE_BYTES:
            raise HeaderBlockError(f"a table of {size} octets, beyond the limit")
        self._changed()
        self._most = size
        self._evict()
        return at


def _behind(block: bytes, at: int) -> int:
    """Return where the field at `at` ends. It does not change the table, and the block was decoded before."""
    octet = block[at]
    at += 1
    mask = 0x7F if octet & 0x80 else 0x0F
    index = octet & mask
    if index == mask:
        index, at = _integer(block, at, mask)
    if octet & 0x80:
        return at
    for _ in range(1 if index else 2):
        length = block[at] & 0x7F
        at += 1
        if length == 0x7F:
            length, at = _integer(block, at, 0x7F)
        at += length
    return at


def _integer(block: bytes, at: int, value: int) -> tuple[int, int]:
    """Return an integer that goes on at `at`, whose prefix has this value, and where it ends."""
    shift = 0
    while True:
        octet = block[at]
        at += 1
        value += (octet & 0x7F) << shift
        if octet < 0x80:
            return value, at
        shift += 7
        if shift > _MOST_SHIFT:
            raise HeaderBlockError("an integer of more than 32 bits")


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    octet = block[at]
    at += 1
    length = octet & 0x7F
    if length == 0x7F:
        length, at = _integer(block, at, 0x7F)
    end = at + length
    data = block[at:end]
    if len(data) < length:
        raise IndexError
    if octet & 0x80:
        data = _known(data) if length <= _CACHED_BYTES else _plain(data)
    return data, end


def _plain(data: bytes) -> bytes:
    try:
        return bytes(decode_huffman(data))
    except HPACKDecodingError as error:
        raise HeaderBlockError(str(error)) from None


_known = lru_cache(_CACHED)(_plain)
