"""The records of the journal: kinds, and how each is written and read (docs/internals/records.md).

Message content is written in *blocks*: one envelope, then the lengths, then the bodies of a run. A block lies inside a
record and is addressed by its own LSN. All numbers are little-endian. The journal's checksum vouches for the bytes, so
decoders do not check them again; an unknown kind or change is refused by recovery.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from enum import IntEnum
from typing import Any, Final, NamedTuple

from escrowmq.core.fields import is_time
from escrowmq.core.message import Envelope
from escrowmq.core.outcome import Outcome


class Kind(IntEnum):
    """Record kinds. Numbers are part of the journal's format and never reused."""

    PUBLISH = 1
    SETTLE = 2
    COMMIT = 3
    RELOCATE = 4
    RETURNED = 5
    QUEUE_STATE = 6
    PAGE = 7
    DELIVERED = 8
    READDRESSED = 9
    PREPARE = 10
    PLACED = 11
    ROLLBACK = 12
    HEURISTIC = 13
    FORGET = 14
    DECIDE = 15
    COUNTERS = 16
    VHOST_SET = 17
    VHOST_DELETED = 18
    EXCHANGE_DECLARED = 19
    EXCHANGE_DELETED = 20
    QUEUE_DECLARED = 21
    QUEUE_DELETED = 22
    BOUND = 23
    UNBOUND = 24
    USER_SET = 25
    USER_DELETED = 26
    PERMISSION_SET = 27
    PERMISSION_DELETED = 28
    TOPIC_PERMISSION_SET = 29
    TOPIC_PERMISSION_DELETED = 30
    PROGRESS = 31
    HELD = 32
    RELEASED = 33
    DELIVERIES = 34


RECORD_BYTES: Final = 1 << 30
"""The longest record that a journal takes."""
BLOCK: Final = struct.Struct("<IQII")  # length of what follows this field, time in ms, count, envelope length
_U16: Final = struct.Struct("<H")
_U32: Final = struct.Struct("<I")
_TARGET: Final = struct.Struct("<IQ")  # queue id, first position
_SINGLE: Final = struct.Struct("<IIQIQII")  # one target, then the head of its block
_SINGLE_BLOCK: Final = 4 + _TARGET.size  # where its block begins
_SETTLE: Final = struct.Struct("<IBI")  # queue id, outcome, number of ranges
_RANGE: Final = struct.Struct("<QI")  # first position, count
_COMMIT: Final = struct.Struct("<QI")  # branch number, number of operations
_OPERATION: Final = struct.Struct("<BI")  # kind, length
_LONE: Final = struct.Struct("<QIBI")  # head of a commit of one operation, head of the operation
_LONE_SINGLE: Final = struct.Struct(_LONE.format + _SINGLE.format[1:])
_STATE: Final = struct.Struct("<IQQII")  # queue id, next position, delivered below, references, delivery counts
_MOVE: Final = struct.Struct("<II")  # queue id, count
_LSN: Final = struct.Struct("<Q")


_PUBLISH: Final = int(Kind.PUBLISH)
_JOINED: Final = 1 << 16  # bytes of bodies up to which one part is cheaper than a part for each

TRANSIENT: Final = 1 << 31
"""Set in the start of a reference whose content does not survive a restart (it lies in a PAGE record)."""


class Target(NamedTuple):
    """Where a run goes: the queue, and the position of the run's first message there."""

    queue: int
    first: int


class Reference(NamedTuple):
    """Messages of a queue that lie in one block: positions `first`…, numbers `start`… of the block at `lsn`."""

    first: int
    length: int
    lsn: int
    start: int


class Range(NamedTuple):
    """`length` positions from `first` on."""

    first: int
    length: int


def merged(ranges: Iterable[tuple[int, int]]) -> list[Range]:
    """Ranges in order; those that touch or overlap become one."""
    found: list[Range] = []
    for first, count in sorted(ranges):
        if found and first <= found[-1].first + found[-1].length:
            last = found[-1]
            found[-1] = Range(last.first, max(last.length, first + count - last.first))
        else:
            found.append(Range(first, count))
    return found


class Block(NamedTuple):
    """The content of a block."""

    time: int
    envelope: Envelope
    bodies: list[bytes]


class Settle(NamedTuple):
    queue: int
    outcome: Outcome
    ranges: list[Range]


class Publish(NamedTuple):
    """A run on its queues; `block` is the offset of its block within the record, `length` how many messages it has."""

    targets: list[Target]
    block: int
    length: int


class Move(NamedTuple):
    """Messages of one queue that a compaction moved: their positions and their numbers in the new block."""

    queue: int
    positions: array[int]
    starts: array[int]


