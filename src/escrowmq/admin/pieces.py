"""Work in pieces: operations over many objects share the event loop with the broker's clients.

Such an operation is a generator that yields after each step, a small and bounded amount of work such as one queue's
row. A *piece* is at most `STEPS` steps. One piece is done in each iteration of the event loop; several operations take
turns, and after `BURST` pieces all of them pause. Pieces are measured by counting steps, not by time, so that an
operation is always divided at the same places.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from itertools import islice
from typing import Final, TypeVar

from escrowmq.admin.ports import BrokerProcess

T = TypeVar("T")

STEPS: Final = 10
"""Steps in one piece. A step takes 5 to 20 µs. A message that arrives meanwhile waits that much longer, so with longer
pieces the polls of a monitoring system show in the latency of other clients (`bench/http_lists.py`).
"""
BURST: Final = 4
PAUSE_SECONDS: Final = 0.001
"""The pause after so many pieces. Without pauses, a long list occupies the loop without end, so that every message that
arrives meanwhile waits for pieces, and the system takes the processor from the broker as from any program that
computes. uvloop has no shorter pauses.
"""


class Pieces:
    """Cuts operations into pieces and gives each piece its turn. All operations of a service share one object."""

    def __init__(self, steps: int = STEPS) -> None:
        self._steps = steps
        self._turn = asyncio.Lock()
        self._burst = 0  # pieces since the last pause

    async def piece(self, work: Iterator[T]) -> list[T] | None:
        """Do the next piece of `work` in a separate iteration of the loop. Return its yields, or None at the end."""
        async with self._turn:
            self._burst = (self._burst + 1) % BURST
            await asyncio.sleep(0 if self._burst else PAUSE_SECONDS)
            return list(islice(work, self._steps)) or None

    async def result(self, work: Generator[object, None, T]) -> T:
        """Do all of `work`, piece by piece, and return its return value."""
        returned: list[T] = []
        noting = _noting(work, returned)
        while await self.piece(noting) is not None:
            pass
        return returned[0]


async def carried_out(process: BrokerProcess, request: Generator[object, None, T]) -> T:
    """Return the result of a request of the core that is carried out in pieces (`core.branches.large_requests`), one
    piece in each turn.
    """
    requests = process.broker.engine.requests
    while True:
        process.begin()
        requests.admit()
        try:
            while not next(request) and requests.left > 0:
                pass
        except StopIteration as end:
            result: T = end.value
            return result
        await process.turn()


def _noting(work: Generator[object, None, T], returned: list[T]) -> Generator[object, None, None]:
    returned.append((yield from work))
