"""The live producers of each group, which are asked about half messages without a decision (HALF-4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from escrowmq.core.half.message import HalfMessage

MOST: Final = 10_000
"""Number of producers that a group may have; further ones get no checks."""
TRIES: Final = 8
"""Number of producers that are asked to take one check."""

Key = tuple[str, str]
"""Virtual host and group."""


class LiveProducer(Protocol):
    """A live producer. `label` names the client, also after it has connected again."""

    @property
    def user(self) -> str:
        """The user as which it has logged in."""
        ...

    @property
    def label(self) -> str:
        """The client's name."""
        ...

    def check(self, half: HalfMessage) -> bool:
        """Ask the producer for its decision. Return whether the question was written to a live, writable connection;
        only then it counts (HALF-5).
        """
        ...


class Producers:
    """The producers of all groups. `joined` is called with the virtual host and the group when one was added."""

    __slots__ = ("_groups", "_of", "_turns", "joined")

    def __init__(self, joined: Callable[[str, str], None]) -> None:
        self._groups: dict[Key, dict[LiveProducer, None]] = {}
        self._of: dict[LiveProducer, dict[Key, None]] = {}
        self._turns: dict[Key, int] = {}
        self.joined = joined

    def join(self, vhost: str, group: str, producer: LiveProducer) -> None:
        """Add a producer to a group."""
        key = vhost, group
        members = self._groups.setdefault(key, {})
        if producer in members or len(members) >= MOST:
            return
        members[producer] = None
        self._of.setdefault(producer, {})[key] = None
        self.joined(vhost, group)

    def part(self, vhost: str, group: str, producer: LiveProducer) -> None:
        """Remove a producer from one group."""
        key = vhost, group
        keys = self._of.get(producer)
        if keys is None or key not in keys:
            return
        del keys[key], self._groups[key][producer]
        if not keys:
            del self._of[producer]
        if not self._groups[key]:
            del self._groups[key]
            self._turns.pop(key, None)

    def leave(self, producer: LiveProducer) -> None:
        """Remove a producer from all its groups."""
        for vhost, group in list(self._of.get(producer, ())):
            self.part(vhost, group, producer)

    def groups(self, vhost: str) -> list[tuple[str, list[LiveProducer]]]:
        """Return the producers of each group of a virtual host."""
        return [(group, list(members)) for (of, group), members in self._groups.items() if of == vhost]

    def count(self, vhost: str, group: str) -> int:
        """Return the number of producers of a group."""
        return len(self._groups.get((vhost, group), ()))

    def choose(self, vhost: str, group: str, label: str, may: Callable[[LiveProducer], bool]) -> Iterator[LiveProducer]:
        """Yield at most `TRIES` producers of a group that `may` take a check: the one named `label` first, then others
        in turn.
        """
        key = vhost, group
        members = list(self._groups.get(key, ()))
        if not members:
            return
        turn = self._turns[key] = self._turns.get(key, -1) + 1
        begin = turn % len(members)
        others = members[begin:] + members[:begin]
        if label:
            others.sort(key=lambda producer: producer.label != label)
        tries = 0
        for producer in others:
            if tries >= TRIES:
                return
            if may(producer):
                tries += 1
                yield producer
