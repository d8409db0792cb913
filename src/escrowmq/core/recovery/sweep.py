"""Visits to many objects that change meanwhile, in pieces: until the last visits to all of them fit into one piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Sweep(Generic[T]):
    """One sweep over the objects that `every` returns. `passes` counts how often it began with the first of some.

    `visit` gets an object, the place in it to go on from (0: its beginning) and the cost that may be reached. It
    returns the cost, at least 1, and the place to go on from (0: the object is done). A visit to an object that has
    not changed is cheap.
    """

    __slots__ = ("_at", "_every", "_visit", "_waiting", "passes")

    def __init__(self, every: Callable[[], Sequence[T]], visit: Callable[[T, int, int], tuple[int, int]]) -> None:
        self._every = every
        self._visit = visit
        self._waiting: list[T] = []
        self._at = 0
        self.passes = 0

    def step(self, most: int) -> int:
        """Visit objects until the cost reaches `most`, and return it. If it is less, each object was visited in this
        step, and the sweep has ended.
        """
        spent = 0
        begun = False
        while True:
            while self._waiting:
                cost, self._at = self._visit(self._waiting[-1], self._at, most - spent)
                spent += cost
                if not self._at:
                    self._waiting.pop()
                if spent >= most:
                    return spent
            if begun:
                return spent
            begun = True
            self._waiting = list(reversed(self._every()))
            self.passes += bool(self._waiting)
