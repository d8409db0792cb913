"""The unsettled deliveries of an outgoing terminus, by number (SET-3, SET-10).

Each delivery gets the next number of its terminus, which is part of its tag, and keeps it when the link resumes. The
terminus holds the deliveries (`Engine.holders`), so that a link on a connection only refers to their numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from escrowmq.core.branches.branch import State
from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.unsettled import Stretch, Unsettled, by_consumer
from escrowmq.core.termini.locks import LockedPiece, Locks
from escrowmq.core.termini.tags import delivery_tag, parse_tag

if TYPE_CHECKING:
    from escrowmq.core.branches.branch import TransactionBranch
    from escrowmq.core.engine import Engine
    from escrowmq.core.ports import Acquirer
    from escrowmq.core.queues.outcome import Disposition
    from escrowmq.core.queues.queue import Queue


class _Enlisted(NamedTuple):
    """Deliveries with numbers from `first` on that a branch holds. A branch object may be used again, so it is
    identified by its number, too.
    """

    branch: TransactionBranch
    number: int
    first: int
    entries: list[Entry]
    consumer: Consumer

    @property
    def open(self) -> bool:
        return self.branch.number == self.number and self.branch.state in (State.ACTIVE, State.ROLLBACK_ONLY)

    def continues(self, branch: TransactionBranch, first: int, consumer: Consumer) -> bool:
        """Return whether a delivery with the number `first` follows these ones in the same branch."""
        return (
            self.branch is branch
            and self.number == branch.number
            and self.first + len(self.entries) == first
            and self.consumer is consumer
        )


class TakenUp(NamedTuple):
    """A delivery that a resuming link sends again, under its old number and tag."""

    number: int
    tag: bytes
    entry: Entry
    consumer: Consumer


class Acquisitions:
    """The deliveries of a terminus. `locks` are those that recovery found, until a link takes them up."""

    __slots__ = ("_acquirer", "_engine", "_enlisted", "_getters", "_unsettled", "default", "locks")

    def __init__(self, engine: Engine, acquirer: Acquirer | None = None) -> None:
        self._engine = engine
        self._acquirer = acquirer
        self._enlisted: list[_Enlisted] = []
        self._getters: dict[Queue, Consumer] = {}
        self.default: Disposition | None = None
        """The outcome of deliveries that come back from a branch after the end of the terminus."""
        self._unsettled = Unsettled()
        self.locks = Locks()

    # -- as a holder (`core.ports.Holder`)

    def held(self) -> list[tuple[Consumer, list[Entry]]]:
        """Return copies of the deliveries in memory."""
        return self._unsettled.copies()

    def held_part(self, start: int, most: int) -> list[tuple[Consumer, Entry]]:
        """Return at most `most` of them, from number `start` on."""
        return self._unsettled.part(start, most)

    def end(self) -> None:
        """Forget the terminus, which is gone."""
        self._acquirer = None
        self._getters.clear()
        self._enlisted.clear()

    # -- reading

    @property
    def count(self) -> int:
        """The number of unsettled deliveries."""
        return self._unsettled.count + self.locks.count

    @property
    def next_number(self) -> int:
        """The number of the next delivery."""
        return self._unsettled.next_tag

    def slots(self) -> list[tuple[int, list[Entry | None], Consumer]]:
        """Return copies of the deliveries in memory with their numbers (`Unsettled.slots`), for a snapshot. Those that
        a branch has are included: a crash ends the branch, and the deliveries are still those of the terminus.
        """
        self._prune()
        return self._unsettled.slots() + [(each.first, list(each.entries), each.consumer) for each in self._enlisted]

    def numbers(self) -> list[int]:
        """Return the numbers of all unsettled deliveries, in order."""
        in_memory = [range(first, first + len(entries)) for first, entries, _ in self._unsettled.stretches()]
        locked = [range(number, number + reference.length) for _, number, reference, _ in self.locks.pieces()]
        ranges: list[range] = sorted([*in_memory, *locked], key=attrgetter("start"))
        return list(chain.from_iterable(ranges))

    def tags(self) -> list[tuple[int, bytes]]:
        """Return numbers and tags of all unsettled deliveries, in order of their numbers."""
        found = [
            (number, delivery_tag(consumer.queue.ident, entry.position, number))
            for first, entries, consumer in self._unsettled.stretches()
            for number, entry in enumerate(entries, first)
        ]
        for queue, first, reference, _ in self.locks.pieces():
            found += [
                (first + i, delivery_tag(queue.ident, reference.first + i, first + i)) for i in range(reference.length)
            ]
        found.sort()
        return found

    def number_of(self, tag: bytes) -> int | None:
        """Return the number of the unsettled delivery with this tag; None if there is none."""
        parts = parse_tag(tag)
        if parts is None:
            return None
        last = self.next_number - 1
        number = last - (last - parts.number) % (1 << 32)
        found = self.locks.find(number)
        if found is None:
            stretch = self._unsettled.find(number)
            if stretch is None:
                return None
            _, (entry,), consumer = stretch
            found = consumer.queue, entry.position
        queue, position = found
        return number if (queue.ident, position) == (parts.queue, parts.position) else None

    # -- changing

    def restart_at(self, number: int) -> None:
        """Continue with this number, since earlier ones were assigned before a restart."""
        self._unsettled.next_tag = max(self._unsettled.next_tag, number)

    def add(self, consumer: Consumer, entries: list[Entry]) -> int:
        """Add deliveries. Return the number of the first one; each further one has the next number."""
        first = self._unsettled.next_tag
        self._unsettled.add(entries, consumer)
        return first

    def take(self, first: int, last: int) -> list[Stretch]:
        """Remove and return the deliveries in memory with the numbers `first` to `last`."""
        return self._unsettled.take_between(first, last)

    def take_all(self) -> list[tuple[Consumer, list[Entry]]]:
        """Remove and return all deliveries in memory."""
        return [(consumer, entries) for _, entries, consumer in self._unsettled.clear()]

    def take_up(self, numbers: Sequence[int]) -> list[TakenUp]:
        """Return deliveries that a link sends again. Locked ones are loaded from the log. Unknown numbers are ignored.
        `numbers` are sorted. Raises LogUnreadable, with nothing changed, if a message cannot be read.
        """
        wanted = [number for number in numbers if self.locks.find(number) is not None]
        if wanted:
            loaded = [(piece, self._load(piece)) for piece in self.locks.select(wanted)]
            self.locks.take(wanted)
            for piece, entries in loaded:
                tags = range(piece.number, piece.number + len(entries))
                self._unsettled.restore(self._getter(piece.queue), tags, entries)
        found = []
        for number in numbers:
            stretch = self._unsettled.find(number)
            if stretch is not None:
                _, (entry,), consumer = stretch
                tag = delivery_tag(consumer.queue.ident, entry.position, number)
                found.append(TakenUp(number, tag, entry, consumer))
        return found

    def _getter(self, queue: Queue) -> Consumer:
        """Return the consumer of deliveries that no link of this process has received."""
        consumer = self._getters.get(queue)
        if consumer is None:
            consumer = self._getters[queue] = Consumer(queue, None)
            consumer.acquirer = self._acquirer
        return consumer

    # -- in a branch

    def enlist(
        self, branch: TransactionBranch, first: int, last: int
    ) -> list[tuple[Consumer, Sequence[int], list[Entry]]]:
        """Remove deliveries in memory that are settled in `branch`, which holds them until its outcome. Return them
        with their numbers, by consumer.
        """
        if self._enlisted and not self._enlisted[-1].open:
            self._prune()
        taken = self.take(first, last)
        for at, some, consumer in taken:
            before = self._enlisted[-1] if self._enlisted else None
            if before is not None and before.continues(branch, at, consumer):
                before.entries.extend(some)
            else:
                self._enlisted.append(_Enlisted(branch, branch.number, at, list(some), consumer))
        return by_consumer(taken)

    def keep(self, consumer: Consumer, tags: Sequence[int], entries: Sequence[Entry]) -> None:
        """Take deliveries back from a branch that was rolled back (`branches.branch.Keeper`). `tags` are their
        numbers.
        """
        if self.default is None:
            self._unsettled.restore(consumer, tags, entries)
        else:
            self._engine.settle(consumer, list(entries), self.default)

    def _prune(self) -> None:
        """Forget deliveries that a branch has settled, or given back."""
        if self._enlisted:
            self._enlisted = [each for each in self._enlisted if each.open]

    def _load(self, piece: LockedPiece) -> list[Entry]:
        queue, _, reference, deliveries = piece
        block = self._engine.pager.load(reference)
        expires_at = queue.expiry(block.envelope, block.time)
        run = Run(block.envelope, reference.first, block.time, reference.lsn, reference.start, expires_at)
        entries = []
        for position, content in enumerate(block.contents, reference.first):
            entry = Entry(position, content, run)
            entry.deliveries = deliveries
            entries.append(entry)
        return entries
