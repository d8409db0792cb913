"""The records of half messages (docs/internals/records.md). `queue` is the number of the hidden queue in which they
wait, and a half message's number is its position there.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

_STORED: Final = struct.Struct("<IQQQIHHHHH")
"""Queue, number, born, due (ms), target queue, lengths of message id, topic, group, user and label."""
_HEAD: Final = struct.Struct("<IQQQIH")  # its beginning
_TARGET: Final = slice(28, 32)
_LENGTHS: Final = slice(34, 42)  # without that of the message id
_TEXTS: Final = struct.Struct("<HHHH")  # those lengths
_SHARED: Final = struct.Struct("<IHHHH")  # target queue, lengths of topic, group, user and label
_DECIDED: Final = struct.Struct("<IQBBQ")  # queue, number, state, whether an operator decided, time in ms
_SOME: Final = struct.Struct("<IQI")  # queue, time in ms, count
_RESUMED: Final = struct.Struct("<IQQ")  # queue, number, time in ms
_STATE: Final = struct.Struct("<III")  # queue, number of origins, number of rows
_ORIGIN: Final = struct.Struct("<IIHHHH")  # number, target queue, lengths of topic, group, user and label

_ORIGINS: Final = 1024
"""Encoded facts that are kept."""

Payload = bytes | memoryview


class OriginFields(NamedTuple):
    """The facts that half messages share. `target` is the number of the destination queue."""

    topic: str
    group: str
    user: str
    label: str
    target: int


class HalfStored(NamedTuple):
    """A half message that arrived. Times are in milliseconds; `due` is that of the first check."""

    queue: int
    number: int
    born: int
    due: int
    ident: str
    origin: OriginFields


class HalfDecided(NamedTuple):
    """A half message that was committed or rolled back: its new state."""

    queue: int
    number: int
    state: int
    forced: bool
    time: int


class HalfMany(NamedTuple):
    """Half messages that were checked, or parked, at the same time, and the number of checks that each may have."""

    queue: int
    time: int
    numbers: array[int]
    limits: array[int]


class HalfResumed(NamedTuple):
    """A parked half message that is checked again."""

    queue: int
    number: int
    time: int


class HalfRow(NamedTuple):
    """A half message in a snapshot. `origin` is the number of its origin."""

    number: int
    ident: str
    born: int
    due: int
    origin: int
    checks: int
    state: int


class HalfStates(NamedTuple):
    """Origins and half messages of a snapshot."""

    queue: int
    origins: list[tuple[int, OriginFields]]
    rows: list[HalfRow]


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def encode_half_stored(stored: HalfStored) -> bytes:
    """Return a HALF_STORED payload."""
    queue, number, born, due, text, origin = stored
    lengths, texts = _shared(origin)
    ident = _encode(text)
    head = _HEAD.pack(queue, number, born, due, origin.target, len(ident))
    return b"".join((head, lengths, ident, texts))


@lru_cache(_ORIGINS)
def _shared(origin: OriginFields) -> tuple[bytes, bytes]:
    """Return the lengths of the texts that half messages share, and the texts."""
    texts = [_encode(text) for text in origin[:4]]
    return _TEXTS.pack(*map(len, texts)), b"".join(texts)


class HalfParts(NamedTuple):
    """A HALF_STORED payload of which the facts that half messages share are not decoded yet (`decode_origin`)."""

    queue: int
    number: int
    born: int
    due: int
    ident: str
    origin: bytes


def split_half_stored(data: Payload) -> HalfParts:
    """Decode the facts of one half message only, for recovery, which reads many."""
    whole = bytes(data)
    queue, number, born, due, _, length = _HEAD.unpack_from(whole)
    end = _STORED.size + length
    ident = _decode(whole[_STORED.size : end])
    return HalfParts(queue, number, born, due, ident, whole[_TARGET] + whole[_LENGTHS] + whole[end:])


def decode_origin(data: bytes) -> OriginFields:
    """Decode the facts that half messages share."""
    target, *lengths = _SHARED.unpack_from(data)
    texts, at = [], _SHARED.size
    for length in lengths:
        texts.append(_decode(data[at : at + length]))
        at += length
    topic, group, user, label = texts
    return OriginFields(topic, group, user, label, target)


def decode_half_stored(data: Payload) -> HalfStored:
    queue, number, born, due, ident, origin = split_half_stored(data)
    return HalfStored(queue, number, born, due, ident, decode_origin(origin))


def encode_half_decided(decided: HalfDecided) -> bytes:
    """Return a HALF_DECIDED payload."""
    return _DECIDED.pack(*decided)


def decode_half_decided(data: Payload) -> HalfDecided:
    queue, number, state, forced, time = _DECIDED.unpack_from(data)
    return HalfDecided(queue, number, state, bool(forced), time)


def encode_half_many(queue: int, time: int, numbers: Sequence[int], limits: Sequence[int]) -> bytes:
    """Return a HALF_CHECKED or HALF_PARKED payload."""
    return _SOME.pack(queue, time, len(numbers)) + array("Q", numbers).tobytes() + array("H", limits).tobytes()


def decode_half_many(data: Payload) -> HalfMany:
    queue, time, count = _SOME.unpack_from(data)
    end = _SOME.size + 8 * count
    numbers, limits = array("Q", bytes(data[_SOME.size : end])), array("H", bytes(data[end : end + 2 * count]))
    return HalfMany(queue, time, numbers, limits)


def encode_half_resumed(resumed: HalfResumed) -> bytes:
    """Return a HALF_RESUMED payload."""
    return _RESUMED.pack(*resumed)


def decode_half_resumed(data: Payload) -> HalfResumed:
    return HalfResumed(*_RESUMED.unpack_from(data))


def encode_half_states(queue: int, origins: Sequence[tuple[int, OriginFields]], rows: Sequence[HalfRow]) -> list[bytes]:
    """Return the parts of a HALF_STATE payload."""
    parts = [_STATE.pack(queue, len(origins), len(rows))]
    for number, (topic, group, user, label, target) in origins:
        texts = [_encode(topic), _encode(group), _encode(user), _encode(label)]
        parts += [_ORIGIN.pack(number, target, *map(len, texts)), *texts]
    idents = [_encode(row.ident) for row in rows]
    parts += [
        array("Q", [row.number for row in rows]).tobytes(),
        array("Q", [row.born for row in rows]).tobytes(),
        array("Q", [row.due for row in rows]).tobytes(),
        array("I", [row.origin for row in rows]).tobytes(),
        array("H", [row.checks for row in rows]).tobytes(),
        bytes([row.state for row in rows]),
        array("H", map(len, idents)).tobytes(),
        *idents,
    ]
    return parts


def decode_half_states(data: Payload) -> HalfStates:
    whole = bytes(data)
    queue, number, count = _STATE.unpack_from(whole)
    at = _STATE.size
    origins: list[tuple[int, OriginFields]] = []
    for _ in range(number):
        ident, target, *lengths = _ORIGIN.unpack_from(whole, at)
        at += _ORIGIN.size
        texts = []
        for length in lengths:
            texts.append(_decode(whole[at : at + length]))
            at += length
        topic, group, user, label = texts
        origins.append((ident, OriginFields(topic, group, user, label, target)))
    columns: list[Sequence[int]] = []
    for code, size in (("Q", 8), ("Q", 8), ("Q", 8), ("I", 4), ("H", 2), ("B", 1), ("H", 2)):
        columns.append(array(code, whole[at : at + size * count]))
        at += size * count
    numbers, born, due, shared, checks, states, sizes = columns
    idents = []
    for length in sizes:
        idents.append(_decode(whole[at : at + length]))
        at += length
    rows = list(map(HalfRow, numbers, idents, born, due, shared, checks, states))
    return HalfStates(queue, origins, rows)
