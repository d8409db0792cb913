"""The port to a replicated log: append, read, trim, and where it begins and ends. Each engine has an adapter for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol


class StoredEntry(NamedTuple):
    """An entry of the log. Positions of entries that follow each other differ by one."""

    position: int
    data: bytes


class ReplicatedLog(Protocol):
    """A log that many nodes append to and read. All calls but `send` block, so they belong to a thread of their own.

    Every method raises OSError if the log cannot be reached within its deadline.
    """

    def append(self, entries: Sequence[bytes]) -> list[int]:
        """Append entries in order, and wait until a quorum has them. Return the position of each.

        Entries of other nodes may be between them.

        Raises:
            AppendUnknown: There was no answer within the deadline.
        """
        ...

    def send(self, entries: Sequence[bytes]) -> Callable[[], list[int]]:
        """Begin to append entries, and return a function that does the rest of `append`. It is to be called once."""
        ...

    def read(self, position: int, most: int) -> list[StoredEntry]:
        """Return at most `most` entries that a quorum has, in order, from `position` on; none at the end of the log.

        If entries from `position` on were trimmed, return none, or those from the oldest one on.
        """
        ...

    def glance(self, position: int, most: int) -> list[StoredEntry]:
        """Return what `read` returns, or a part of that, without finding out whether there is more.

        It takes the log a fraction of the work of `end` and `read`, and it does not wait for long.
        """
        ...

    def begin(self) -> int:
        """Return the position of the oldest entry; `end()` if there is none."""
        ...

    def end(self) -> int:
        """Return the position behind the newest entry that a quorum has."""
        ...

    def trim(self, before: int) -> None:
        """Delete all entries before a position. Afterwards, the log begins there, or where it began before."""
        ...
