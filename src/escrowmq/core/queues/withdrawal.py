"""Messages that left a queue all at once, by a purge or with the queue. Their content is released in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from escrowmq.core.queues.backlog import Backlog
from escrowmq.core.queues.settlement import release
from escrowmq.core.records.references import TRANSIENT, Range, merged, ranges_of

if TYPE_CHECKING:
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.ports import Log

PIECE: Final = 2000
"""The number of references or entries that are released in one turn, for each queue that was emptied."""

_position, _lsn, _index = attrgetter("position"), attrgetter("run.lsn"), attrgetter("run.index")


class Withdrawal:
    """`entries` that were in memory, and `backlogs` that were not. They belong to the withdrawal from now on, and so do
    `objects`, whose memory is freed in pieces, too.
    """

    __slots__ = ("_backlogs", "_entries", "_objects")

    def __init__(self, entries: list[Entry], backlogs: Sequence[Backlog], objects: list[Any] | None = None) -> None:
        self._entries = entries
        self._objects = objects or []
        self._backlogs = [backlog for backlog in backlogs if backlog.messages]

    def __contains__(self, position: int) -> bool:
        return any(position in backlog for backlog in self._backlogs) or any(
            entry.position == position for entry in self._entries
        )

    def durable_ranges(self) -> list[Range]:
        """Return the positions that a restart would restore. It takes few steps if they have no gaps, for any number of
        messages.
        """
        loaded = sorted(self._loaded())
        if self._backlogs and all(backlog.lasts() for backlog in self._backlogs):
            bounds = [backlog.bounds() for backlog in self._backlogs]
            first = min([begin for begin, _ in bounds] + loaded[:1])
            last = max([end - 1 for _, end in bounds] + loaded[-1:])
            count = len(loaded) + sum([backlog.messages for backlog in self._backlogs])
            if last - first + 1 == count:
                return [Range(first, count)]
        ranges: list[tuple[int, int]] = list(ranges_of(loaded))
        for backlog in self._backlogs:
            ranges += [(r.first, r.length) for r in backlog if r.lsn and not r.start & TRANSIENT]
        return merged(ranges)

    def _loaded(self) -> Iterable[int]:
        """Return the positions of the entries that a restart would restore."""
        entries = self._entries
        if all(map(_lsn, entries)) and max(map(_index, entries), default=0) < TRANSIENT:
            return map(_position, entries)  # the usual case: all of them, without a step in Python for each
        return [e.position for e in entries if e.run.lsn and not e.run.index & TRANSIENT]

    def release(self, log: Log) -> bool:
        """Release a piece in the log. Return True while there is more."""
        if self._entries:
            release(log, self._entries[-PIECE:])
            del self._entries[-PIECE:]
        elif self._backlogs:
            backlog = self._backlogs[-1]
            some = backlog.split(backlog.messages, PIECE)
            for lsn, count in zip(some.lsns, some.counts, strict=True):
                if lsn:
                    log.release(lsn, count)
            if not backlog.messages:
                self._backlogs.pop()
        elif self._objects:
            del self._objects[-PIECE:]
        return bool(self._entries or self._backlogs or self._objects)
