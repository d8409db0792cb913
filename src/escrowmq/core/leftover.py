"""Requests whose clients are gone before their end, and which must be carried through: large commits."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from escrowmq.core.budget import Budget


class LeftOver:
    """The rests of such requests. They are done in order, in turns with budget left."""

    __slots__ = ("_rests",)

    def __init__(self) -> None:
        self._rests: deque[Iterator[None]] = deque()

    def __bool__(self) -> bool:
        return bool(self._rests)

    def add(self, rest: Iterator[None]) -> None:
        """Take over the rest of a request, which yields whenever the turn's budget is used up."""
        self._rests.append(rest)

    def step(self, requests: Budget) -> None:
        """Do a piece, as far as the budget allows."""
        while self._rests and requests.left > 0:
            for _ in self._rests[0]:
                return
            self._rests.popleft()
