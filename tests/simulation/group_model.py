"""The model of a consumer group: what its members were told, and what must follow from it (GRP).

It shares no code with the core. A position is known as settled, or it has a lease, or it waits. What was not answered
before a crash may or may not have happened; such a position is uncertain until the group leases it again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tests.simulation.ledger import Violation

Place = tuple[int, int]
"""A partition and a position."""


class Told(NamedTuple):
    """A lease as the core returned it."""

    place: Place
    due: int
    call: int
    attempts: int


@dataclass
class GroupModel:
    """One group. `keys` has the key of each message, by place; it grows with the topic."""

    name: str
    fifo: bool
    max_attempts: int
    keys: dict[Place, str]
    leases: dict[Place, Told] = field(default_factory=dict)
    settled: set[Place] = field(default_factory=set)
    attempts: dict[Place, int] = field(default_factory=dict)
    answered: set[Place] = field(default_factory=set)
    """Settlements that a member was told of, which a crash must not undo."""
    pending: set[Place] = field(default_factory=set)
    """Places that changed since the last sync."""
    uncertain: set[Place] = field(default_factory=set)
    begins: dict[int, int] = field(default_factory=dict)
    """The oldest position of each partition that retention has left."""
    dropped: dict[int, int] = field(default_factory=dict)
    """The position of each partition up to which retention has ever dropped messages. A crash may bring some back."""
    dead: set[Place] = field(default_factory=set)
    """Messages that may be in the dead-letter topic."""

    def violation(self, text: str) -> Violation:
        return Violation(f"group {self.name}: {text}")

    # -- what the core did

    def leased(self, batch: list[Told]) -> None:
        """Check the leases of one call, and note them. `expire` was called for this moment."""
        for i, told in enumerate(batch):
            place = told.place
            if place in self.settled and place not in self.uncertain:
                raise self.violation(f"{place} was leased after it had been settled")
            held = self.leases.get(place)
            if held is not None and place not in self.uncertain:
                raise self.violation(f"{place} was leased while call {held.call} has it until {held.due}")
            known = self.attempts.get(place, 0)
            if told.attempts != known + 1 and place not in self.uncertain:
                raise self.violation(f"attempt {told.attempts} of {place} follows attempt {known}")
            if told.attempts > self.max_attempts:
                raise self.violation(f"attempt {told.attempts} of {place}, which may have {self.max_attempts}")
            if self.fifo:
                self._check_order(place, {other.place for other in batch[:i]})
        for told in batch:
            self.uncertain.discard(told.place)
            self.settled.discard(told.place)
            self.leases[told.place] = told
            self.attempts[told.place] = told.attempts
            self.pending.add(told.place)

    def _check_order(self, place: Place, before: set[Place]) -> None:
        for earlier in self._lane(place):
            there = self.begins.get(place[0], 0) <= earlier[1] < place[1]
            if there and not {earlier} & (self.settled | before | self.uncertain | self.dead):
                raise self.violation(f"{place} was leased before {earlier}, which has the same key")

    def _lane(self, place: Place) -> list[Place]:
        return [other for other, key in self.keys.items() if other[0] == place[0] and key == self.keys[place]]

    def expire(self, now: int, *, noticed: bool = True) -> None:
        """Note that the core has looked at the time: leases have ended, and with them those behind them. Unless it is
        certain that the core has `noticed`, because it needs the log for that, the latter are uncertain.
        """
        for place in sorted(place for place, told in self.leases.items() if told.due <= now):
            if place[1] < self.begins.get(place[0], 0):
                self._dropped(place)
            else:
                self._end(place, noticed=noticed)

    def _dropped(self, place: Place) -> None:
        """Note that the lease of a message ends which retention has dropped, before or after the lease ended."""
        self.leases.pop(place, None)
        if self.fifo:
            self._doubt_those_behind(place)

    def _doubt_those_behind(self, place: Place) -> None:
        """Note that the core may revoke the leases behind a place, or may have done so."""
        self.uncertain.update(later for later in self._lane(place) if later[1] > place[1] and later in self.leases)

    def _end(self, place: Place, *, noticed: bool) -> None:
        told = self.leases.pop(place, None)
        if told is None:
            return
        self.pending.add(place)
        if told.attempts >= self.max_attempts:
            self.dead.add(place)
            self.uncertain.add(place)
        if not noticed:
            self.uncertain.add(place)
            self._doubt_those_behind(place)
        elif self.fifo:
            self._revoke(place)

    def _revoke(self, place: Place) -> None:
        for later in self._lane(place):
            if later[1] > place[1] and self.leases.pop(later, None) is not None:
                self.pending.add(later)
                if self.attempts[later] >= self.max_attempts:
                    self.dead.add(later)
                    self.uncertain.add(later)

    def certainty(self, told: Told, now: int) -> bool | None:
        """Return whether the handle of a lease must be accepted; None if both answers are right."""
        held = self.leases.get(told.place)
        if told.place in self.uncertain:
            return None
        if held is None and self.fifo and told.due > now and self.begins.get(told.place[0], 1) > 1:
            return None  # revoked, unless retention had dropped the message before it whose lease has run out
        if held is None or held.call != told.call or held.due <= now:
            return False
        if self.fifo and any(
            other[1] < told.place[1] and other in self.leases and self.leases[other].due <= now
            for other in self._lane(told.place)
        ):
            return None  # a lease before it has run out, which the core may not have noticed
        return True

    def acknowledged(self, told: Told) -> None:
        """Note that a message was settled."""
        self.leases.pop(told.place, None)
        self.settled.add(told.place)
        self.uncertain.discard(told.place)
        self.pending.add(told.place)

    def changed(self, told: Told, *, failed: bool) -> None:
        """Note that a lease was replaced by `told`."""
        self.leases[told.place] = told
        self.pending.add(told.place)
        if failed and self.fifo:
            self._revoke(told.place)

    def reset(self, partition: int, position: int) -> None:
        """Note that an operator has reset the group."""
        for place in list(self.keys):
            if place[0] == partition:
                self.leases.pop(place, None)
                self.attempts.pop(place, None)
                self.answered.discard(place)
                self.settled.discard(place)
                self.uncertain.discard(place)
                self.dead.discard(place)
                if place[1] < position:
                    self.settled.add(place)
                    self.answered.add(place)

    # -- syncs and crashes

    def synced(self) -> None:
        """Note that everything is on disk."""
        self.pending.clear()
        self.answered = set(self.settled)

    def crashed(self, *, earlier: bool) -> None:
        """Note that the broker has restarted from what was on disk. If its time is `earlier` now, leases that had ended
        may be in force again.
        """
        self.settled = set(self.answered)
        ended = self.attempts.keys() - self.leases.keys() if earlier else set()
        self.uncertain = (self.uncertain | self.pending | ended) - self.answered
        self.pending.clear()
        if self.fifo:
            for place in sorted(self.uncertain):  # its lease may be in force again
                self._doubt_those_behind(place)

    def check_progress(self, partition: int, progress: int, begin: int, passed: set[Place]) -> None:
        """Check that the progress has passed nothing that is not settled, and everything that was answered."""
        dropped = self.dropped[partition] = max(begin, self.dropped.get(partition, 0))
        for place in self.keys:
            if place[0] != partition or place[1] < dropped:
                continue
            known = place in self.settled or place in passed or place in self.uncertain or place in self.dead
            if place[1] < progress and not known:
                raise self.violation(f"progress {progress} has passed {place}, which is not settled")
        floor = begin
        while (partition, floor) in self.answered:
            floor += 1
        if progress < floor:
            raise self.violation(f"progress {progress} is before {floor}, up to which everything was settled")
