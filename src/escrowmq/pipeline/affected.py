"""Find the messages in a part of a record, to name what a change concerns."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from escrowmq.core.records.blocks import BLOCK
from escrowmq.core.records.branches import decode_decide, decode_heuristic
from escrowmq.core.records.commits import decode_commit
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.moves import decode_moves
from escrowmq.core.records.publishing import decode_publish
from escrowmq.core.records.references import ranges_of

Places = Sequence[tuple[int, int]]
_BRANCHES: Final = (Kind.COMMIT, Kind.PREPARE, Kind.HEURISTIC)
LISTED: Final = 5


class Affected(NamedTuple):
    """A record in which something was changed.

    Args:
        kind: its kind.
        lsn: its address.
        branch: the number of its branch, 0 if it has none.
        messages: messages in the changed part, as (ID of the queue, first position, count). Those of a prepared branch
            have no positions yet.
    """

    kind: int
    lsn: int
    branch: int
    messages: list[tuple[int, int, int]]

    def text(self, names: Mapping[int, str]) -> str:
        """Return a description. `names` are those of queues, by ID."""
        kind = Kind(self.kind).name if self.kind in Kind._value2member_map_ else f"kind {self.kind}"
        text = f"the {kind} record at LSN {self.lsn:#x}"
        if self.branch:
            text += f" of branch {self.branch}"
        said = [
            f"{names.get(queue, f'queue {queue}')} {first}{f' to {first + count - 1}' if count > 1 else ''}"
            for queue, first, count in self.messages[:LISTED]
        ]
        if len(self.messages) > LISTED:
            said.append("others")
        return f"{text} (messages: {', '.join(said)})" if said else text


def affected(kind: int, lsn: int, payload: bytes, places: Places) -> Affected:
    """Return what a change in `places` (ranges of bytes) of a record concerns."""
    try:
        branch, messages = _branch(kind, payload), list(_messages(kind, payload, places))
    except (struct.error, IndexError, ValueError):  # what was changed need not be a record any more
        return Affected(kind, lsn, 0, [])
    return Affected(kind, lsn, branch, messages)


def _branch(kind: int, payload: bytes) -> int:
    if kind not in _BRANCHES:
        return 0
    number: int = struct.unpack_from("<Q", payload, 1 if kind == Kind.HEURISTIC else 0)[0]
    return number


def _messages(kind: int, payload: bytes, places: Places) -> Iterator[tuple[int, int, int]]:
    if kind == Kind.PUBLISH:
        publish = decode_publish(payload)
        for first, count in _of_block(payload, publish.block, places):
            yield from ((target.queue, target.first + first, count) for target in publish.targets)
    elif kind == Kind.RELOCATE:
        moves, block = decode_moves(payload)
        for first, count in _of_block(payload, block, places):
            for move in moves:
                moved = [at for at, nth in zip(move.positions, move.starts, strict=True) if 0 <= nth - first < count]
                yield from ((move.queue, found, number) for found, number in ranges_of(moved) if moved)
    elif kind in (Kind.COMMIT, Kind.HEURISTIC, Kind.DECIDE):
        for what, at, part in _operations(kind, payload):
            inside = [(max(a, at) - at, min(b, at + len(part)) - at) for a, b in places]
            inside = [(a, b) for a, b in inside if a < b]
            if inside:
                yield from _messages(what, bytes(part), inside)


def _operations(kind: int, payload: bytes) -> list[tuple[Kind, int, bytes | memoryview]]:
    if kind == Kind.COMMIT:
        return list(decode_commit(payload)[1])
    if kind == Kind.HEURISTIC:
        return list(decode_heuristic(payload)[2])
    return [each for _, operations in decode_decide(payload).committed for each in operations]


def _of_block(payload: bytes, block: int, places: Places) -> Iterator[tuple[int, int]]:
    """Yield the messages in `places` as (number of the first one in the block, count)."""
    _, _, count, envelope = BLOCK.unpack_from(payload, block)
    at = block + BLOCK.size + envelope
    lengths = array("I", payload[at : at + 4 * count])
    bounds = list(accumulate(lengths, initial=at + 4 * count))
    for begin, end in places:
        if begin < bounds[0]:
            yield 0, count  # what all have in common
            return
        first, last = bisect_right(bounds, begin) - 1, bisect_left(bounds, end)
        if first < last and first < count:
            yield first, min(last, count) - first
