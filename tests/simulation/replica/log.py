"""A simulated replicated log: appends are lost, late, not answered, stored twice, in part or with holes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from escrowmq.replica.errors import AppendUnknown
from escrowmq.replica.log import StoredEntry

FATES = {"stored": 14, "lost": 1, "unanswered": 2, "late": 2, "twice": 1, "partly": 2, "hole": 2}


class SimulatedLog:
    """A log whose other users act before and after each call. All randomness is that of `rng`."""

    def __init__(self, rng: random.Random, interlude: Callable[[], None]) -> None:
        self.entries: list[bytes] = []
        self._rng = rng
        self._interlude = interlude
        self._late: list[bytes] = []

    def append(self, entries: Sequence[bytes]) -> list[int]:
        """Store entries as the fate of this append wants it."""
        self._interlude()
        fate = self._rng.choices(list(FATES), list(FATES.values()))[0]
        if fate == "late":
            self._late.extend(entries)
        if fate == "partly":
            entries = entries[: self._rng.randrange(len(entries))]
        if fate == "hole":
            hole = self._rng.randrange(len(entries))
            entries = [*entries[:hole], *entries[hole + 1 :]]
        positions = []
        if fate not in ("late", "lost"):
            for entry in entries:
                self._deliver_late()
                positions.append(len(self.entries))
                self.entries.extend([entry] * (2 if fate == "twice" else 1))
        self._interlude()
        if fate in ("stored", "twice"):
            return positions
        raise AppendUnknown("no answer")

    def read(self, position: int, most: int) -> list[StoredEntry]:
        """Return a few entries."""
        self._interlude()
        found = self.entries[position : position + self._rng.randint(1, most)]
        return [StoredEntry(position + i, data) for i, data in enumerate(found)]

    def begin(self) -> int:
        """Return 0: nothing is trimmed here."""
        return 0

    def end(self) -> int:
        """Return the number of entries."""
        self._deliver_late()
        return len(self.entries)

    def settle(self) -> None:
        """Store everything that is still on its way."""
        self.entries.extend(self._late)
        self._late.clear()

    def _deliver_late(self) -> None:
        while self._late and self._rng.random() < 0.2:
            self.entries.append(self._late.pop(0))
