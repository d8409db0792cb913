"""Messages that browsing subscriptions were shown, by the numbers of their transfers. The client may acquire them."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.queues.queue import Queue

MOST: Final = 10_000
"""Runs of shown messages that a session remembers. Older ones cannot be acquired any more."""
RUN_BYTES: Final = 150
"""The estimated memory of a run."""


class ShownRun(NamedTuple):
    """Messages at consecutive positions of a queue, with consecutive numbers."""

    first: int
    queue: Queue
    position: int
    length: int


class Shown:
    """What browsing subscriptions of one session were shown, in order of the numbers."""

    __slots__ = ("_firsts", "_runs")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._runs: list[ShownRun] = []

    def __len__(self) -> int:
        """The number of runs."""
        return len(self._runs)

    def add(self, first: int, queue: Queue, entries: list[Entry]) -> None:
        """Note that `entries` were shown, with numbers from `first` on, which is greater than all numbers before."""
        for number, entry in enumerate(entries, first):
            if self._runs:
                last = self._runs[-1]
                if (
                    last.queue is queue
                    and last.position + last.length == entry.position
                    and last.first + last.length == number
                ):
                    self._runs[-1] = last._replace(length=last.length + 1)
                    continue
            self._firsts.append(number)
            self._runs.append(ShownRun(number, queue, entry.position, 1))
        if len(self._runs) > MOST:
            del self._firsts[: -MOST // 2], self._runs[: -MOST // 2]

    def take(self, first: int, last: int, most: int) -> tuple[list[ShownRun], int]:
        """Remove the messages with numbers from `first` to `last`, at most `most` of them. Return them, and the number
        from which on others may follow.
        """
        begin = end = max(bisect_right(self._firsts, first) - 1, 0)
        found: list[ShownRun] = []
        rest: list[ShownRun] = []
        for at in range(begin, len(self._runs)):
            run = self._runs[at]
            if run.first > last or most <= 0:
                break
            end = at + 1
            low, high = max(first - run.first, 0), min(last + 1 - run.first, run.length)
            high = min(high, low + most)
            if low >= high:
                rest.append(run)
                continue
            found.append(_part(run, low, high))
            most -= high - low
            rest += [_part(run, *place) for place in ((0, low), (high, run.length)) if place[0] < place[1]]
        self._runs[begin:end] = rest
        self._firsts[begin:end] = [run.first for run in rest]
        if most > 0 or not found:
            return found, last + 1
        return found, found[-1].first + found[-1].length

    def clear(self) -> None:
        """Forget everything."""
        self._firsts.clear()
        self._runs.clear()


def _part(run: ShownRun, low: int, high: int) -> ShownRun:
    return run._replace(first=run.first + low, position=run.position + low, length=high - low)
