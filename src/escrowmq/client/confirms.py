"""Which publishes of a channel the broker has answered for."""

from __future__ import annotations


class Confirms:
    """Publishes are numbered from 1. Confirms may come one by one, in any order, or for all up to a number."""

    __slots__ = ("_above", "floor", "nacked", "published")

    def __init__(self) -> None:
        self.published = 0
        self.floor = 0
        """All up to this number are answered for."""
        self.nacked: list[int] = []
        self._above: set[int] = set()

    @property
    def complete(self) -> bool:
        """Whether nothing is waiting."""
        return self.floor >= self.published

    def settle(self, tag: int, *, multiple: bool, refused: bool) -> None:
        """A basic.ack, or a basic.nack (`refused`)."""
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
        """The refused ones that were not yet taken."""
        nacked, self.nacked = self.nacked, []
        return nacked
