"""A simulated replicated log: appends are lost, late, not answered, stored twice, in part or with holes. It is trimmed,
and may lose its newest entries.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from escrowmq.replica.errors import AppendUnknown
from escrowmq.replica.log import StoredEntry

FATES = {"stored": 14, "lost": 1, "unanswered": 2, "late": 2, "twice": 1, "partly": 2, "hole": 2}
GLANCED = 0.8
"""How likely a glance shows something."""
MOST_LOST = 12
"""The most entries that the log loses at once."""


class SimulatedLog:
    """A log whose other users act before and after each call. All randomness is that of `rng`."""

    def __init__(
        self, rng: random.Random, interlude: Callable[[], None] = lambda: None, fates: Mapping[str, int] = FATES
    ) -> None:
        self.entries: list[bytes] = []
        self.first = 0
        """The position of the first of `entries`."""
        self.quiet = False
        """Whether every append is stored and answered, and nobody acts meanwhile."""
        self._rng = rng
        self._fates = fates
        self._interlude = interlude
        self._late: list[bytes] = []

    def append(self, entries: Sequence[bytes]) -> list[int]:
        """Store entries as the fate of this append wants it."""
        if self.quiet:
            self.entries.extend(entries)
            return list(range(self.end() - len(entries), self.end()))
        self._interlude()
        fate = self._rng.choices(list(self._fates), list(self._fates.values()))[0]
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
                positions.append(self.first + len(self.entries))
                self.entries.extend([entry] * (2 if fate == "twice" else 1))
        self._interlude()
        if fate in ("stored", "twice"):
            return positions
        raise AppendUnknown("no answer")

    def send(self, entries: Sequence[bytes]) -> Callable[[], list[int]]:
        """Store entries when the answer is asked for."""
        return partial(self.append, entries)

    def read(self, position: int, most: int) -> list[StoredEntry]:
        """Return a few entries."""
        if not self.quiet:
            self._interlude()
            most = self._rng.randint(1, most)
        at = max(0, position - self.first)
        found = self.entries[at : at + most]
        return [StoredEntry(self.first + at + i, data) for i, data in enumerate(found)]

    def glance(self, position: int, most: int) -> list[StoredEntry]:
        """Return entries, or nothing."""
        return self.read(position, most) if self.quiet or self._rng.random() < GLANCED else []

    def begin(self) -> int:
        """Return the position of the oldest entry."""
        return self.first

    def end(self) -> int:
        """Return the position behind the newest entry."""
        self._deliver_late()
        return self.first + len(self.entries)

    def trim(self, before: int) -> None:
        """Delete the entries before a position."""
        del self.entries[: max(0, before - self.first)]
        self.first = max(self.first, before)

    # -- what no engine should do

    def lose(self, number: int) -> int:
        """Lose so many of the newest entries, or all but one. Return their number."""
        number = min(number, len(self.entries) - 1)
        if number <= 0:
            return 0
        del self.entries[-number:]
        return number

    def settle(self) -> None:
        """Store everything that is still on its way."""
        self.entries.extend(self._late)
        self._late.clear()

    def _deliver_late(self) -> None:
        while not self.quiet and self._late and self._rng.random() < 0.2:
            self.entries.append(self._late.pop(0))