def encode_block(time: int, envelope: Envelope, bodies: Sequence[bytes]) -> list[bytes]:
    """The parts of a block, ready to be joined."""
    head = envelope.encode()
    count = len(bodies)
    if count == 1:
        body = bodies[0]
        return [BLOCK.pack(20 + len(head) + len(body), time, 1, len(head)), head, _U32.pack(len(body)), body]
    lengths = array("I", map(len, bodies))
    total = sum(lengths)
    fixed = BLOCK.pack(16 + len(head) + 4 * count + total, time, count, len(head))
    if total <= _JOINED:
        return [fixed, head, lengths.tobytes(), b"".join(bodies)]
    return [fixed, head, lengths.tobytes(), *bodies]


def decode_block(data: bytes | memoryview, at: int = 0, first: int = 0, count: int | None = None) -> Block:
    """The block that begins at `at`; with `first` and `count`, only these of its bodies."""
    _, time, total, head = BLOCK.unpack_from(data, at)
    at += BLOCK.size
    envelope = Envelope.decode(bytes(data[at : at + head]))
    at += head
    lengths = array("I", bytes(data[at : at + 4 * total]))
    at += 4 * total + sum(lengths[:first])
    stop = total if count is None else first + count
    bodies = []
    for length in lengths[first:stop]:
        bodies.append(bytes(data[at : at + length]))
        at += length
    return Block(time, envelope, bodies)


def encode_targets(targets: Sequence[tuple[int, int]]) -> bytes:
    """What precedes the block in a PUBLISH record."""
    if len(targets) == 1:
        return b"\x01\x00\x00\x00" + _TARGET.pack(*targets[0])
    return _U32.pack(len(targets)) + b"".join([_TARGET.pack(*target) for target in targets])


def encode_single(
    queue: int, position: int, time: int, envelope: Envelope, body: bytes, branch: int = 0
) -> tuple[tuple[bytes, ...], int]:
    """One message on one queue: the parts of its PUBLISH record, or of the COMMIT of a branch that is no more than it,
    and where in it the block begins. The same as targets and block (and `encode_lone`), in one step.
    """
    head, size = envelope.encode(), len(body)
    rest = 20 + len(head) + size
    if branch:
        length = _SINGLE_BLOCK + 4 + rest
        fixed = _LONE_SINGLE.pack(branch, 1, _PUBLISH, length, 1, queue, position, rest, time, 1, len(head))
        return (fixed, head, _U32.pack(size), body), _LONE.size + _SINGLE_BLOCK
    fixed = _SINGLE.pack(1, queue, position, rest, time, 1, len(head))
    return (fixed, head, _U32.pack(size), body), _SINGLE_BLOCK


def decode_publish(data: bytes | memoryview) -> Publish:
    (number,) = _U32.unpack_from(data)
    at = 4 + number * _TARGET.size
    targets = [Target(*_TARGET.unpack_from(data, 4 + i * _TARGET.size)) for i in range(number)]
    return Publish(targets, at, BLOCK.unpack_from(data, at)[2])


def encode_settle(queue: int, outcome: Outcome, ranges: Sequence[Range]) -> bytes:
    """A SETTLE record for the positions of `ranges`."""
    return _SETTLE.pack(queue, outcome, len(ranges)) + b"".join([_RANGE.pack(*r) for r in ranges])


def decode_settle(data: bytes | memoryview) -> Settle:
    queue, outcome, number = _SETTLE.unpack_from(data)
    size = _RANGE.size
    ranges = [Range(*_RANGE.unpack_from(data, _SETTLE.size + i * size)) for i in range(number)]
    return Settle(queue, Outcome(outcome), ranges)


def ranges_of(positions: Iterable[int]) -> list[Range]:
    """Sorted positions as ranges without gaps."""
    ordered = sorted(positions)
    if not ordered:
        return []
    if ordered[-1] - ordered[0] == len(ordered) - 1:
        return [Range(ordered[0], len(ordered))]
    ranges = []
    first = last = ordered[0]
    for position in ordered[1:]:
        if position != last + 1:
            ranges.append(Range(first, last - first + 1))
            first = position
        last = position
    ranges.append(Range(first, last - first + 1))
    return ranges


def encode_commit(branch: int, operations: Sequence[tuple[Kind, Sequence[bytes]]]) -> tuple[list[bytes], list[int]]:
    """A COMMIT record: the parts, and for each operation the offset of its payload within the record.

    Everything that a branch does stands in this one record, so it is atomic by construction (TX-5).
    """
    parts: list[bytes] = [_COMMIT.pack(branch, len(operations))]
    offsets = []
    at = _COMMIT.size
    for kind, payload in operations:
        length = sum(map(len, payload))
        parts.append(_OPERATION.pack(kind, length))
        parts.extend(payload)
        offsets.append(at + _OPERATION.size)
        at += _OPERATION.size + length
    return parts, offsets


