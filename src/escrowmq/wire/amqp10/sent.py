"""The deliveries of a session to its peer: from the numbers of the session to links, and to the numbers of a link.

Delivery numbers belong to the session, but unsettled deliveries to the link's terminus. Consecutive deliveries of one
link form a stretch, so a session with one consuming link has one stretch, however many deliveries it has sent.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from escrowmq.wire.amqp10.outgoing import ConsumerLink

BLOCK: Final = 512


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


class _Block:
    """Some stretches in order, and their first numbers."""

    __slots__ = ("firsts", "stretches")

    def __init__(self) -> None:
        self.stretches: list[_Stretch] = []
        self.firsts: list[int] = []


class SentDeliveries:
    """The unsettled deliveries of one session, by stretches of consecutive numbers.

    They are kept in blocks of at most `BLOCK` stretches, so that no step costs more the more there are. Only a single
    block may be empty.
    """

    __slots__ = ("_blocks", "_starts")

    def __init__(self) -> None:
        self._blocks = [_Block()]
        self._starts = [0]  # for each block, a number between the last one of the block before and its first one

    def __len__(self) -> int:
        """Return the number of stretches that are kept."""
        return sum([len(block.stretches) for block in self._blocks])

    def add(self, first: int, count: int, link: ConsumerLink, number: int) -> None:
        """Note `count` deliveries of `link`, which call the first one `number`."""
        block = self._blocks[-1]
        if block.stretches:
            last = block.stretches[-1]
            if last.link is link and last.first + last.count == first and last.number + last.count == number:
                last.count += count
                last.left += count
                return
        if len(block.stretches) >= BLOCK:
            block = _Block()
            self._blocks.append(block)
            self._starts.append(first)
        block.stretches.append(_Stretch(first, count, link, number))
        block.firsts.append(first)

    def find(self, first: int, last: int) -> Iterator[Part]:
        """Yield the parts of the range from `first` to `last` that may be unsettled. Deliveries may be settled
        meanwhile.
        """
        while first <= last:
            stretch = self._from(first)
            if stretch is None or stretch.first > last:
                return
            low, high = max(first, stretch.first), min(last, stretch.first + stretch.count - 1)
            first = high + 1
            yield Part(stretch.link, low, high, stretch.number + low - stretch.first)

    def _from(self, number: int) -> _Stretch | None:
        """Return the stretch that has `number`, or otherwise the one that follows it."""
        at, i = self._locate(number)
        stretches = self._blocks[at].stretches
        if i >= 0 and number < stretches[i].first + stretches[i].count:
            return stretches[i]
        if i + 1 < len(stretches):
            return stretches[i + 1]
        return self._blocks[at + 1].stretches[0] if at + 1 < len(self._blocks) else None

    def _locate(self, number: int) -> tuple[int, int]:
        """Return the number of the block where `number` belongs, and that of the last stretch in it that does not begin
        behind `number`: -1 if there is none.
        """
        at = bisect_right(self._starts, number) - 1 if len(self._blocks) > 1 else 0
        return at, bisect_right(self._blocks[at].firsts, number) - 1

    def settled(self, first: int, count: int) -> None:
        """Note that `count` deliveries of the stretch with number `first` are settled. A stretch without others is
        forgotten.
        """
        at, i = self._locate(first)
        block = self._blocks[at]
        if i < 0 or first >= block.stretches[i].first + block.stretches[i].count:
            return
        block.stretches[i].left -= count
        if block.stretches[i].left <= 0:
            del block.stretches[i], block.firsts[i]
            if not block.stretches:
                self._drop(at)

    def _drop(self, at: int) -> None:
        """Forget block number `at`, which is empty."""
        if len(self._blocks) > 1:
            del self._blocks[at], self._starts[at]
            self._starts[0] = 0

    def forget(self, link: ConsumerLink) -> None:
        """Forget the deliveries of `link`, whose terminus is gone."""
        for at in range(len(self._blocks) - 1, -1, -1):
            block = self._blocks[at]
            block.stretches = [stretch for stretch in block.stretches if stretch.link is not link]
            block.firsts = [stretch.first for stretch in block.stretches]
            if not block.stretches:
                self._drop(at)

    def clear(self) -> None:
        """Forget everything."""
        self._blocks, self._starts = [_Block()], [0]
