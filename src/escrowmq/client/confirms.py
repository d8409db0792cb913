"""Publisher confirms: tracks which publishes of a channel the broker has confirmed or refused."""

from __future__ import annotations


class Confirms:
    """The confirms of one channel. Publishes are numbered from 1.

    The broker confirms them one by one in any order, or all up to a number.
    """

    __slots__ = ("_above", "floor", "nacked", "published")

    def __init__(self) -> None:
        self.published = 0
        self.floor = 0
        """Every publish up to this number is confirmed or refused."""
        self.nacked: list[int] = []
        self._above: set[int] = set()

    @property
    def complete(self) -> bool:
        """Whether every publish is confirmed or refused."""
        return self.floor >= self.published

    def settle(self, tag: int, *, multiple: bool, refused: bool) -> None:
        """Record a basic.ack, or with `refused` a basic.nack."""
        if multiple:
            last = tag or self.published
            if refused:
                self.nacked += [n for n in range(self.floor + 1, last + 1) if n not in self._above]
            self.floor = max(self.floor, last)
            self._above = {n for n in self._above if n > last}
        else:
            if refused:
                self.nacked.append(tag)
            self._above.add(tag)
        while self.floor + 1 in self._above:
            self.floor += 1
            self._above.remove(self.floor)

    def take_nacked(self) -> list[int]:
        """Return the numbers of the refused publishes since the last call."""
        nacked, self.nacked = self.nacked, []
        return nacked
