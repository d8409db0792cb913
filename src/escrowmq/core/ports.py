"""The interfaces that the core needs from outside: a log to write to, receivers to deliver to, randomness."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.queues.consumer import Consumer
    from escrowmq.core.queues.queue import Queue


class Log(Protocol):
    """The journal's log, as the core uses it."""

    @property
    def end_lsn(self) -> int:
        """The end of everything appended so far. A durable answer given now must wait until the log is synced up
        to it.
        """
        ...

    def proof_lsn(self, after: int) -> int:
        """Return the LSN that an answer must wait for that would wait for `after` in a log of its own, and on whose
        silence a client could act: an unknown xid, no epoch, no messages. If other nodes may write to the log, it is
        one that proves that nothing newer is in it; otherwise it is `after`.
        """
        ...

    @property
    def synced_lsn(self) -> int:
        """The LSN below which every byte is on disk."""
        ...

    def append(self, kind: int, *parts: bytes) -> int:
        """Add a record to the pending frame. Return its LSN, which is the address of its payload."""
        ...

    def read(self, lsn: int, length: int) -> bytes:
        """Return `length` bytes at `lsn`, also if they are not written yet."""
        ...

    def read_ahead(self, lsn: int, most: int) -> bytes:
        """Return at most `most` bytes from `lsn` on, as many as are available, also beyond the end of a record."""
        ...

    def retain(self, lsn: int, count: int) -> None:
        """Note that `count` more messages in the block at `lsn` are living, so its segment must stay."""
        ...

    def retain_each(self, lsns: Sequence[int], counts: Sequence[int]) -> None:
        """Do `retain` for many blocks, which are best in order."""
        ...

    def release(self, lsn: int, count: int) -> None:
        """Note that `count` messages in the block at `lsn` are no longer needed."""
        ...

    def release_each(self, lsns: Sequence[int], counts: Sequence[int]) -> None:
        """Do `release` for many blocks, which are best in order."""
        ...


class Random(Protocol):
    """The source of randomness for names that must be impossible to guess."""

    def randbytes(self, n: int, /) -> bytes: ...


class ReceiverOrigin(NamedTuple):
    """Where a receiver is: the address of its client, HOST:PORT, the number of its channel or session, and its user."""

    peer: str
    channel: int
    user: str


class Receiver(Protocol):
    """The destination of a consumer's deliveries: a channel or a link."""

    @property
    def origin(self) -> ReceiverOrigin:
        """Where it is, for lists."""
        ...

    @property
    def writable(self) -> bool:
        """Whether the client can take more deliveries now."""
        ...

    def stalled(self, consumer: Consumer) -> None:
        """Note that the consumer was not served because the receiver is not writable. The receiver calls `Engine.wake`
        when it is writable again.
        """
        ...

    def deliver(self, consumer: Consumer, entries: list[Entry]) -> None:
        """Deliver entries, in order."""
        ...

    def deliver_each(self, deliveries: list[tuple[Consumer, list[Entry]]]) -> None:
        """Do `deliver` for several consumers, in order, none of which settles automatically. The receiver may keep the
        lists of entries.
        """
        ...

    def drained(self, consumer: Consumer, unused: int) -> None:
        """Note the end of a drain: no entry is left that the consumer could get, and `unused` credit was cancelled."""
        ...

    def cancelled(self, consumer: Consumer) -> None:
        """Note that the queue was deleted, and the consumer with it."""
        ...


class Acquirer(Protocol):
    """A terminus that has recorded the acquisition of its deliveries."""

    def given_back(self, queue: Queue, entries: list[Entry]) -> None:
        """Note that deliveries return to their queue, before they do."""
        ...


class Holder(Protocol):
    """A holder of deliveries for clients: a channel, a link, or a branch."""

    def held(self) -> list[tuple[Consumer, list[Entry]]]:
        """Return copies of all unsettled deliveries. It must be fast, since a snapshot calls it between two turns."""
        ...

    def copy_ahead(self, at: int, most: int) -> tuple[int, int]:
        """Copy deliveries in advance, so that `held` is fast, from the place `at` on (0: the first ones), until the
        cost reaches `most`. Return the cost, which counts copied runs and is at least 1, and the place to go on from,
        which is 0 at the end.
        """
        ...

    def held_part(self, start: int, most: int) -> list[tuple[Consumer, Entry]]:
        """Return at most `most` of these deliveries, from number `start` on."""
        ...
