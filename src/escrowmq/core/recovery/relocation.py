"""Compaction: copies the living messages of a segment to the end of the log, so that the segment can be removed."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.moves import Move, encode_moves, encode_readdressed
from escrowmq.core.records.references import TRANSIENT, Reference
from escrowmq.core.recovery.copying import Address, BlockReader, Copies, LoadedMessages

if TYPE_CHECKING:
    from escrowmq.core.broker import Broker
    from escrowmq.core.ports import Holder
    from escrowmq.core.queues.backlog import Backlog
    from escrowmq.core.queues.queue import Queue

STEP_COST: Final = 50_000
"""Maximum cost of a step, in references examined; this many take 2 to 3 ms. The constants below use the same unit."""
_BLOCK_COST: Final = 250
_MESSAGE_COST: Final = 2
_ENTRY_COST: Final = 10
_MOVED_ENTRY_COST: Final = 40
_QUEUE_COST: Final = 20
_BYTES_PER_COST: Final = 64

LOOK: Final = 1000
"""Number of references that are examined together."""
LOAD: Final = 500
"""Number of entries in memory that are examined together."""
BLOCK_MESSAGES: Final = 5000
BLOCK_BYTES: Final = 1 << 20
"""Maximum number of messages in a copied block. A longer block is copied in several."""


class Source(Protocol):
    """The content of one block."""

    def fit(self, start: int, most: int, room: int) -> tuple[int, int]: ...

    def copy(self, pieces: Sequence[tuple[int, int]]) -> list[bytes]: ...


class Relocation:
    """Moves the living messages in [`first_lsn`, `end_lsn`) of the log, in steps of a few milliseconds.

    The broker's state may change between steps, so no step relies on the findings of an earlier one. An entry that
    moves within memory meanwhile may be missed; its message then stays where it is. No snapshot may come into force
    before the end, since it could remove blocks that other queues are about to be readdressed to.

    A RELOCATE record stores the new address; positions do not change (ORD-5). Messages that several queues share stay
    shared: they are copied for the first queue, and READDRESSED records name the copy for the others. Content that does
    not survive a restart moves in a PAGE record, which recovery ignores.
    """

    def __init__(self, broker: Broker, first_lsn: int, end_lsn: int) -> None:
        self.moved = 0
        """Number of messages that were moved or need not be kept."""
        self._broker = broker
        self.first_lsn, self.end_lsn = first_lsn, end_lsn
        # Queues that are declared later have nothing in this part of the log.
        self._queues = [
            queue for vhost in broker.directory.vhosts.values() for queue in vhost.every_queue() if queue.logged
        ]
        self._copies = Copies() if len(self._queues) > 1 else None
        self._reader = BlockReader(broker.log)
        self._left = 0
        self._work = self._passes()

    def step(self) -> bool:
        """Do the next step. Return False when nothing is left to do. Raises LogUnreadable; the messages that have not
        moved by then stay where they are, and no step may follow.
        """
        self._left = STEP_COST
        return any(self._left <= 0 for _ in self._work)

    def _passes(self) -> Iterator[None]:
        """Examine messages in the order in which they travel: the backlog, then memory, then unsettled deliveries."""
        for queue in self._queues:
            for backlog in queue.order.backlogs():
                yield from self._of_backlog(queue, backlog)
            yield
        for queue in self._queues:
            yield from self._in_memory(queue)
            yield
        for queue in self._queues:
            for reservation in list(queue.reservations.values()):
                for part in list(reservation.parts):
                    yield from self._of_backlog(queue, part)
            for part in list(queue.locked):
                yield from self._of_backlog(queue, part)
        for holder in list(self._broker.engine.holders):
            yield from self._held_by(holder)
            yield

    # -- messages that are only in the log

    def _of_backlog(self, queue: Queue, backlog: Backlog) -> Iterator[None]:
        self._left -= _QUEUE_COST
        position = 0
        while not queue.deleted:
            begin = backlog.find(position)
            if begin is None:
                return
            end = min(begin + LOOK, backlog.end)
            last = backlog.at(end - 1)
            behind = last.first + last.length
            self._left -= end - begin
            found = backlog.lying_in(begin, end, self.first_lsn, self.end_lsn)
            reached = self._move_references(queue, backlog, found) if found else None
            if reached is not None:
                position = reached
            elif end == backlog.end:
                return
            else:
                position = behind
            yield

    def _move_references(self, queue: Queue, backlog: Backlog, found: list[int]) -> int | None:
        """Move references until the step's cost is used up. Return the next position, or None if all are moved."""
        changes: list[tuple[int, int, list[Reference]]] = []
        i, reached = 0, None
        try:
            while i < len(found) and reached is None:
                first = last = found[i]
                group = [backlog.at(first)]
                lsn = group[0].lsn
                while i + 1 < len(found) and found[i + 1] == last + 1 and backlog.lsns[last + 1] == lsn:
                    i, last = i + 1, last + 1
                    group.append(backlog.at(last))
                i += 1
                moved = self._move(queue, group, self._reader.open(lsn))
                position = moved[-1].first + moved[-1].length
                rest = _from(group, position)
                changes.append((first, last + 1, moved + rest))
                if rest or (self._left <= 0 and i < len(found)):
                    reached = position
        finally:  # if a block cannot be read, those before it have moved nevertheless
            if changes:
                backlog.substitute(changes)
        return reached

    # -- messages in memory

    def _in_memory(self, queue: Queue) -> Iterator[None]:
        self._left -= _QUEUE_COST
        start = 0
        while not queue.deleted:
            entries = queue.order.loaded(start, LOAD)
            if not entries:
                return
            start += self._move_entries([(queue, entry) for entry in entries])
            yield

    def _held_by(self, holder: Holder) -> Iterator[None]:
        self._left -= _QUEUE_COST
        start = 0
        while True:
            held = holder.held_part(start, LOAD)
            if not held:
                return
            start += self._move_entries([(consumer.queue, entry) for consumer, entry in held])
            yield

    def _move_entries(self, entries: Sequence[tuple[Queue, Entry]]) -> int:
        """Move entries that lie in this part of the log until the step's cost is used up. Return the number
        examined.
        """
        found: dict[tuple[Queue, int], list[Entry]] = {}
        size = looked = count = 0
        for queue, entry in entries:
            looked += 1
            lsn = entry.run.lsn
            if not self.first_lsn <= lsn < self.end_lsn or not lsn or queue.is_stream:
                continue  # elsewhere, only in memory, or of a stream, which keeps the message itself
            if queue.deleted:
                self._let_go(entry)
                continue
            found.setdefault((queue, lsn), []).append(entry)
            count += 1
            size += len(entry.content)
            if size >= BLOCK_BYTES or len(found) * _BLOCK_COST + count * _MOVED_ENTRY_COST >= self._left:
                break
        self._left -= looked * _ENTRY_COST + count * _MOVED_ENTRY_COST + size // _BYTES_PER_COST
        for (queue, _), group in found.items():
            group.sort()
            run = group[0].run
            contents = {entry.start & ~TRANSIENT: entry.content for entry in group}
            moved = self._move(queue, _joined(group), LoadedMessages(run.time, run.envelope, contents))
            _readdress(group, moved)
        return looked

    def _let_go(self, entry: Entry) -> None:
        """Release a delivery whose queue was deleted. It never returns, so the log need not keep it for the client."""
        run = entry.run
        self._broker.log.release(run.lsn, 1)
        entry.run = Run(run.envelope, entry.position, run.time)
        self.moved += 1

    # -- the records

    def _move(self, queue: Queue, group: list[Reference], source: Source) -> list[Reference]:
        """Move messages of one queue that lie in one block. Return the new references of all of them, or of the first
        ones.
        """
        lsn, flag = group[0].lsn, group[0].start & TRANSIENT
        pieces: list[tuple[int, int]] = []
        fresh: list[Reference] = []  # messages to copy now, with their numbers in the new block
        shared: dict[int, list[Reference]] = {}  # messages already copied for another queue, by block
        copied, messages, room = 0, BLOCK_MESSAGES, BLOCK_BYTES
        for part, place in self._parts(group):
            length = min(part.length, messages)
            if place is None:
                length, size = source.fit(part.start, length, room)
                pieces.append((part.start, length))
                fresh.append(Reference(part.first, length, 0, copied))
                copied += length
                room -= size
            else:
                shared.setdefault(place.lsn, []).append(Reference(part.first, length, *place))
            messages -= length
            if length < part.length or messages <= 0 or room <= 0:
                break
        count = BLOCK_MESSAGES - messages
        self._left -= _BLOCK_COST + count * _MESSAGE_COST + (BLOCK_BYTES - room) // _BYTES_PER_COST
        moved = self._copy(queue, fresh, source.copy(pieces), flag) if pieces else []
        if self._copies is not None:
            for (start, length), reference in zip(pieces, moved, strict=True):
                self._copies.note(lsn, start, length, Address(reference.lsn, reference.start & ~TRANSIENT))
        log = self._broker.log
        for block, references in shared.items():
            log.append(Kind.READDRESSED, encode_readdressed([_move_of(queue, references)], block))
            log.retain(block, sum([reference.length for reference in references]))
            moved += references
        log.release(lsn, count)
        self.moved += count
        if shared:
            moved.sort()
        return moved

    def _parts(self, group: list[Reference]) -> Iterator[tuple[Reference, Address | None]]:
        """Yield contiguous messages, with the address that they were copied to, if any."""
        for first, length, lsn, start in group:
            reference = Reference(first, length, lsn, start & ~TRANSIENT)
            if self._copies is None or start & TRANSIENT:  # content that a restart loses belongs to one queue only
                yield reference, None
            else:
                yield from self._copies.cut(reference)

    def _copy(self, queue: Queue, fresh: list[Reference], content: list[bytes], flag: int) -> list[Reference]:
        """Append a block with this content. Return the references with its address."""
        log = self._broker.log
        if flag:
            lsn = log.append(Kind.PAGE, *content)
        else:
            head = encode_moves([_move_of(queue, fresh)])
            lsn = log.append(Kind.RELOCATE, head, *content) + len(head)
        log.retain(lsn, fresh[-1].start + fresh[-1].length)
        return [Reference(first, length, lsn, start | flag) for first, length, _, start in fresh]


