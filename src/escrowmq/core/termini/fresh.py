"""The contents of messages that have just arrived, in place of their fingerprints.

Most senders settle a message soon after it has arrived, and its fingerprint is never compared with another one. It is
therefore computed only for messages that stay unsettled while many others arrive.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

FRESH_BYTES: Final = 2 * 1024 * 1024
"""Bytes of contents that are kept for all termini together."""
_ENTRY_BYTES: Final = 64  # a message's share, apart from its content


class FreshTags(Protocol):
    """The tags of one terminus (`arrivals.Arrivals`)."""

    def digest(self, tags: Sequence[bytes]) -> None:
        """Replace the contents of those messages that are still unsettled by their fingerprints."""
        ...


class FreshContents:
    """The latest messages of all termini, in the order in which they arrived."""

    __slots__ = ("_limit", "_runs", "_size")

    def __init__(self, limit: int = FRESH_BYTES) -> None:
        """`limit` is in bytes."""
        self._limit = limit
        self._runs: deque[tuple[FreshTags, Sequence[bytes], int]] = deque()
        self._size = 0

    def add(self, arrivals: FreshTags, tags: Sequence[bytes], contents: Sequence[bytes]) -> None:
        """Note messages whose contents `arrivals` keeps. The oldest messages beyond the limit are digested."""
        size = sum(map(len, contents)) + _ENTRY_BYTES * len(contents)
        self._runs.append((arrivals, tags, size))
        self._size += size
        while self._size > self._limit:
            oldest, some, size = self._runs.popleft()
            self._size -= size
            oldest.digest(some)
