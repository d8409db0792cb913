"""The deliveries of a session to its peer: from the numbers of the session to links, and to the numbers of a link.

Delivery numbers belong to the session, but unsettled deliveries to the link's terminus. Consecutive deliveries of one
link form a stretch, so a session with one consuming link has one stretch, however many deliveries it has sent.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from escrowmq.wire.amqp10.outgoing import ConsumerLink

_GHOSTS: Final = 32


class Part(NamedTuple):
    """Deliveries of one link. `first` and `last` are numbers of the session, `number` is the link's number for
    `first`.
    """

    link: ConsumerLink
    first: int
    last: int
    number: int


class _Stretch:
    __slots__ = ("count", "first", "left", "link", "number")

    def __init__(self, first: int, count: int, link: ConsumerLink, number: int) -> None:
        self.first = first
        self.count = count
        self.left = count  # unsettled ones
        self.link = link
        self.number = number


class SentDeliveries:
    """The unsettled deliveries of one session, by stretches of consecutive numbers."""

    __slots__ = ("_firsts", "_stretches")

    def __init__(self) -> None:
        self._stretches: list[_Stretch] = []
        self._firsts: list[int] = []

    def __len__(self) -> int:
        """Return the number of stretches that are kept."""
        return len(self._stretches)

    def add(self, first: int, count: int, link: ConsumerLink, number: int) -> None:
        """Note `count` deliveries of `link`, which call the first one `number`."""
        if self._stretches:
            last = self._stretches[-1]
            if last.link is link and last.first + last.count == first and last.number + last.count == number:
                if not last.left:  # nothing before the new deliveries is unsettled
                    last.first = self._firsts[-1] = first
                    last.number, last.count = number, 0
                last.count += count
                last.left += count
                return
        self._stretches.append(_Stretch(first, count, link, number))
        self._firsts.append(first)
        if len(self._stretches) > _GHOSTS:
            self._prune()

    def find(self, first: int, last: int) -> Iterator[Part]:
        """Yield the parts of the range from `first` to `last` that may be unsettled."""
        begin = max(bisect_right(self._firsts, first) - 1, 0)
        for stretch in list(islice(self._stretches, begin, None)):
            if stretch.first > last:
                return
            low, high = max(first, stretch.first), min(last, stretch.first + stretch.count - 1)
            if low <= high and stretch.left:
                yield Part(stretch.link, low, high, stretch.number + low - stretch.first)

    def settled(self, first: int, count: int) -> None:
        """Note that `count` deliveries of the stretch with number `first` are settled. The stretch may be forgotten."""
        i = bisect_right(self._firsts, first) - 1
        if i >= 0 and first < self._stretches[i].first + self._stretches[i].count:
            self._stretches[i].left -= count

    def forget(self, link: ConsumerLink) -> None:
        """Forget the deliveries of `link`, whose terminus is gone."""
        self._stretches = [stretch for stretch in self._stretches if stretch.link is not link]
        self._firsts = [stretch.first for stretch in self._stretches]

    def clear(self) -> None:
        """Forget everything."""
        self._stretches.clear()
        self._firsts.clear()

    def _prune(self) -> None:
        """Forget the stretches without unsettled deliveries, if most are."""
        living = [stretch for stretch in self._stretches if stretch.left]
        if 2 * len(living) < len(self._stretches):
            self._stretches = living
            self._firsts = [stretch.first for stretch in living]
