"""The positions that events concern, and the messages there. An event concerns a run of positions of a queue.

Most positions of a run need not be looked up one by one, since the rows of their messages are consecutive, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from escrowmq.pipeline.columns import Ints, Rows, distinct, ragged
from escrowmq.pipeline.events import Happened

POSITION_BITS: Final = 44
_PASSIVE: Final = (Happened.HANDED_OUT, Happened.COUNTED, Happened.MARKED_IN_SNAPSHOT, Happened.NEXT)
"""Events that create no row. They may concern positions of messages that are not in the log."""


@dataclass(frozen=True, slots=True)
class Told:
    """The event of each of some positions. `rows` are events, and `at` is the index of each position's event."""

    rows: Rows
    at: Ints

    def __len__(self) -> int:
        return len(self.at)

    @overload
    def __getitem__(self, which: str) -> Any: ...

    @overload
    def __getitem__(self, which: npt.NDArray[Any]) -> Told: ...

    def __getitem__(self, which: str | npt.NDArray[Any]) -> Any:
        """Return a field of each position's event, or select positions by index or mask."""
        return self.rows[which][self.at] if isinstance(which, str) else Told(self.rows, self.at[which])


Of: TypeAlias = Callable[..., "tuple[Ints, Told, Ints]"]
"""For each position in events of the given kinds: the row of its message, its event, and its index in the event."""


class Positions:
    """Positions of events, as keys made of queue and position."""

    def __init__(self, rows: Rows, queue: Ints, position: Ints) -> None:
        """Collect all positions in the events `rows`, and those of other messages, which `queue` and `position` name.

        There may be as many queues as messages, with numbers of 32 bits, so they are renumbered densely.
        """
        self._rows = rows
        self.queues: Ints = distinct(np.r_[queue, rows["queue"]])
        self._first = self._key(rows["queue"], rows["first"])
        self._passive = np.isin(rows["what"], _PASSIVE)
        others = self._key(queue, position)
        active = ~self._passive
        self.known = _union(
            np.r_[self._first[active], others], np.r_[rows["count"][active], np.ones(len(others), np.int64)]
        )
        """The keys of the messages, ascending."""
        self.others: Ints = np.searchsorted(self.known, others)
        """The index of each of the other messages among them."""
        self._place = np.searchsorted(self.known, self._first)

    def _key(self, queue: Ints, position: Ints) -> Ints:
        """Queue and position as one number. There must be fewer than 2 ** 19 queues."""
        number: Ints = np.searchsorted(self.queues, queue) << POSITION_BITS
        return number | position.astype(np.int64)

    def of(self, *what: Happened) -> tuple[Ints, Told, Ints]:
        """Return, for each position in events of these kinds that has a message: the message's index among `known`, the
        event, and the position's index within the event.
        """
        return self.within(np.flatnonzero(np.isin(self._rows["what"], what)))

    def within(self, events: Ints) -> tuple[Ints, Told, Ints]:
        """Return the same for the events with these indexes."""
        owner, inner = ragged(self._rows["count"][events])
        at = events[owner]
        if not self._passive[events].any():
            return self._place[at] + inner, Told(self._rows, at), inner
        key = self._first[at] + inner
        place = np.searchsorted(self.known, key)
        exists = np.flatnonzero(np.r_[self.known, -1][place] == key)
        return place[exists], Told(self._rows, at[exists]), inner[exists]


def _union(first: Ints, count: Ints) -> Ints:
    """Return all numbers in ranges, ascending and each once."""
    order = np.argsort(first, kind="stable")
    begin = first[order]
    end = np.maximum.accumulate(begin + count[order])
    fresh = np.flatnonzero(np.r_[np.ones(min(len(begin), 1), bool), begin[1:] > end[:-1]])
    begin, end = begin[fresh], end[np.r_[fresh[1:], len(end)] - 1] if len(fresh) else end
    owner, inner = ragged(end - begin)
    found: Ints = begin[owner] + inner
    return found
