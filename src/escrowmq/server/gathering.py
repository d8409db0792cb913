"""Which batches of the journal wait for the clients that have just been answered.

Clients that send one request after the other come back at once. If a sync is slow, those of one batch come back while
the next batch is written, so that two halves of the clients take turns, and each half pays for its own sync. A batch
that waits a moment has them all.
"""

from __future__ import annotations

from typing import Final

SLOW_US: Final = 1000
"""The duration of a sync from which on it is worth a wait."""
FEW_RECORDS: Final = 8
"""With fewer records in a batch, hardly anybody comes back."""
MOST_BYTES: Final = 65_536
"""A larger batch takes long because of its size, and its publishers do not wait for single answers."""
SHARE: Final = 0.7
"""The part of a sync's duration that the next batch waits at most."""
MOST_SECONDS: Final = 0.004
MOST_SKIPPED: Final = 64
"""The most batches that do not wait before one tries again."""

_WHOLE: Final = 0.9
"""The part of the last batch's bytes with which its clients are taken to be back."""
_WORTH: Final = 0.75
"""The same, for a wait that was worth its time."""


class Gathering:
    """Learns from each wait whether clients come back in time. If they do not, ever fewer batches wait."""

    def __init__(self) -> None:
        self._before = self._size = 0
        self._skips = 0
        self._left = 0
        """The batches that do not wait before one tries again."""

    def begin(self, records: int, size: int, sync_us: int, pending: int) -> float:
        """Return the seconds that the next batch shall wait at most; 0 if it shall not.

        The one that was just synced had so many records and bytes, and took `sync_us` microseconds, at least `SLOW_US`.
        `pending` bytes are there for the next one.
        """
        if records < FEW_RECORDS or max(size, pending) > MOST_BYTES:
            return 0.0
        if self._left:
            self._left -= 1
            return 0.0
        self._before, self._size = pending, size
        return min(sync_us * SHARE / 1e6, MOST_SECONDS)

    def is_whole(self, pending: int) -> bool:
        """Whether the clients are back, when `pending` bytes are there for the next batch."""
        return pending - self._before >= self._size * _WHOLE

    def end(self, pending: int) -> None:
        """Learn from a wait that has ended with so many bytes for the next batch."""
        worth = pending - self._before >= self._size * _WORTH
        self._skips = 0 if worth else min(2 * self._skips + 1, MOST_SKIPPED)
        self._left = self._skips
