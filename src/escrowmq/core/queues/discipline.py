"""The interface of queue disciplines, which order the entries of a queue (ORD-1, ORD-2, ORD-6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.backlog import Backlog
from escrowmq.core.queues.withdrawal import Withdrawal
from escrowmq.core.records.blocks import Block
from escrowmq.core.records.references import Reference

if TYPE_CHECKING:
    from escrowmq.core.queues.fifo import Fifo
    from escrowmq.core.queues.sealed import LevelRuns

ENTRY_COST: Final = 160  # bytes that an entry in memory costs in addition to its body
HEAVY: Final = 1024  # bytes above which a header counts, too
TAKEN_BYTES: Final = 1024 * 1024  # bytes of bodies above which no further entry is taken together with others


class Pager(Protocol):
    """Loads content from the log, and stores content there that is only in memory."""

    def load(self, reference: Reference) -> Block: ...

    def envelopes(self, lsns: Iterable[int]) -> Iterator[Envelope]: ...

    def store(self, run: Run, contents: Sequence[bytes]) -> int: ...


class Detached(NamedTuple):
    """Messages that have left a discipline, and how often each has been delivered: one message that was in memory, or
    references to messages that were not.
    """

    what: Entry | Backlog
    deliveries: int

    @property
    def messages(self) -> int:
        """Return the number of messages."""
        return 1 if isinstance(self.what, Entry) else self.what.messages

    @property
    def parts(self) -> int:
        """Return the number of references that they need."""
        return 1 if isinstance(self.what, Entry) else len(self.what.firsts)


class Discipline(Protocol):
    """The operations that a queue needs.

    `take` and `peek` raise LogUnreadable if messages that they need cannot be read from the log. Nothing is changed
    then (DUR-4).
    """

    def __len__(self) -> int: ...

    def append(self, run: Run, contents: Sequence[bytes]) -> None:
        """Add a run at the end."""
        ...

    def level(self, envelope: Envelope) -> int:
        """Return the number of the part of the order in which messages with this envelope are first in, first out."""
        ...

    def keeps(self, level: int, size: int) -> bool:
        """Return whether new messages of a level stay in memory, after others of `size` bytes."""
        ...

    def admit(self, level: int, runs: LevelRuns) -> None:
        """Do `append` for many runs of a level whose entries are made already."""
        ...

    def take(self, most: int) -> list[Entry]:
        """Remove and return at most `most` entries, and at least one if there is any. Several have at most about
        `TAKEN_BYTES`.
        """
        ...

    def put_back(self, entries: list[Entry]) -> None:
        """Return entries to their places in publication order (ORD-2)."""
        ...

    def peek(self) -> Entry | None:
        """Return the next entry without removing it."""
        ...

    def levels(self) -> Iterator[tuple[int, Fifo]]:
        """Yield the parts of different priority, the highest first, with their numbers."""
        ...

    def withdraw(self) -> Withdrawal:
        """Remove and return everything."""
        ...

    def references(self) -> Iterator[Reference]:
        """Yield references to all entries without changing anything."""
        ...

    def in_memory(self) -> list[Entry]:
        """Return a copy of the list of entries in memory. It must be fast, since a snapshot calls it between two
        turns.
        """
        ...

    def loaded(self, start: int, most: int) -> list[Entry]:
        """Return at most `most` of the entries in memory, from number `start` on, in an unspecified order."""
        ...

    def backlogs(self) -> list[Backlog]:
        """Return the parts that are only in the log."""
        ...

    def known_deliveries(self) -> dict[int, int]:
        """Return, by position, how often entries that are not in memory have been delivered, where that is known."""
        ...

    def restore(self, found: Backlog, deliveries: dict[int, int], delivered_below: int) -> None:
        """Take over the messages that recovery found, in order of position."""
        ...

    def limit_memory(self, limit: int) -> None:
        """Set the memory limit in bytes. Entries that are already in memory stay there."""
        ...

    def detach(self, most: int, parts: int) -> list[Detached]:
        """Like `take`, for at most `parts` parts, but do not load messages that are only in the log."""
        ...

    def attach(self, found: list[Reference], deliveries: dict[int, int]) -> None:
        """Return detached messages to their places without loading them. Each counts as delivered as often as
        `deliveries` says, or once.
        """
        ...
