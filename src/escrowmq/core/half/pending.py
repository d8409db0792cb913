"""The discipline of the queue in which half messages wait: references by position, any of which may leave next.

All content is only in the log. 1024 consecutive positions share a backlog, so that one message leaves in few steps
however many there are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

from escrowmq.core.queues.backlog import Backlog
from escrowmq.core.queues.withdrawal import Withdrawal
from escrowmq.core.records.references import Reference

if TYPE_CHECKING:
    from escrowmq.core.messages.entry import Entry, Run
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.queues.discipline import Detached, Pager
    from escrowmq.core.queues.fifo import Fifo
    from escrowmq.core.queues.sealed import LevelRuns

_BITS: Final = 10
_SIZE: Final = 1 << _BITS


def _key(position: int) -> int:
    return position >> _BITS


class PendingOrder:
    """References to messages, by position."""

    __slots__ = ("_backlogs", "_count", "_pager")

    def __init__(self, pager: Pager) -> None:
        self._pager = pager
        self._backlogs: dict[int, Backlog] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, run: Run, contents: Sequence[bytes]) -> None:
        self._add(Reference(run.first, len(contents), run.lsn or self._pager.store(run, contents), run.index))

    def _add(self, reference: Reference) -> None:
        first, count, lsn, start = reference
        self._count += count
        while count:
            length = min(count, _SIZE - first % _SIZE)
            backlog = self._backlogs.get(first >> _BITS)
            if backlog is None:
                backlog = self._backlogs[first >> _BITS] = Backlog()
            backlog.append(first, length, lsn, start)
            first, start, count = first + length, start + length, count - length

    def find(self, position: int) -> Reference | None:
        """Return the reference to the message at `position`, if it is there."""
        backlog = self._backlogs.get(position >> _BITS)
        return None if backlog is None else next(backlog.within(position, 1), None)

    def remove_each(self, positions: Sequence[int]) -> None:
        """Remove the messages at `positions`, which are there."""
        self._count -= len(positions)
        for key, some in groupby(sorted(positions), _key):
            backlog = self._backlogs[key]
            backlog.take_out([*some])
            if not backlog.messages:
                del self._backlogs[key]

    # -- the interface of disciplines; no consumer takes anything from here

    def take(self, most: int) -> list[Entry]:
        """Return nothing: messages leave by `remove`."""
        return []

    def put_back(self, entries: list[Entry]) -> None:
        """Do nothing: nothing was taken."""

    def peek(self) -> Entry | None:
        """Return nothing: no message is the next."""
        return None

    def level(self, envelope: Envelope) -> int:
        return 0

    def keeps(self, level: int, size: int) -> bool:
        """Return False: messages are only in the log."""
        return False

    def admit(self, level: int, runs: LevelRuns) -> None:
        """Do nothing: no transaction publishes to this queue."""

    def levels(self) -> Iterator[tuple[int, Fifo]]:
        return iter(())

    def withdraw(self) -> Withdrawal:
        gone = Withdrawal([], [backlog.withdraw() for backlog in self._backlogs.values()])
        self._backlogs.clear()
        self._count = 0
        return gone

    def references(self) -> Iterator[Reference]:
        for backlog in self.backlogs():
            yield from backlog

    def in_memory(self) -> list[Entry]:
        return []

    def loaded(self, start: int, most: int) -> list[Entry]:
        return []

    def backlogs(self) -> list[Backlog]:
        return list(self._backlogs.values())

    def known_deliveries(self) -> dict[int, int]:
        return {}

    def restore(self, found: Backlog, deliveries: dict[int, int], delivered_below: int) -> None:
        firsts, lsns, counts, indexes = found.columns()
        begin = 0
        while begin < len(firsts):
            behind = (firsts[begin] | _SIZE - 1) + 1
            end = bisect_left(firsts, behind, begin)
            if firsts[end - 1] + counts[end - 1] > behind:  # the last reference belongs to the next backlog, too
                end -= 1
            if end > begin:
                some = Backlog()
                some.firsts, some.lsns = firsts[begin:end], lsns[begin:end]
                some.counts, some.indexes = counts[begin:end], indexes[begin:end]
                self._backlogs.setdefault(firsts[begin] >> _BITS, Backlog()).join(some, 0)
                self._count += sum(some.counts)
                begin = end
            else:
                self._add(Reference(firsts[begin], counts[begin], lsns[begin], indexes[begin]))
                begin += 1

    def limit_memory(self, limit: int) -> None:
        """Do nothing: no messages are kept in memory."""

    def detach(self, most: int, parts: int) -> list[Detached]:
        return []

    def attach(self, found: list[Reference], deliveries: dict[int, int]) -> None:
        """Do nothing: nothing was detached."""
