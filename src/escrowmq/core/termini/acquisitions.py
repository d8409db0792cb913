"""The unsettled deliveries of an outgoing terminus, by number (SET-3, SET-10).

Each delivery gets the next number of its terminus, which is part of its tag, and keeps it when the link resumes. The
terminus holds the deliveries (`Engine.holders`), so that a link on a connection only refers to their numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import chain, groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from escrowmq.core.access.holdings import STEP
from escrowmq.core.branches.branch import State
from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.discipline import ENTRY_COST
from escrowmq.core.queues.runs import Stretch
from escrowmq.core.queues.unsettled import Unsettled, by_consumer, size_of_one
from escrowmq.core.termini.locks import LockedPiece, Locks, is_lockable, pieces_of
from escrowmq.core.termini.tags import MASK, TAG, delivery_tag, parse_tag

if TYPE_CHECKING:
    from escrowmq.core.access.holdings import Holding
    from escrowmq.core.branches.branch import TransactionBranch
    from escrowmq.core.engine import Engine
    from escrowmq.core.queues.outcome import Disposition
    from escrowmq.core.queues.portions import Portion
    from escrowmq.core.queues.queue import Queue


RESIDENT: Final = 16 * 1024 * 1024
"""Bytes of deliveries that are kept in memory for a terminus whose deliveries the log keeps. The oldest ones beyond
that are locked, like those of a terminus that recovery found, until the client settles them."""
_LOGGED: Final = Envelope("", "", durable=True)
_run = attrgetter("run")


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


class DeliveryOwner(Protocol):
    """The terminus of the deliveries (also `core.ports.Acquirer`)."""

    @property
    def owner(self) -> tuple[str, object]:
        """The user and the client's container."""
        ...

    @property
    def keeps(self) -> bool:
        """Whether the log keeps the deliveries over a restart."""
        ...

    def given_back(self, queue: Queue, entries: list[Entry]) -> None:
        """Note that deliveries return to their queue."""
        ...

    @property
    def incomplete_bytes(self) -> int:
        """The bytes of a delivery in the other direction that has arrived in part."""
        ...

    def relieve(self, text: str) -> None:
        """Free the memory of the deliveries, for the reason `text`."""
        ...


