"""Records about the state of one queue: QUEUE_STATE in snapshots, DELIVERED and RETURNED."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable
from typing import Final, NamedTuple

from escrowmq.core.records.references import Target

_TARGET: Final = struct.Struct("<IQ")  # queue id, first position
_RANGE: Final = struct.Struct("<QI")  # first position, count
_STATE: Final = struct.Struct("<IQQII")  # queue id, next position, delivered below, references, delivery counts
_MOVE: Final = struct.Struct("<II")  # queue id, count


class QueueState(NamedTuple):
    """The messages of a queue in a snapshot: columns of references, and the delivery counts above 0.

    Messages below position `delivered_below` may have been delivered before.
    """

    queue: int
    next_position: int
    delivered_below: int
    firsts: array[int]
    lsns: array[int]
    counts: array[int]
    indexes: array[int]
    deliveries: list[tuple[int, int]]


def encode_queue_state(state: QueueState) -> list[bytes]:
    columns = (state.firsts, state.lsns, state.counts, state.indexes)
    head = _STATE.pack(
        state.queue, state.next_position, state.delivered_below, len(state.firsts), len(state.deliveries)
    )
    return [head, *(column.tobytes() for column in columns), *(_RANGE.pack(*pair) for pair in state.deliveries)]


def decode_queue_state(data: bytes | memoryview) -> QueueState:
    queue, next_position, delivered_below, number, counted = _STATE.unpack_from(data)
    at = _STATE.size
    columns = []
    for code, width in (("Q", 8), ("Q", 8), ("I", 4), ("I", 4)):
        columns.append(array(code, bytes(data[at : at + width * number])))
        at += width * number
    firsts, lsns, counts, indexes = columns
    deliveries = [_RANGE.unpack_from(data, at + i * _RANGE.size) for i in range(counted)]
    return QueueState(queue, next_position, delivered_below, firsts, lsns, counts, indexes, deliveries)


def encode_delivered(queue: int, below: int) -> bytes:
    """Return a DELIVERED record: messages at positions below `below` may have been delivered."""
    return _TARGET.pack(queue, below)


def decode_delivered(data: bytes | memoryview) -> Target:
    return Target(*_TARGET.unpack_from(data))


def encode_returned(queue: int, entries: Iterable[tuple[int, int]]) -> bytes:
    """Return a RETURNED record: (position, delivery count) of messages that returned to their queue."""
    pairs = [_RANGE.pack(*pair) for pair in entries]
    return _MOVE.pack(queue, len(pairs)) + b"".join(pairs)


def decode_returned(data: bytes | memoryview) -> tuple[int, list[tuple[int, int]]]:
    queue, number = _MOVE.unpack_from(data)
    return queue, [_RANGE.unpack_from(data, _MOVE.size + i * _RANGE.size) for i in range(number)]
