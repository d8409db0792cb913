"""The contents of messages that have just arrived, in place of their fingerprints.

Most senders settle a message soon after it has arrived, and its fingerprint is never compared with another one. It is
therefore computed only for messages that stay unsettled while many others arrive.
"""

from __future__ import annotations

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

    __slots__ = ("_first", "_limit", "_next", "_owned", "_runs", "_size")

    def __init__(self, limit: int = FRESH_BYTES) -> None:
        """`limit` is in bytes."""
        self._limit = limit
        self._runs: dict[int, tuple[FreshTags, Sequence[bytes], int]] = {}  # numbered in their order
        self._first = self._next = 0
        self._owned: dict[FreshTags, dict[int, None]] = {}  # the numbers of the runs of each terminus
        self._size = 0

    def add(self, arrivals: FreshTags, tags: Sequence[bytes], contents: Sequence[bytes]) -> None:
        """Note messages whose contents `arrivals` keeps. The oldest messages beyond the limit are digested."""
        size = sum(map(len, contents)) + _ENTRY_BYTES * len(contents)
        number = self._next
        self._next = number + 1
        self._runs[number] = arrivals, tags, size
        self._owned.setdefault(arrivals, {})[number] = None
        self._size += size
        while self._size > self._limit:
            number = self._first
            self._first = number + 1
            run = self._runs.pop(number, None)
            if run is not None:
                oldest, some, size = run
                self._size -= size
                owned = self._owned[oldest]
                del owned[number]
                if not owned:
                    del self._owned[oldest]
                oldest.digest(some)

    def forget(self, arrivals: FreshTags) -> None:
        """Forget the messages of a terminus that is gone, so that its memory is free at once."""
        for number in self._owned.pop(arrivals, ()):
            self._size -= self._runs.pop(number)[2]