def _move_of(queue: Queue, references: list[Reference]) -> Move:
    positions, starts = array("Q"), array("I")
    for first, length, _, start in references:
        positions.extend(range(first, first + length))
        starts.extend(range(start, start + length))
    return Move(queue.ident, positions, starts)


def _from(references: list[Reference], position: int) -> list[Reference]:
    """Return the parts of `references` at or after `position`."""
    left = []
    for reference in references:
        first, length, lsn, start = reference
        if first >= position:
            left.append(reference)
        elif first + length > position:
            left.append(Reference(position, first + length - position, lsn, start + position - first))
    return left


def _joined(entries: list[Entry]) -> list[Reference]:
    """Return entries of one block as references, in order of position. Neighbours of one run share a reference."""
    found: list[Reference] = []
    run: Run | None = None
    for entry in entries:
        last = found[-1] if found else None
        if last is not None and entry.run is run and entry.position == last.first + last.length:
            found[-1] = last._replace(length=last.length + 1)
        else:
            run = entry.run
            found.append(Reference(entry.position, 1, run.lsn, entry.start))
    return found


def _readdress(entries: list[Entry], moved: list[Reference]) -> None:
    """Store their new addresses in `entries`. `moved` names their positions, in the same order."""
    i = 0
    for first, length, lsn, start in moved:
        old = entries[i].run
        run = Run(old.envelope, first, old.time, lsn, start, old.expires_at)
        for entry in entries[i : i + length]:
            entry.run = run
        i += length
