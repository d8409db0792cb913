"""Seeing to the age of transactions (TX-13), cheaply for the many that end in time."""

from __future__ import annotations

from collections.abc import Callable

from escrowmq.core.deadlines import Deadline, Deadlines


class Watch:
    """Sees to the age of one branch after the other, those of a channel say, with one deadline for all of them.

    It looks again when the oldest age that it knows of has come, so that a branch that ends in time costs nothing.
    """

    __slots__ = ("_deadline", "_deadlines", "_expired", "_limit", "since")

    def __init__(self, deadlines: Deadlines, limit: int, expired: Callable[[], None]) -> None:
        """`expired` is called when a branch is older than `limit` milliseconds; 0: never."""
        self._deadlines = deadlines
        self._limit = limit
        self._expired = expired
        self._deadline: Deadline | None = None
        self.since: int | None = None  # when the present branch got its first work

    def start(self, now: int) -> None:
        """The present branch got its first work."""
        self.since = now
        if self._limit and self._deadline is None:
            self._deadline = self._deadlines.set(now + self._limit, self._look)

    def stop(self) -> None:
        """The present branch has ended."""
        self.since = None

    def close(self) -> None:
        """No further branches."""
        self.since = None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _look(self) -> None:
        deadline, self._deadline = self._deadline, None
        if self.since is None or deadline is None:
            return
        if self.since + self._limit <= deadline.at:
            self._expired()
        else:
            self._deadline = self._deadlines.set(self.since + self._limit, self._look)
