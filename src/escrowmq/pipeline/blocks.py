"""Decode blocks of messages from anywhere in the log: envelope, body sizes, and a digest for each message.

The digest depends on envelope and body (`content_digests`). It lets the audit check a copy of a message after the
original has been deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

import numpy as np

from escrowmq.core.records.kinds import RECORD_BYTES
from escrowmq.pipeline.columns import U32, Bytes, Ints, Rows, integers, ragged, take, texts
from escrowmq.pipeline.content_digests import digests
from escrowmq.pipeline.sections import SECTIONS, body_sizes

BLOCK: Final = np.dtype([("length", "<u4"), ("came", "<u8"), ("count", "<u4"), ("envelope", "<u4")])
BODY: Final = np.dtype([("size", "<u4"), ("digest", "<u4"), ("text", "<i4")])
"""A message of a block. `text` is the index of the message's own text of an envelope, with its routing key; -1 if the
message has the text of the block.
"""
ENVELOPE_HEAD: Final = 11
PACKED: Final = 92
"""The protocol number of envelopes with packed content: properties and body together (docs/internals/records.md)."""
KEYED: Final = 93
"""The protocol number of envelopes with keyed content: packed content after a routing key and its length."""
_BODY_SIZE_AT: Final = 12
"""Where the size of the body is in packed content, as a big-endian u32."""
_BEHIND_KEY: Final = 5
"""Octets of keyed content before the packed content, without the routing key."""
_COUNTED: Final = BLOCK.itemsize - 4
"""Bytes of the block's head that the length field includes: all but the field itself."""

Lookup: TypeAlias = Callable[[int, int], bytes | None]
"""`lookup(lsn, length)`: the bytes of a block elsewhere in the log; None if that part of the log has been deleted."""


class GoneError(Exception):
    """The segment that contained the block has been deleted."""


class NowhereError(Exception):
    """There is no valid block at the given address."""


class Keys(NamedTuple):
    """The routing keys of keyed messages.

    Args:
        at: the index of each keyed message.
        number: the index of its key in `values`.
        values: the keys.
    """

    at: Ints
    number: Ints
    values: list[bytes]


class Block(NamedTuple):
    """A decoded block.

    Args:
        came: when the messages arrived at the broker, in milliseconds since the epoch.
        text: the envelope up to and including the routing key.
        bodies: size and digest of each message, of the type BODY.
        keys: the routing keys of keyed messages.
        data: the envelope, the sizes of the contents, and the contents.
        envelope: the length of the envelope, in bytes.
    """

    came: int
    text: bytes
    bodies: Rows
    keys: Keys
    data: Bytes
    envelope: int


def envelopes(data: Bytes, at: Ints) -> tuple[Ints, list[bytes]]:
    """Return the text (head, exchange, routing key) of the envelopes at the offsets `at`.

    Returns, for each envelope, an index into the list of distinct texts, and that list.
    """
    short = np.dtype("<u2")
    exchange = integers(take(data, at + ENVELOPE_HEAD, short))
    key = integers(take(data, at + ENVELOPE_HEAD + 2 + exchange, short))
    return texts(data, at, ENVELOPE_HEAD + 4 + exchange + key)


def bodies(data: Bytes, at: Ints, envelope: Ints, count: Ints) -> Rows:
    """Size and digest of every body of some blocks, as an array of the type BODY.

    Args:
        data: the bytes that contain the blocks.
        at: the offset of each block's envelope.
        envelope: the length of each envelope, in bytes.
        count: the number of messages in each block.
    """
    block, begin, size = places(data, at, envelope, count)
    found = np.empty(len(block), BODY)
    found["size"], found["text"] = size, -1
    which, distinct = texts(data, at, envelope)  # envelopes repeat, so few checksums of envelopes are needed
    seeds = np.fromiter(map(crc32, distinct), np.int64, len(distinct))[which]
    found["digest"] = digests(data, begin, size, seeds[block])
    form = data[at][block]
    sections = np.flatnonzero(form == SECTIONS)
    if len(sections):
        found["size"][sections] = body_sizes(data, begin[sections], size[sections])
    packed = np.flatnonzero((form == PACKED) | (form == KEYED))
    if len(packed):
        begin = begin[packed]
        begin += np.where(form[packed] == KEYED, _BEHIND_KEY + integers(data[begin]), 0)
        found["size"][packed] = take(data, begin + _BODY_SIZE_AT, np.dtype(">u4"))
    return found


def keys(data: Bytes, at: Ints, envelope: Ints, count: Ints) -> Keys:
    """The routing keys of the keyed messages among the messages of some blocks.

    The arguments are those of `bodies`.
    """
    form = data[at]
    if not (form == KEYED).any():
        return Keys(np.empty(0, np.int64), np.empty(0, np.int64), [])
    block, begin, _ = places(data, at, envelope, count)
    keyed = np.flatnonzero(form[block] == KEYED)
    begin = begin[keyed]
    return Keys(keyed, *texts(data, begin + 1, integers(data[begin])))


def with_key(text: bytes, key: bytes) -> bytes:
    """The text of an envelope without a routing key, with `key` as its routing key."""
    return text[:-2] + len(key).to_bytes(2, "little") + key


def places(data: Bytes, at: Ints, envelope: Ints, count: Ints) -> tuple[Ints, Ints, Ints]:
    """For each content of some blocks: the index of its block, its offset, and its size."""
    block, number = ragged(count)
    size = integers(take(data, (at + envelope)[block] + 4 * number, U32))
    before = np.cumsum(size) - size
    before -= before[np.cumsum(count)[block] - count[block]]  # offsets count from the first body of the same block
    return block, (at + envelope + 4 * count)[block] + before, size


def look_up(lookup: Lookup, lsn: int) -> Block:
    """Read the block at `lsn`.

    Raises:
        GoneError: the segment that contained the block has been deleted.
        NowhereError: the bytes there are not a block.
    """
    ((length, came, count, size),) = np.frombuffer(_part(lookup, lsn, BLOCK.itemsize), BLOCK).tolist()
    fixed = size + 4 * count
    if size < ENVELOPE_HEAD + 4 or _COUNTED + fixed > min(length, RECORD_BYTES):
        raise NowhereError
    rest = _part(lookup, lsn + BLOCK.itemsize, fixed)
    if _COUNTED + fixed + int(np.frombuffer(rest, U32, count, size).sum(dtype=np.int64)) != length:
        raise NowhereError
    begin = np.zeros(1, np.int64)
    whole = np.frombuffer(_part(lookup, lsn + BLOCK.itemsize, length - _COUNTED), np.uint8)
    where = (whole, begin, np.array([size]), np.array([count]))
    try:
        _, (text,) = envelopes(np.frombuffer(rest[:size], np.uint8), begin)
        return Block(came, text, bodies(*where), keys(*where), whole, size)
    except IndexError as error:
        raise NowhereError from error


def _part(lookup: Lookup, lsn: int, length: int) -> bytes:
    data = lookup(lsn, length)
    if data is None:
        raise GoneError
    if len(data) != length:
        raise NowhereError
    return data
