"""Transfers that the client has not completed yet. Completion restores the credit of subscriptions in window mode."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from escrowmq.core.queues.consumer import Consumer

RUN_BYTES: Final = 120
"""The estimated memory of a run, apart from the sizes of its transfers."""
_SIZE_BYTES: Final = 36


class CreditWindow:
    """The transfers to one consumer whose completion restores credit: those since its credit was last set to zero. It
    is not `open` any more when that happens again.
    """

    __slots__ = ("consumer", "open")

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.open = True


class Completion(NamedTuple):
    """Transfers of one window that were completed. `size` is 0 if the consumer had no credit in bytes."""

    window: CreditWindow
    transfers: int
    size: int


class _Run:
    """Consecutive transfers of one window. `sizes` are those of the transfers, if they were limited in bytes."""

    __slots__ = ("count", "sizes", "window")

    def __init__(self, window: CreditWindow, count: int, sizes: list[int] | None) -> None:
        self.window = window
        self.count = count
        self.sizes = sizes


class InFlight:
    """Transfers by the numbers of their commands, in runs. Memory is proportional to the number of runs, and of
    transfers that are limited in bytes.
    """

    __slots__ = ("_firsts", "_runs", "_sized")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._runs: list[_Run] = []
        self._sized = 0

    def __len__(self) -> int:
        """The number of runs."""
        return len(self._runs)

    @property
    def bytes(self) -> int:
        """The estimated memory."""
        return RUN_BYTES * len(self._runs) + _SIZE_BYTES * self._sized

    def add(self, first: int, window: CreditWindow, count: int, sizes: list[int] | None) -> None:
        """Add transfers with consecutive numbers from `first` on, which is greater than all numbers before."""
        if self._runs and sizes is None:
            last = self._runs[-1]
            if last.window is window and last.sizes is None and self._firsts[-1] + last.count == first:
                last.count += count
                return
        self._firsts.append(first)
        self._runs.append(_Run(window, count, sizes))
        self._sized += len(sizes) if sizes is not None else 0

    def complete(self, first: int, last: int) -> list[Completion]:
        """Remove the transfers with numbers from `first` to `last`, and return what was completed."""
        begin = end = max(bisect_right(self._firsts, first) - 1, 0)
        found: list[Completion] = []
        rest: list[tuple[int, _Run]] = []
        for at in range(begin, len(self._runs)):
            start, run = self._firsts[at], self._runs[at]
            if start > last:
                break
            end = at + 1
            low, high = max(first - start, 0), min(last + 1 - start, run.count)
            if low >= high:
                rest.append((start, run))
                continue
            sizes = run.sizes
            done = 0 if sizes is None else sum(sizes[low:high])
            self._sized -= high - low if sizes is not None else 0
            found.append(Completion(run.window, high - low, done))
            if low:
                rest.append((start, _Run(run.window, low, None if sizes is None else sizes[:low])))
            if high < run.count:
                after = None if sizes is None else sizes[high:]
                rest.append((start + high, _Run(run.window, run.count - high, after)))
        self._firsts[begin:end] = [number for number, _ in rest]
        self._runs[begin:end] = [run for _, run in rest]
        return found

    def clear(self) -> None:
        """Forget everything."""
        self._firsts.clear()
        self._runs.clear()
        self._sized = 0
