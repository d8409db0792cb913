"""What the core asks of its surroundings: a log to write to, receivers to deliver to, randomness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.queues.consumer import Consumer


class Log(Protocol):
    """The journal, as the core sees it."""

    @property
    def end_lsn(self) -> int:
        """What a durable answer given now has to wait for: everything appended so far."""
        ...

    @property
    def synced_lsn(self) -> int:
        """Every byte below this is on disk."""
        ...

    def append(self, kind: int, *parts: bytes) -> int:
        """Add a record to the pending batch; its LSN, which is the address of its payload."""
        ...

    def read(self, lsn: int, length: int) -> bytes:
        """`length` bytes at `lsn`, also of what is not written yet."""
        ...

    def read_ahead(self, lsn: int, most: int) -> bytes:
        """At most `most` bytes from `lsn` on, as many as are at hand, also beyond the end of a record."""
        ...

    def retain(self, lsn: int, count: int) -> None:
        """`count` more live messages lie in the block at `lsn`: its segment must stay."""
        ...

    def release(self, lsn: int, count: int) -> None:
        """`count` messages of the block at `lsn` are no longer needed."""
        ...


class Random(Protocol):
    """Where names that nobody must guess come from."""

    def randbytes(self, n: int, /) -> bytes: ...


class Receiver(Protocol):
    """Where a consumer's deliveries go: a channel, a link."""

    @property
    def writable(self) -> bool:
        """False while the client takes no more."""
        ...

    def stalled(self, consumer: Consumer) -> None:
        """The consumer was not served because the receiver is not writable: wake it (`Broker.wake`) when it is."""
        ...

    def deliver(self, consumer: Consumer, entries: list[Entry]) -> None:
        """Hand over entries, in order."""
        ...

    def drained(self, consumer: Consumer, unused: int) -> None:
        """A drain has ended: nothing is left that the consumer could have, and `unused` credit is gone."""
        ...

    def cancelled(self, consumer: Consumer) -> None:
        """The queue is gone; the consumer with it."""
        ...


class Holder(Protocol):
    """Something that holds deliveries for clients: a channel, a link, a branch."""

    def held(self) -> Iterable[tuple[Consumer, Entry]]:
        """Every delivery that is not settled."""
        ...

    def held_part(self, start: int, most: int) -> list[tuple[Consumer, Entry]]:
        """At most `most` of the same from number `start` on."""
        ...
