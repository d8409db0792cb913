"""The discipline of a queue: the order in which it gives out its entries, as an interface (ORD-1, ORD-2, ORD-6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.queues.backlog import Backlog
from escrowmq.core.records.blocks import Block
from escrowmq.core.records.references import Reference

ENTRY_COST: Final = 160  # bytes that an entry in memory costs beside its body
HEAVY: Final = 1024  # bytes of a header above which it counts, too


class Pager(Protocol):
    """Brings content from the log, and puts content there that is in memory alone."""

    def load(self, reference: Reference) -> Block: ...

    def store(self, run: Run, contents: Sequence[bytes]) -> int: ...


class Detached(NamedTuple):
    """Messages that have left an ordering: one that was in memory, or references to those that were not; and how often
    each has been delivered.
    """

    what: Entry | Backlog
    deliveries: int

    @property
    def messages(self) -> int:
        """How many they are."""
        return 1 if isinstance(self.what, Entry) else self.what.messages

    @property
    def parts(self) -> int:
        """How many references they take."""
        return 1 if isinstance(self.what, Entry) else len(self.what.firsts)


class Discipline(Protocol):
    """What a queue needs of an ordering."""

    def __len__(self) -> int: ...

    def append(self, run: Run, contents: Sequence[bytes]) -> None:
        """A run takes its place behind everything that is there."""
        ...

    def take(self, most: int) -> list[Entry]:
        """Remove and return at most `most` entries; at least one if there is any."""
        ...

    def put_back(self, entries: list[Entry]) -> None:
        """Entries return to their places in publication order (ORD-2)."""
        ...

    def peek(self) -> Entry | None:
        """The entry that comes next."""
        ...

    def clear(self) -> list[Reference]:
        """Forget everything; what was there (LSN 0: it was in memory alone)."""
        ...

    def references(self) -> Iterator[Reference]:
        """Everything that is there, without changing it."""
        ...

    def in_memory(self) -> list[Entry]:
        """The entries that are in memory; a copy, quickly made, since a snapshot asks for it between two turns."""
        ...

    def loaded(self, start: int, most: int) -> list[Entry]:
        """At most `most` of the entries that are in memory, from number `start` on in an order of no meaning."""
        ...

    def backlogs(self) -> list[Backlog]:
        """The parts that are in the log alone."""
        ...

    def known_deliveries(self) -> dict[int, int]:
        """How often entries that are not in memory have been delivered, by position, where it was more than noted."""
        ...

    def restore(self, found: Backlog, deliveries: dict[int, int], delivered_below: int) -> None:
        """Take over what recovery found, in order of position."""
        ...

    def limit_memory(self, limit: int) -> None:
        """From now on at most `limit` bytes come into memory; what is there stays."""
        ...

    def detach(self, most: int, parts: int) -> list[Detached]:
        """Like `take`, for at most `parts` parts, but what is in the log alone is not loaded."""
        ...

    def attach(self, found: list[Reference], deliveries: dict[int, int]) -> None:
        """What was detached returns to its places without being loaded. It counts as delivered: once, if `deliveries`
        does not know better.
        """
        ...
