"""The RELOCATE and READDRESSED records: messages that compaction moved."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

_U16: Final = struct.Struct("<H")
_MOVE: Final = struct.Struct("<II")  # queue id, count
_LSN: Final = struct.Struct("<Q")


class Move(NamedTuple):
    """Messages of one queue that a compaction moved: their positions and their numbers in the new block."""

    queue: int
    positions: array[int]
    starts: array[int]


def encode_moves(moves: Sequence[Move]) -> bytes:
    """Return the part of a RELOCATE record that precedes its block."""
    parts = [_U16.pack(len(moves))]
    for move in moves:
        parts += (_MOVE.pack(move.queue, len(move.positions)), move.positions.tobytes(), move.starts.tobytes())
    return b"".join(parts)


def decode_moves(data: bytes | memoryview) -> tuple[list[Move], int]:
    """Return the moves of a RELOCATE record, and the offset of its block."""
    (number,) = _U16.unpack_from(data)
    at = 2
    moves = []
    for _ in range(number):
        queue, count = _MOVE.unpack_from(data, at)
        at += _MOVE.size
        positions = array("Q", bytes(data[at : at + 8 * count]))
        at += 8 * count
        starts = array("I", bytes(data[at : at + 4 * count]))
        at += 4 * count
        moves.append(Move(queue, positions, starts))
    return moves, at


def encode_readdressed(moves: Sequence[Move], lsn: int) -> bytes:
    """Return a READDRESSED record: the messages of `moves` are in the block at `lsn`, which exists already."""
    return encode_moves(moves) + _LSN.pack(lsn)


def decode_readdressed(data: bytes | memoryview) -> tuple[list[Move], int]:
    """Return the moves of a READDRESSED record, and the LSN of the block."""
    moves, at = decode_moves(data)
    return moves, int(_LSN.unpack_from(data, at)[0])
