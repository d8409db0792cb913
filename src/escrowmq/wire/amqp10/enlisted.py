"""Deliveries that were acquired or retired in a transaction (part 4, sections 4.4.2 and 4.4.3)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from escrowmq.core.queues.outcome import Disposition
from escrowmq.wire.amqp10.codec.performatives import SENDER
from escrowmq.wire.amqp10.codec.states import RELEASED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.queues.consumer import Consumer
    from escrowmq.wire.amqp10.codec.states import Outcome
    from escrowmq.wire.amqp10.outgoing import ConsumerLink
    from escrowmq.wire.amqp10.session import Session


_BLOCK: Final = 8  # binary digits of the numbers in a block


@dataclass(slots=True, eq=False)
class Enlisted:
    """Deliveries of a link that were acquired or retired in a transaction.

    `first` and `last` are numbers of the session, `number` is the link's number of the first one. `unsettled` is the
    number of those that the client has not settled. `outcome` is None for deliveries that were only acquired.
    """

    session: Session
    link: ConsumerLink
    first: int
    last: int
    number: int
    unsettled: int
    outcome: Outcome | None = None
    settled: bool = False

    def overlaps(self, link: ConsumerLink, first: int, last: int) -> bool:
        """Return whether deliveries of `link` between these numbers of its session are among them."""
        return self.link is link and self.first <= last and first <= self.last

    def join(self, other: Enlisted) -> bool:
        """Add `other`, if its deliveries follow these ones and have the same outcome. Return whether they do."""
        ahead = self.number - self.first
        if (
            self.link is not other.link
            or self.session is not other.session
            or other.first != self.last + 1
            or other.number != other.first + ahead
            or self.outcome is None
            or self.outcome != other.outcome
            or self.settled is not other.settled
        ):
            return False
        self.last = other.last
        self.unsettled += other.unsettled
        return True

    def settle(self, first: int, last: int, returning: RetirementUndo) -> None:
        """Note that the client has settled those between these numbers of the session, too."""
        ahead = self.number - self.first
        count = returning.settle(max(first, self.first) + ahead, min(last, self.last) + ahead)
        self.unsettled -= count
        self.settled = not self.unsettled
        self.session.sent.settled(self.first, count)

    def give_up(self) -> None:
        """Return deliveries whose acquisition was rolled back, and tell the client that they are settled."""
        session = self.session
        count = self.link.settle(self.number, self.number + self.last - self.first, Disposition.RELEASED)
        if count and not session.ending:
            session.sent.settled(self.first, count)
            session.settled = True
            session.answer(SENDER, self.first, self.last, settled=True, state=RELEASED)


class Retirements:
    """Deliveries that were retired in a transaction, to be found by their numbers. Each of their groups is kept for
    every block of numbers that it touches, so that a look costs a block at most, however many groups there are.
    """

    __slots__ = ("_by_block",)

    def __init__(self) -> None:
        self._by_block: dict[tuple[ConsumerLink, int], list[Enlisted]] = {}

    def add(self, some: Enlisted, first: int, last: int) -> None:
        """Add a group, or its part between these numbers, by which it has grown."""
        for block in range(first >> _BLOCK, (last >> _BLOCK) + 1):
            groups = self._by_block.setdefault((some.link, block), [])
            if not (groups and groups[-1] is some):
                groups.append(some)

    def overlapping(self, link: ConsumerLink, first: int, last: int) -> Iterator[Enlisted]:
        """Yield the groups with deliveries of `link` between these numbers of its session. Those that touch several
        blocks may come several times.
        """
        for block in range(first >> _BLOCK, (last >> _BLOCK) + 1):
            for some in self._by_block.get((link, block), ()):
                if some.overlaps(link, first, last):
                    yield some

    def remove(self, some: Enlisted) -> None:
        """Remove a group."""
        for block in range(some.first >> _BLOCK, (some.last >> _BLOCK) + 1):
            groups = self._by_block.get((some.link, block))
            if groups is not None and some in groups:
                groups.remove(some)
                if not groups:
                    del self._by_block[some.link, block]

    def clear(self) -> None:
        """Remove everything."""
        self._by_block.clear()


class RetirementUndo:
    """The undo of a link's retired deliveries: those that the client has settled get the source's default outcome, the
    others stay unsettled.
    """

    __slots__ = ("_ends", "_engine", "_firsts", "_keeper", "_outcome")

    def __init__(self, link: ConsumerLink) -> None:
        self._engine = link.link.session.connection.broker.engine
        self._outcome = link.default
        self._keeper = link.keeper
        self._firsts: list[int] = []  # of ranges of numbers that the client has settled, which do not touch
        self._ends: list[int] = []  # the numbers behind them

    def settle(self, first: int, last: int) -> int:
        """Note that the client has settled the deliveries between these numbers of the link. Return how many of them
        it had not settled before.
        """
        if last < first:
            return 0
        end = last + 1
        i, j = bisect_left(self._ends, first), bisect_right(self._firsts, end)
        touched = list(zip(self._firsts[i:j], self._ends[i:j], strict=True))
        known = sum([min(behind, end) - max(begin, first) for begin, behind in touched])
        self._firsts[i:j] = [min([first, *[begin for begin, _ in touched]])]
        self._ends[i:j] = [max([end, *[behind for _, behind in touched]])]
        return end - first - known

    def _has(self, number: int) -> bool:
        i = bisect_right(self._firsts, number)
        return i > 0 and number < self._ends[i - 1]

    def keep(self, consumer: Consumer, tags: Sequence[int], entries: Sequence[Entry]) -> None:
        """Return deliveries by their numbers (`branches.branch.Keeper`)."""
        gone: Sequence[Entry] = ()
        if self._firsts:
            low, high = min(tags), max(tags)
            i = bisect_right(self._ends, low)
            if i < len(self._firsts) and self._firsts[i] <= low and high < self._ends[i]:
                self._engine.settle_together(consumer, list(entries), self._outcome)
                return
            if i < len(self._firsts) and self._firsts[i] <= high:
                gone = [entry for tag, entry in zip(tags, entries, strict=True) if self._has(tag)]
        if gone:
            self._engine.settle_together(consumer, list(gone), self._outcome)
            left = [(tag, entry) for tag, entry in zip(tags, entries, strict=True) if not self._has(tag)]
            tags, entries = [tag for tag, _ in left], [entry for _, entry in left]
        if self._keeper is not None and tags:
            self._keeper.keep(consumer, tags, entries)