class Acquisitions:
    """The deliveries of a terminus. `locks` are those without content in memory, until a link takes them up. `holding`
    counts the others for the user and the virtual host.
    """

    __slots__ = (
        "__weakref__",  # for the watch over the memory that clients hold
        "_acquirer",
        "_engine",
        "_enlisted",
        "_getters",
        "_swept",
        "_uncounted",
        "_unsent",
        "_unsettled",
        "default",
        "holding",
        "locks",
    )

    def __init__(self, engine: Engine, acquirer: DeliveryOwner | None = None) -> None:
        self._engine = engine
        self._acquirer = acquirer
        self.holding: Holding | None = None
        self._uncounted = 0  # bytes of deliveries that were added since the last count, about
        self._unsent = 0
        self._enlisted: list[_Enlisted] = []
        self._getters: dict[Queue, Consumer] = {}
        self.default: Disposition | None = None
        """The outcome of deliveries that come back from a branch after the end of the terminus."""
        self._unsettled = Unsettled()
        self.locks = Locks()
        self._swept = 0  # deliveries with lower numbers are locked, or were found to stay in memory

    # -- as a holder (`core.ports.Holder`)

    def held(self) -> list[tuple[Consumer, list[Entry]]]:
        """Return copies of the deliveries in memory."""
        return self._unsettled.copies()

    def copy_ahead(self, at: int, most: int) -> tuple[int, int]:
        """See `Holder.copy_ahead`."""
        return self._unsettled.copy_ahead(at, most)

    def held_part(self, start: int, most: int) -> list[tuple[Consumer, Entry]]:
        """Return at most `most` of them, from number `start` on."""
        return self._unsettled.part(start, most)

    def end(self) -> None:
        """Forget the terminus, which is gone."""
        self._acquirer = None
        if self.holding is not None:
            self.holding.close()
            self.holding = None
        self._getters.clear()
        self._enlisted.clear()

    # -- memory

    @property
    def full(self) -> bool:
        """Whether there are deliveries, and the user or the virtual host holds as much as it may."""
        return self.holding is not None and self.holding.share > 0 and self.holding.full

    @property
    def owner(self) -> tuple[str, object]:
        """The user and the client's container (`server.relief.MemoryOwner`); empty after its end."""
        return self._acquirer.owner if self._acquirer is not None else ("", "")

    @property
    def next_tag(self) -> int:
        """The number of the next delivery (`server.relief.MemoryOwner`)."""
        return self._unsettled.next_tag

    def held_bytes(self, before: int) -> int:
        """The bytes of the deliveries in memory with numbers less than `before`, of unsent ones, and of one that was
        interrupted while it arrived, about.
        """
        incomplete = self._acquirer.incomplete_bytes if self._acquirer is not None else 0
        return self._unsettled.bytes_before(before) + self._unsent + incomplete

    def give_up(self, text: str) -> None:
        """Free memory, because memory is short, and the deliveries have held much for long."""
        if self._acquirer is not None:
            self._acquirer.relieve(text)

    def unsent(self, size: int) -> None:
        """Note how many bytes of settled deliveries, and of parts of a message, wait for the client's window."""
        if size != self._unsent:
            self._unsent = size
            self._count()

    def _count(self) -> None:
        """Count the deliveries in memory, and what is unsent."""
        self._uncounted = 0
        if self.holding is not None:
            size = self._unsettled.bytes + self._unsent
            if size > self.holding.share:
                self.holding.follow(size)
            elif self.holding.share > STEP:
                self.holding.shrink(size)

    def swap_out(self) -> bool:
        """Lock the deliveries in memory whose content is in the log, and drop their content. Return whether there are
        some, or none in memory at all.
        """
        found: list[LockedPiece] = []
        for first, entries, consumer in self._unsettled.clear():
            for number, some in _runs_of(first, entries):
                if is_lockable(consumer.queue, some[0].run):
                    found += pieces_of(consumer.queue, number, some)
                else:
                    self._unsettled.restore(consumer, range(number, number + len(some)), some)
        pieces = [*self.locks.take_all(), *found]
        for each in sorted(pieces, key=attrgetter("number")):
            each.queue.unsettled -= each.reference.length  # `add` counts them again
            self.locks.add(each)
        self._swept = self._unsettled.next_tag
        self._count()
        return bool(found) or not self._unsettled.count

    def _swap_oldest(self) -> None:
        """Lock the oldest deliveries in memory, so that the others have `RESIDENT` bytes at most. Those that cannot be
        locked stay in memory.
        """
        excess = self._unsettled.bytes - RESIDENT
        chosen: list[tuple[int, list[Entry], Consumer]] = []
        for first, entries, consumer in self._unsettled.stretches(self._swept):
            if excess <= 0:
                break
            self._swept = first + len(entries)
            chosen += [(number, some, consumer) for number, some in _runs_of(first, entries)]
            excess -= len(entries) * size_of_one(entries)
        for first, entries, consumer in chosen:
            queue = consumer.queue
            if not is_lockable(queue, entries[0].run):
                continue
            for piece in pieces_of(queue, first, entries):
                if self.locks.fits(piece):
                    self._unsettled.take_between(piece.number, piece.number + piece.reference.length - 1)
                    queue.unsettled -= piece.reference.length  # `add` counts them again
                    self.locks.add(piece)

    # -- reading

    @property
    def count(self) -> int:
        """The number of unsettled deliveries."""
        return self._unsettled.count + self.locks.count

    @property
    def empty(self) -> bool:
        """Whether there are no deliveries, in memory, locked, or in a branch."""
        return not self._unsettled.count and not self.locks and not self._enlisted

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

    def tags(self, most: int | None = None) -> list[tuple[int, bytes]]:
        """Return numbers and tags of the first `most` unsettled deliveries (None: of all), in order of their
        numbers.
        """
        in_memory = chain.from_iterable(map(_tags_of, self._unsettled.stretches()))
        parts = [*self._locked_tags(), in_memory]
        return list(islice(merge(*parts) if len(parts) > 1 else in_memory, most))

    def _locked_tags(self) -> Iterator[Iterator[tuple[int, bytes]]]:
        for rows in self.locks.rows():
            yield (
                (first + i, delivery_tag(queue.ident, reference.first + i, first + i))
                for queue, first, reference, _ in rows
                for i in range(reference.length)
            )

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
        self._uncounted += len(entries) * (ENTRY_COST + max(len(entries[0].content), len(entries[-1].content)))
        if self._uncounted >= STEP:
            if self._unsettled.bytes > RESIDENT and self._acquirer is not None and self._acquirer.keeps:
                self._swap_oldest()
            self._count()
        return first

    def take(self, first: int, last: int, *, content: bool = True) -> list[Stretch]:
        """Remove and return the deliveries with the numbers `first` to `last`. Locked ones are loaded from the log, but
        without `content` their entries are empty.

        Raises LogUnreadable, with nothing changed, if a message cannot be read.
        """
        taken = self._take_locked(first, last, content=content) if self.locks else []
        taken += self._unsettled.take_between(first, last)
        if self.holding is not None and self.holding.share > STEP:
            self.holding.shrink(self._unsettled.bytes + self._unsent)
        return taken

    def reach(self, first: int, last: int, portion: Portion) -> int:
        """Return the number up to which deliveries with the numbers `first` to `last` become dead letters in one piece
        of work. It is `first` if some are locked, since their content is not known.
        """
        if self.locks and self.locks.select(range(first, min(last + 1, self._unsettled.next_tag))):
            return first
        return portion.reach(self._unsettled.stretches(first, last), first, last, last - first + 1)

    def _take_locked(self, first: int, last: int, *, content: bool) -> list[Stretch]:
        """Unlock deliveries. With `content` they are put into memory, otherwise they are returned."""
        numbers = range(first, min(last + 1, self._unsettled.next_tag))
        if content:
            self._unlock(numbers)
            return []
        pieces = self.locks.select(numbers)
        self.locks.take(numbers)
        return [(piece.number, _without_content(piece), self._getter(piece.queue)) for piece in pieces]

    def _unlock(self, numbers: Sequence[int]) -> None:
        """Load locked deliveries. Raises LogUnreadable, with nothing changed, if a message cannot be read."""
        loaded = [(piece, self._load(piece)) for piece in self.locks.select(numbers)]
        if loaded:
            self.locks.take(numbers)
            for piece, entries in loaded:
                tags = range(piece.number, piece.number + len(entries))
                self._unsettled.restore(self._getter(piece.queue), tags, entries)
            self._count()

    def take_all(self) -> Unsettled:
        """Remove and return all deliveries in memory."""
        taken, self._unsettled = self._unsettled, Unsettled()
        self._unsettled.next_tag = taken.next_tag
        if self.holding is not None:
            self.holding.follow(self._unsent)
        return taken

    def take_up(self, numbers: Sequence[int]) -> list[TakenUp]:
        """Return deliveries that a link sends again. Locked ones are loaded from the log. Unknown numbers are ignored.
        `numbers` are sorted. Raises LogUnreadable, with nothing changed, if a message cannot be read.
        """
        self._unlock(sorted([number for number in numbers if self.locks.find(number) is not None]))
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
            self._count()
        else:
            self._engine.settle_together(consumer, list(entries), self.default)

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


def _runs_of(first: int, entries: list[Entry]) -> Iterator[tuple[int, list[Entry]]]:
    """Yield deliveries with numbers from `first` on, divided by runs: the first number, and the entries."""
    for _, group in groupby(entries, _run):
        some = list(group)
        yield first, some
        first += len(some)


def _tags_of(stretch: Stretch) -> list[tuple[int, bytes]]:
    """Return numbers and tags of some deliveries. It is as fast as can be, since a resuming link needs thousands."""
    first, entries, consumer = stretch
    ident, pack = consumer.queue.ident, TAG.pack
    return [(number, pack(ident, entry.position, number & MASK)) for number, entry in enumerate(entries, first)]


def _without_content(piece: LockedPiece) -> list[Entry]:
    """Return entries with which the deliveries of `piece` can be accepted."""
    first, length, lsn, start = piece.reference
    run = Run(_LOGGED, first, 0, lsn, start)
    return [Entry(position, b"", run) for position in range(first, first + length)]
