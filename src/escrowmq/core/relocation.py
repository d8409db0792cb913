"""Compaction: copying what still lives in a segment to the end of the log, so that the segment can go."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.core.message import Entry, Run
from escrowmq.core.records import TRANSIENT, Kind, Move, Reference, encode_block, encode_moves

if TYPE_CHECKING:
    from escrowmq.core.backlog import Backlog
    from escrowmq.core.broker import Broker
    from escrowmq.core.queue import Queue

STEP_BYTES: Final = 1 << 20
"""About how much one step copies, so that no turn of the loop is long."""


class _Part(NamedTuple):
    """Messages of one queue in one block: a reference of its backlog, or entries in memory."""

    queue: Queue
    backlog: Backlog | None
    reference: Reference | None
    entries: list[Entry]

    def positions(self) -> Sequence[int]:
        if self.reference is None:
            return [entry.position for entry in self.entries]
        return range(self.reference.first, self.reference.first + self.reference.length)

    def starts(self) -> Sequence[int]:
        """Their numbers in the block."""
        if self.reference is None:
            return [entry.start & ~TRANSIENT for entry in self.entries]
        start = self.reference.start & ~TRANSIENT
        return range(start, start + self.reference.length)


class Relocation:
    """Moves everything that lives in [`first_lsn`, `end_lsn`) of the log, in steps.

    What a block holds for several backlogs stays shared. The new place is written as a RELOCATE record; positions do
    not change (ORD-5). Content that does not survive a restart moves in a PAGE record, which recovery passes over.
    """

    def __init__(self, broker: Broker, first_lsn: int, end_lsn: int) -> None:
        self._broker = broker
        for lsn, parts in _in_memory(broker, first_lsn, end_lsn).items():
            self._move(lsn, parts)
        self._blocks = iter(_in_backlogs(broker, first_lsn, end_lsn).items())

    def step(self) -> bool:
        """Copy about `STEP_BYTES`; False when nothing is left to copy."""
        copied = 0
        for lsn, parts in self._blocks:
            copied += self._move(lsn, [part for part in map(_still, parts) if part is not None])
            if copied >= STEP_BYTES:
                return True
        return False

    def _move(self, lsn: int, parts: list[_Part]) -> int:
        """Copy what `parts` name of the block at `lsn`; how many bytes that were."""
        if not parts:
            return 0
        wanted = sorted({start for part in parts for start in part.starts()})
        numbers = {start: number for number, start in enumerate(wanted)}
        first = wanted[0]
        block = self._broker.pager.load(Reference(0, wanted[-1] - first + 1, lsn, first))
        bodies = [block.bodies[start - first] for start in wanted]
        content = encode_block(block.time, block.envelope, bodies)
        moves = [
            Move(
                part.queue.ident, array("Q", part.positions()), array("I", [numbers[start] for start in part.starts()])
            )
            for part in parts
        ]
        log = self._broker.log
        if _transient(parts[0]):
            new_lsn = log.append(Kind.PAGE, *content)
        else:
            head = encode_moves(moves)
            new_lsn = log.append(Kind.RELOCATE, head, *content) + len(head)
        for part, move in zip(parts, moves, strict=True):
            log.retain(new_lsn, len(move.positions))
            log.release(lsn, len(move.positions))
            _put(part, new_lsn, move.starts)
        return sum(map(len, bodies))


def _in_memory(broker: Broker, first_lsn: int, end_lsn: int) -> dict[int, list[_Part]]:
    """Entries in memory whose content lies in this part of the log, by block."""
    found: dict[int, dict[Queue, list[Entry]]] = {}

    def add(queue: Queue, entry: Entry) -> None:
        if entry.run.lsn and first_lsn <= entry.run.lsn < end_lsn:  # 0: it is in memory alone
            found.setdefault(entry.run.lsn, {}).setdefault(queue, []).append(entry)

    for queue in _queues(broker):
        for entry in queue.order.in_memory():
            add(queue, entry)
    for holder in broker.holders:
        for consumer, entry in holder.held():
            if consumer.queue.keeps:
                continue  # what a stream's readers hold is the stream's
            if consumer.queue.deleted:
                _let_go(broker, entry, first_lsn, end_lsn)
            else:
                add(consumer.queue, entry)
    return {
        lsn: [_Part(queue, None, None, entries) for queue, entries in queues.items()] for lsn, queues in found.items()
    }


def _let_go(broker: Broker, entry: Entry, first_lsn: int, end_lsn: int) -> None:
    """A delivery whose queue is gone never goes back: the log need not keep it, however long the client does."""
    run = entry.run
    if run.lsn and first_lsn <= run.lsn < end_lsn:
        broker.log.release(run.lsn, 1)
        entry.run = Run(run.envelope, entry.position, run.time)


def _in_backlogs(broker: Broker, first_lsn: int, end_lsn: int) -> dict[int, list[_Part]]:
    """References of backlogs into this part of the log, by block."""
    found: dict[int, list[_Part]] = {}
    for queue in _queues(broker):
        for backlog in queue.order.backlogs():
            for reference in backlog:
                if first_lsn <= reference.lsn < end_lsn:
                    found.setdefault(reference.lsn, []).append(_Part(queue, backlog, reference, []))
    return found


def _queues(broker: Broker) -> Iterator[Queue]:
    for vhost in broker.vhosts.values():
        yield from vhost.queues.values()


def _still(part: _Part) -> _Part | None:
    """What is left of a backlog's reference since it was found; None if nothing is."""
    queue, backlog, reference, _ = part
    if queue.deleted or backlog is None or reference is None:
        return None
    i = backlog.find(reference.first)
    if i is None:
        return None
    left = backlog.at(i)
    same = left.lsn == reference.lsn and reference.first <= left.first < reference.first + reference.length
    return part._replace(reference=left) if same else None


def _transient(part: _Part) -> bool:
    start = part.reference.start if part.reference is not None else part.entries[0].start
    return bool(start & TRANSIENT)


def _put(part: _Part, lsn: int, starts: Sequence[int]) -> None:
    """Let the queue know the new address."""
    flag = TRANSIENT if _transient(part) else 0
    if part.backlog is not None and part.reference is not None:
        part.backlog.readdress(part.reference.first, lsn, starts[0] | flag)
        return
    for entry, start in zip(part.entries, starts, strict=True):
        run = entry.run
        entry.run = Run(run.envelope, entry.position, run.time, lsn, start | flag, run.expires_at)
