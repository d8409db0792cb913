"""The posts of a session that were answered and that the client has not settled: runs of tags, by delivery number.

Consecutive posts of one link form a run, so they are kept and settled together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from escrowmq.wire.amqp10.answers import MASK

if TYPE_CHECKING:
    from escrowmq.wire.amqp10.incoming import ProducerLink

_LONGEST: Final = 1000
"""Posts of a run from which on it is not continued, so that a settlement within a run remains cheap."""
_CYCLE: Final = MASK + 1


class _PostRun:
    """Posts from number `first` on, which counts without end. None is in the place of a settled one."""

    __slots__ = ("first", "left", "link", "tags")

    def __init__(self, first: int, tags: list[bytes | None], link: ProducerLink) -> None:
        self.first = first
        self.tags = tags
        self.left = len(tags)  # unsettled ones
        self.link = link


class Posts:
    """The unsettled posts of one session, whose numbers rise, except those of a client that breaks the rules."""

    __slots__ = ("_firsts", "_next", "_runs")

    def __init__(self) -> None:
        self._runs: list[_PostRun] = []
        self._firsts: list[int] = []
        self._next = 0  # the least number that the next post can have

    def __len__(self) -> int:
        return sum([run.left for run in self._runs])

    def add(self, link: ProducerLink, number: int, tags: Sequence[bytes]) -> None:
        """Note posts of `link` with these tags, of which the first has this number on the wire."""
        first = self._next + ((number - self._next) & MASK)
        self._next = first + len(tags)
        last = self._runs[-1] if self._runs else None
        if (
            last is not None
            and last.link is link
            and last.first + len(last.tags) == first
            and len(last.tags) < _LONGEST
        ):
            last.tags += tags
            last.left += len(tags)
            return
        self._runs.append(_PostRun(first, [*tags], link))
        self._firsts.append(first)

    def settle(self, number: int, count: int) -> list[tuple[ProducerLink, list[bytes]]]:
        """Remove the posts with `count` numbers from `number` on, and return their tags by link."""
        found: dict[ProducerLink, list[bytes]] = {}
        if not self._runs:
            return []
        oldest = self._firsts[0]
        low = oldest - ((oldest - number) & MASK)
        while low < self._next:
            self._settle(low, low + count - 1, found)
            low += _CYCLE
        return list(found.items())

    def _settle(self, low: int, high: int, found: dict[ProducerLink, list[bytes]]) -> None:
        begin = max(bisect_right(self._firsts, low) - 1, 0)
        emptied = False
        for run in islice(self._runs, begin, None):
            if run.first > high:
                break
            start, end = max(low - run.first, 0), min(high + 1 - run.first, len(run.tags))
            some = [tag for tag in run.tags[start:end] if tag is not None]
            if not some:
                continue
            found.setdefault(run.link, []).extend(some)
            run.left -= len(some)
            emptied = emptied or not run.left
            if run.left:
                run.tags[start:end] = [None] * (end - start)
        if emptied:
            self._keep([run for run in self._runs if run.left])

    def forget(self, link: ProducerLink) -> None:
        """Forget the posts of `link`, whose terminus is gone."""
        self._keep([run for run in self._runs if run.link is not link])

    def clear(self) -> None:
        """Forget everything."""
        self._keep([])

    def _keep(self, runs: list[_PostRun]) -> None:
        self._runs = runs
        self._firsts = [run.first for run in runs]
