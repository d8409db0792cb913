"""Blocks of messages, wherever they lie: what their envelopes say, how large the bodies are, and what they come to.

The digest of a message is the CRC-32 of its envelope and body together: the original may be gone when a copy is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

import numpy as np

from escrowmq.core.records import RECORD_BYTES
from escrowmq.pipeline.columns import U32, Bytes, Ints, Rows, integers, ragged, take, texts

BLOCK: Final = np.dtype([("length", "<u4"), ("came", "<u8"), ("count", "<u4"), ("envelope", "<u4")])
BODY: Final = np.dtype([("size", "<u4"), ("digest", "<u4")])
ENVELOPE_HEAD: Final = 11
_COUNTED: Final = BLOCK.itemsize - 4
"""What a block's length counts of its own head."""

Lookup: TypeAlias = Callable[[int, int], bytes | None]
"""`lookup(lsn, length)`: bytes of a block that lies elsewhere in the log; None if it is not there any more."""


class GoneError(Exception):
    """The segment with the block is not there any more."""


class NowhereError(Exception):
    """Where the block should lie there is none."""


class Block(NamedTuple):
    """What a block says. `text`: its envelope up to and with the routing key; `bodies`: of the type BODY."""

    came: int
    text: bytes
    bodies: Rows


def envelopes(data: Bytes, at: Ints) -> tuple[Ints, list[bytes]]:
    """Of envelopes at these bytes the text, by number: head, exchange, routing key."""
    short = np.dtype("<u2")
    exchange = integers(take(data, at + ENVELOPE_HEAD, short))
    key = integers(take(data, at + ENVELOPE_HEAD + 2 + exchange, short))
    return texts(data, at, ENVELOPE_HEAD + 4 + exchange + key)


def bodies(data: Bytes, at: Ints, envelope: Ints, count: Ints) -> Rows:
    """All bodies of the blocks whose envelopes lie at these bytes and have these lengths."""
    block, number = ragged(count)
    found = np.empty(len(block), BODY)
    found["size"] = take(data, (at + envelope)[block] + 4 * number, U32)
    size = integers(found["size"])
    before = np.cumsum(size) - size  # of all bodies; then of those of the same block
    before -= before[np.cumsum(count)[block] - count[block]]
    begin = (at + envelope + 4 * count)[block] + before
    which, distinct = texts(data, at, envelope)  # mostly a few
    seeds = np.fromiter(map(crc32, distinct), np.int64, len(distinct))[which[block]]
    pieces = map(data.data.__getitem__, map(slice, begin.tolist(), (begin + size).tolist()))
    found["digest"] = np.fromiter(map(crc32, pieces, seeds.tolist()), np.int64, len(found))
    return found


def look_up(lookup: Lookup, lsn: int) -> Block:
    """The block at `lsn`. Raises GoneError and NowhereError."""
    ((length, came, count, size),) = np.frombuffer(_part(lookup, lsn, BLOCK.itemsize), BLOCK).tolist()
    fixed = size + 4 * count
    if size < ENVELOPE_HEAD + 4 or _COUNTED + fixed > min(length, RECORD_BYTES):
        raise NowhereError
    rest = _part(lookup, lsn + BLOCK.itemsize, fixed)
    if _COUNTED + fixed + int(np.frombuffer(rest, U32, count, size).sum(dtype=np.int64)) != length:
        raise NowhereError
    begin = np.zeros(1, np.int64)
    try:
        _, (text,) = envelopes(np.frombuffer(rest[:size], np.uint8), begin)
    except IndexError as error:
        raise NowhereError from error
    whole = np.frombuffer(_part(lookup, lsn + BLOCK.itemsize, length - _COUNTED), np.uint8)
    return Block(came, text, bodies(whole, begin, np.array([size]), np.array([count])))


def _part(lookup: Lookup, lsn: int, length: int) -> bytes:
    data = lookup(lsn, length)
    if data is None:
        raise GoneError
    if len(data) != length:
        raise NowhereError
    return data
