"""Operations of the admin service.

An operation is a coroutine function with keyword arguments, known by a name such as `queue.list`. It returns a value
for JSON, or a `Listing`. An operation over many objects does its work in steps; see `admin.pieces`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from escrowmq.admin.pieces import Pieces

Row: TypeAlias = dict[str, Any]
"""One object of a listing, for JSON."""
Operation: TypeAlias = Callable[..., Awaitable[Any]]


class OperationRefused(Exception):  # noqa: N818 - named for what happened
    """An operation was refused. The text is for the operator."""


class NothingFound(OperationRefused):
    """The object that an operation shows does not exist."""


class Listing:
    """The rows of a list, made piece by piece while they are read, so that the event loop runs in between.

    The list is not a snapshot: an object that is deleted before its row is made is left out, and an object that is
    created after the listing began does not appear.
    """

    def __init__(self, pieces: Pieces, steps: Iterator[Row | None]) -> None:
        """Each step of `steps` yields a row, or None for a step without a row."""
        self._pieces = pieces
        self._steps = steps

    async def pieces(self) -> AsyncIterator[list[Row]]:
        """Yield the rows in groups; each group is the outcome of one piece of work, and may be empty."""
        while (piece := await self._pieces.piece(self._steps)) is not None:
            yield [row for row in piece if row is not None]

    async def rows(self) -> list[Row]:
        """Return all rows."""
        return [row async for piece in self.pieces() for row in piece]