def encode_lone(branch: int, kind: Kind, length: int) -> bytes:
    """What precedes the payload in a COMMIT record of one operation; the same as `encode_commit`, in one step."""
    return _LONE.pack(branch, 1, kind, length)


def decode_commit(data: bytes | memoryview) -> tuple[int, Iterator[tuple[Kind, int, bytes | memoryview]]]:
    """The branch, and its operations as (kind, offset within the record, payload)."""
    branch, number = _COMMIT.unpack_from(data)

    def operations() -> Iterator[tuple[Kind, int, bytes | memoryview]]:
        at = _COMMIT.size
        for _ in range(number):
            kind, length = _OPERATION.unpack_from(data, at)
            at += _OPERATION.size
            yield Kind(kind), at, data[at : at + length]
            at += length

    return branch, operations()


def encode_moves(moves: Sequence[Move]) -> bytes:
    """What precedes the block in a RELOCATE record."""
    parts = [_U16.pack(len(moves))]
    for move in moves:
        parts += (_MOVE.pack(move.queue, len(move.positions)), move.positions.tobytes(), move.starts.tobytes())
    return b"".join(parts)


def decode_moves(data: bytes | memoryview) -> tuple[list[Move], int]:
    """The moves of a RELOCATE record, and the offset of its block."""
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
    """A READDRESSED record: the messages of `moves` lie in the block at `lsn`, which is there already."""
    return encode_moves(moves) + _LSN.pack(lsn)


def decode_readdressed(data: bytes | memoryview) -> tuple[list[Move], int]:
    """The moves of a READDRESSED record, and the LSN of the block."""
    moves, at = decode_moves(data)
    return moves, int(_LSN.unpack_from(data, at)[0])


class QueueState(NamedTuple):
    """What a queue holds, in a snapshot: columns of references, and delivery counts above 0.

    What lies below `delivered_below` may have been delivered before.
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
    """A DELIVERED record: positions below `below` may have been delivered."""
    return _TARGET.pack(queue, below)


def decode_delivered(data: bytes | memoryview) -> Target:
    return Target(*_TARGET.unpack_from(data))


def encode_returned(queue: int, entries: Iterable[tuple[int, int]]) -> bytes:
    """A RETURNED record: (position, delivery count) of messages that came back to their queue."""
    pairs = [_RANGE.pack(*pair) for pair in entries]
    return _MOVE.pack(queue, len(pairs)) + b"".join(pairs)


def decode_returned(data: bytes | memoryview) -> tuple[int, list[tuple[int, int]]]:
    queue, number = _MOVE.unpack_from(data)
    return queue, [_RANGE.unpack_from(data, _MOVE.size + i * _RANGE.size) for i in range(number)]


class Timestamp(int):
    """A time in a client's table, as it was read back (see `core.fields`)."""

    __slots__ = ()


def encode_change(**fields: Any) -> bytes:
    """A change of topology or access, as JSON: few, small, and readable with any tool.

    What JSON has not stands in an object with one key: `$bytes`, `$time`, `$decimal`, `$text` (anything else, as its
    text), and `$table`, which is a table that would look like one of these.
    """
    return json.dumps(_to_json(fields), separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def decode_change(data: bytes | memoryview) -> dict[str, Any]:
    fields: dict[str, Any] = _from_json(json.loads(bytes(data).decode("utf-8", "surrogatepass")))
    return fields


_MARKS: Final = frozenset({"$bytes", "$time", "$decimal", "$text", "$table"})


def _to_json(value: Any) -> Any:
    if value is None or isinstance(value, str | bool | float):
        return value
    if isinstance(value, int):
        return {"$time": int(value)} if is_time(value) else int(value)
    if isinstance(value, Mapping):
        table = {key: _to_json(item) for key, item in value.items()}
        return {"$table": table} if len(table) == 1 and not _MARKS.isdisjoint(table) else table
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return {"$bytes": bytes(value).hex()}
    return {"$decimal" if isinstance(value, Decimal) else "$text": str(value)}


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((mark, inner),) = value.items()
        if mark == "$bytes":
            return bytes.fromhex(inner)
        if mark == "$time":
            return Timestamp(inner)
        if mark == "$decimal":
            return Decimal(inner)
        if mark == "$text":
            return inner
        if mark == "$table":
            value = inner
    return {key: _from_json(item) for key, item in value.items()}
