"""The MARKED record: the marks of messages on a queue."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from escrowmq.core.messages.marks import NO_ANNOTATIONS, Marks

_HEAD: Final = struct.Struct("<II")  # queue id, number of messages
_MARKS: Final = struct.Struct("<QIHH")  # position, failures, number of annotations, number of excluded links
_U16: Final = struct.Struct("<H")
_U32: Final = struct.Struct("<I")


class QueueMarks(NamedTuple):
    """A MARKED record: marks by position. They replace earlier ones."""

    queue: int
    marks: dict[int, Marks]


def encode_marked(queue: int, marks: Iterable[tuple[int, Marks]]) -> bytes:
    """Return a MARKED record with (position, marks) of messages."""
    pieces: list[bytes] = []
    count = 0
    for position, (failures, added, excluded) in marks:
        count += 1
        pieces.append(_MARKS.pack(position, failures, len(added), len(excluded)))
        for name, value in added.items():
            pieces += (_text(name), _U32.pack(len(value)), value)
        pieces += map(_text, sorted(excluded))
    return _HEAD.pack(queue, count) + b"".join(pieces)


def decode_marked(data: bytes | memoryview) -> QueueMarks:
    queue, count = _HEAD.unpack_from(data)
    at = _HEAD.size
    found: dict[int, Marks] = {}
    for _ in range(count):
        position, failures, annotated, links = _MARKS.unpack_from(data, at)
        at += _MARKS.size
        added: dict[str, bytes] = {}
        for _ in range(annotated):
            name, at = _read_text(data, at)
            (length,) = _U32.unpack_from(data, at)
            at += _U32.size
            added[name] = bytes(data[at : at + length])
            at += length
        excluded = []
        for _ in range(links):
            name, at = _read_text(data, at)
            excluded.append(name)
        found[position] = Marks(failures, added or NO_ANNOTATIONS, frozenset(excluded))
    return QueueMarks(queue, found)


def _text(value: str) -> bytes:
    data = value.encode("utf-8", "surrogatepass")
    return _U16.pack(len(data)) + data


def _read_text(data: bytes | memoryview, at: int) -> tuple[str, int]:
    (length,) = _U16.unpack_from(data, at)
    at += _U16.size
    return bytes(data[at : at + length]).decode("utf-8", "surrogatepass"), at + length
