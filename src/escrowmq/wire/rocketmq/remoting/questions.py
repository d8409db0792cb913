"""Requests of the broker's own to which a client responds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from escrowmq.core.deadlines import Deadline
    from escrowmq.wire.rocketmq.remoting.connection import RemotingConnection
    from escrowmq.wire.rocketmq.remoting.frames import Command

PATIENCE_MS: Final = 10_000
MOST: Final = 64
"""Requests of one connection that wait for a response; further ones get none."""

Answered: TypeAlias = "Callable[[Command | None], None]"
"""Called with the response, or with None if there is none in time."""


class _Question(NamedTuple):
    answered: Answered
    deadline: Deadline


class Questions:
    """The requests that were sent to one client, by number."""

    __slots__ = ("_connection", "_open")

    def __init__(self, connection: RemotingConnection) -> None:
        self._connection = connection
        self._open: dict[int, _Question] = {}

    def add(self, number: int, answered: Answered) -> bool:
        """Wait for the response to a request. Return False if there are too many; then `answered` was called."""
        if len(self._open) >= MOST:
            answered(None)
            return False
        engine = self._connection.engine
        deadline = engine.deadlines.set(engine.now + PATIENCE_MS, lambda: self._end(number, None))
        self._open[number] = _Question(answered, deadline)
        return True

    def answer(self, response: Command) -> None:
        """Take a response. One that nobody waits for is ignored."""
        self._end(response.opaque, response)

    def close(self) -> None:
        """Give up all requests, because the client is gone."""
        for number in list(self._open):
            self._end(number, None)

    def _end(self, number: int, response: Command | None) -> None:
        question = self._open.pop(number, None)
        if question is not None:
            question.deadline.cancel()
            question.answered(response)
