"""Quick decoding of the COMMIT records that store one half message each, which recovery may read by the million.

Such records of one producer differ only in a few numbers, the message id and the content. The first one of a length is
decoded as usual, and its shape is kept. One that follows it in shape is taken apart in one step.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from escrowmq.core.records.blocks import BLOCK
from escrowmq.core.records.commits import COMMIT, OPERATION, decode_commit
from escrowmq.core.records.half import decode_half_stored, split_half_stored
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.publishing import decode_publish

Payload = bytes | memoryview

MOST_LENGTHS: Final = 4096
MOST_SHAPES: Final = 8
"""Shapes of one length."""
_HEAD: Final = COMMIT.pack(0, 2) + bytes([Kind.PUBLISH])
_HEAD_BYTES: Final = len(_HEAD)
_BLOCK_AT: Final = COMMIT.size + OPERATION.size + 16  # after the number of targets, and one target
_SIZE: Final = struct.Struct("<I")


class HalfCommit(NamedTuple):
    """A half message that a COMMIT record stores. `block` is the offset of its content within the record."""

    queue: int
    block: int
    number: int
    born: int
    due: int
    ident: str
    origin: bytes


class _HalfShape(NamedTuple):
    """The layout of a record, the parts that are equal in all records of this shape, and what they say."""

    layout: struct.Struct
    fixed: tuple[bytes, ...]
    queue: int
    origin: bytes


class HalfCommits:
    """The shapes of records by their length."""

    __slots__ = ("_shapes",)

    def __init__(self) -> None:
        self._shapes: dict[int, list[_HalfShape]] = {}

    def decode(self, data: Payload) -> HalfCommit | None:
        """Decode a COMMIT record; None if it does anything but store one half message, or its shape is new."""
        for layout, fixed, queue, origin in self._shapes.get(len(data), ()):
            parts = layout.unpack_from(data)
            head, number, rest, block, operation, again, born, due, lengths, ident, texts = parts
            if (head, rest, block, operation, lengths, texts) == fixed and number == again:
                return HalfCommit(queue, _BLOCK_AT, number, born, due, ident.decode("utf-8", "surrogatepass"), origin)
        if data[:_HEAD_BYTES] == _HEAD:
            self._learn(data)
        return None

    def _learn(self, data: Payload) -> None:
        (_, _, publish), (second, _, stored) = decode_commit(data)[1]
        if second is not Kind.HALF_STORED:
            return
        run, half = decode_publish(publish), split_half_stored(stored)
        if len(run.targets) != 1 or run.length != 1 or run.targets[0] != (half.queue, half.number):
            return
        length, _, _, envelope = BLOCK.unpack_from(data, _BLOCK_AT)
        content = length - (BLOCK.size - _SIZE.size) - envelope - _SIZE.size
        ident = len(decode_half_stored(stored).ident.encode("utf-8", "surrogatepass"))
        texts = len(stored) - 42 - ident
        layout = struct.Struct(f"<{_BLOCK_AT - 8}sQ4s8x{12 + envelope}s{content}x9sQQQ14s{ident}s{texts}s")
        if layout.size != len(data):
            return
        parts = layout.unpack_from(data)
        fixed = parts[0], parts[2], parts[3], parts[4], parts[8], parts[10]
        if len(self._shapes) >= MOST_LENGTHS:
            self._shapes.clear()
        shapes = self._shapes.setdefault(len(data), [])
        if len(shapes) >= MOST_SHAPES:
            shapes.clear()
        shapes.append(_HalfShape(layout, fixed, half.queue, half.origin))
