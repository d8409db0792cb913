"""Work that no client drives: the rest of requests that must be carried through, such as commits and rollbacks."""

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
    """The rests of such requests. They are done in order, in turns with budget left, and use at most half of it."""

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
        others = max(requests.left, 0) // 2
        requests.left -= others
        while self._rests and requests.left > 0:
            for _ in self._rests[0]:
                requests.left = 0
                break
            else:
                self._rests.popleft()
        requests.left += others


def freed(objects: list[Any], most: int = FREED) -> Iterator[None]:
    """Free the memory of a list of objects, at most `most` in each step. The list belongs to this function from now
    on.
    """
    while objects:
        del objects[-most:]  # a copy of the list would touch every object
        yield
