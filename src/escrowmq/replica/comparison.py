"""Finds out whether the log still is what a node has read, when an entry raises a doubt.

The first comparison folds the whole log anew. Each further one goes on with that fold where the last one ended. Before,
it checks that the newest entries that were compared are still there: a log that has lost entries and has grown again
has others at their places.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

from escrowmq.replica.entries import Entry, SegmentStart, Stamp, decode
from escrowmq.replica.errors import EntriesLost
from escrowmq.replica.fold import Fold, FoldState
from escrowmq.replica.log import ReplicatedLog, StoredEntry

READ: Final = 64
"""The entries that are asked for at once, each of up to a megabyte."""
CHECKED: Final = 64
"""How many of the entries that were compared are checked again by the next comparison. An engine may store an append
again whose answer was lost, at the same places; no append has so many entries.
"""
MOST_KEPT: Final = 1 << 20
"""The most bytes of an unfinished frame that are kept for the next comparison. With more, it begins anew."""
COMPARED_FOR: Final = 1000
"""For so many entries, further doubtful ones of the same leader do not make a node compare the log again."""


class LogComparison:
    """Compares the log with the state of a node that has read it."""

    def __init__(self, log: ReplicatedLog) -> None:
        self._log = log
        self._fold: Fold | None = None
        """The state of the log behind the entries that were compared; None if all have to be compared."""
        self._newest: deque[tuple[int, bytes]] = deque(maxlen=CHECKED)
        """The positions and digests of the newest ones of them."""
        self._done: dict[bytes, int] = {}
        """The chains of doubtful entries, and the position up to which the log was compared for each."""

    def doubt(self, stamp: Stamp, position: int, state: FoldState) -> None:
        """Compare the log before `position`, unless that was done lately for entries of this kind.

        Raises EntriesLost if the log is not one whose reader has come to `state` there, and OSError.
        """
        if stamp.chain not in self._done or stamp.after > self._done[stamp.chain] + COMPARED_FOR:
            self._compare(position, state)
            self._done[stamp.chain] = position

    def _compare(self, position: int, state: FoldState) -> None:
        begin = self._log.begin()
        fold, self._fold = self._fold, None  # if reading fails, the next comparison begins anew
        known = dict(self._newest) if fold is not None else {}
        expected = next(iter(known), begin)
        if expected < begin:
            fold, known, expected = None, {}, begin
        for stored in self._read(expected, position):
            if stored.position != expected:  # the leader has trimmed the log meanwhile
                fold, known = None, {}
            expected = stored.position + 1
            if stored.position in known:
                if known[stored.position] != _digest(stored):
                    raise EntriesLost(stored.position, "another entry is there now")
                continue
            entry = decode(stored.data)
            if fold is None:
                fold = begun(entry, stored.position)
                self._newest.clear()
            fold.apply(entry, stored.position)
            if stored.position >= position - CHECKED:
                self._newest.append((stored.position, _digest(stored)))
        if fold is not None and fold.state != state:
            raise EntriesLost(position, "the entries before it are not those that this node has read")
        self._fold = fold if state.received <= MOST_KEPT else None

    def _read(self, at: int, end: int) -> Iterator[StoredEntry]:
        """Yield the entries from `at` on, or from the oldest one on if that is newer."""
        while at < end:
            found = self._log.read(at, min(READ, end - at))
            if not found:
                raise EntriesLost(at, f"this node has read up to {end}")
            for stored in found:
                at = stored.position + 1
                if at <= end:
                    yield stored


def begun(entry: Entry, position: int) -> Fold:
    """Return the fold of a log that begins at `position` with `entry`."""
    if not position:
        return Fold()
    if not isinstance(entry, SegmentStart):
        raise EntriesLost(position, "it begins in the middle of a segment; set its retention to unlimited")
    return Fold.begun_at(entry)


def _digest(stored: StoredEntry) -> bytes:
    return blake2b(stored.data, digest_size=16).digest()
