"""The age limit of transactions (TX-13), at no cost for transactions that end in time."""

from __future__ import annotations

from collections.abc import Callable

from escrowmq.core.deadlines import Deadline, Deadlines


class Watch:
    """Enforces the age limit of successive branches, such as those of one channel, with a single deadline.

    The deadline is set again only when it has passed, so a branch that ends in time costs nothing.
    """

    __slots__ = ("_deadline", "_deadlines", "_expired", "_limit", "since")

    def __init__(self, deadlines: Deadlines, limit: int, expired: Callable[[], None]) -> None:
        """Call `expired` when a branch is older than `limit` milliseconds; 0: never."""
        self._deadlines = deadlines
        self._limit = limit
        self._expired = expired
        self._deadline: Deadline | None = None
        self.since: int | None = None  # time of the present branch's first work

    def start(self, now: int) -> None:
        """Start measuring the age of the present branch, which got its first work."""
        self.since = now
        if self._limit and self._deadline is None:
            self._deadline = self._deadlines.set(now + self._limit, self._look)

    def stop(self) -> None:
        """Stop measuring: the present branch has ended."""
        self.since = None

    def close(self) -> None:
        """Cancel the deadline: no further branches follow. The watch no longer refers to the owner of the branches."""
        self.since = None
        self._expired = _nothing
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


def _nothing() -> None:
    """No branch follows whose age could be exceeded."""
