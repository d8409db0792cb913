"""Work that no client drives: the rest of requests that must be carried through, such as commits, deletions, and
publishes to very many queues.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from escrowmq.core.budget import Budget


FREED: Final = 5000
"""Objects that are freed in one step."""
WAIT: Final = True
"""A request yields this if it can only go on in a later turn."""


class LeftOver:
    """The rests of such requests. They are done in turns with budget left, and use at most half of it.

    Rests that were added are done in order. Those that began here take turns, so that none waits for a large one.
    """

    __slots__ = ("_begun", "_rests")

    def __init__(self) -> None:
        self._rests: deque[Iterator[None]] = deque()
        self._begun: deque[Iterator[None]] = deque()

    def __bool__(self) -> bool:
        return bool(self._rests or self._begun)

    def add(self, rest: Iterator[None]) -> None:
        """Take over the rest of a request, which yields whenever the turn's budget is used up."""
        self._rests.append(rest)

    def begin(self, work: Iterator[None]) -> None:
        """Do work until it yields, because the turn's budget is used up. Take over the rest."""
        for _ in work:
            self._begun.append(work)
            break

    def step(self, requests: Budget) -> None:
        """Do a piece, as far as the budget allows."""
        others = max(requests.left, 0) // 2
        requests.left -= others
        if self._rests and self._begun:
            share = max(requests.left, 0) // 2
            requests.left -= share
            self._piece(self._begun, requests)
            requests.left += share
        self._piece(self._rests or self._begun, requests)
        requests.left += others

    def _piece(self, works: deque[Iterator[None]], requests: Budget) -> None:
        while works and requests.left > 0:
            for _ in works[0]:
                requests.left = 0
                if works is self._begun:
                    works.rotate(-1)
                break
            else:
                works.popleft()


def freed(objects: list[Any], most: int = FREED) -> Iterator[None]:
    """Free the memory of a list of objects, at most `most` in each step. The list belongs to this function from now
    on.
    """
    while objects:
        del objects[-most:]  # a copy of the list would touch every object
        yield
