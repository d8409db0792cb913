"""Decodes header blocks (HPACK, RFC 7541), fast for the blocks that clients of gRPC send.

Such a block has a dozen fields. Most are entries of the table, which cost an index; the others are literals, which cost
a slice. Codes of Huffman are left to the library hpack.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import Final

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
_CACHED: Final = 1024
_CACHED_BYTES: Final = 128


class HeaderBlockError(ValueError):
    """A header block is malformed. The text says how."""


class HeaderListTooLarge(ValueError):  # noqa: N818 - named after the fault
    """A header list is longer than the limit."""


class HeaderDecoder:
    """The decoding side of one connection, with its dynamic table. After an error it cannot be used any more."""

    __slots__ = ("_entries", "_limit", "_most", "_size")

    def __init__(self, limit_bytes: int) -> None:
        """`limit_bytes` bounds a decoded list, in which each field costs `ENTRY_BYTES` more than its octets."""
        self._limit = limit_bytes
        self._entries: deque[Field] = deque()
        self._size = 0
        self._most = TABLE_BYTES

    def decode(self, block: bytes) -> list[Field]:
        """Return the fields of a block. Raises HeaderBlockError, or HeaderListTooLarge."""
        found: list[Field] = []
        at, end, left = 0, len(block), self._limit
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
        self._most = size
        self._evict()
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
