"""Bytes that were read and wait, because their connections are held back: bounded in all, and for each user.

They are not counted in `limits.held_memory_per_user`: a user at that limit gets no deliveries, so a burst of publishes
during an alarm would stop the user's consumers, which free memory. Instead, connections are read in small pieces while
the limit is reached, so that hardly more is kept. Nobody is refused or stopped for it.
"""

from __future__ import annotations

from collections import Counter

_OF_ONE = 2  # the share of one user: one in so many bytes


class HeldBack:
    """The bytes that wait, for all connections of a server. A limit of 0 is none."""

    __slots__ = ("_of_user", "_user_limit", "bytes", "limit")

    def __init__(self, limit_bytes: int) -> None:
        self.limit = limit_bytes
        self._user_limit = limit_bytes // _OF_ONE
        self._of_user: Counter[str] = Counter()
        self.bytes = 0

    def change(self, user: str, size: int) -> None:
        """Add `size` bytes of a connection of `user`, which may be negative."""
        self.bytes += size
        total = self._of_user[user] + size
        if total:
            self._of_user[user] = total
        else:
            del self._of_user[user]

    def full(self, user: str) -> bool:
        """Return whether connections of `user` must be read in small pieces."""
        if not self.limit or self.bytes < self._user_limit:
            return False
        return self.bytes >= self.limit or self._of_user[user] >= self._user_limit
