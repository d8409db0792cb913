"""Entries and runs: messages as a queue stores them."""

from __future__ import annotations

from escrowmq.core.messages.envelope import Envelope


class Run:
    """Consecutive messages of one queue that arrived together and share an envelope.

    `lsn` is the address of the block that contains them, or 0 if the content is in memory only. The message at position
    `p` is number `index + p - first` in that block. `expires_at` is in milliseconds; 0 means never.
    """

    __slots__ = ("envelope", "expires_at", "first", "index", "lsn", "time")

    def __init__(
        self, envelope: Envelope, first: int, time: int, lsn: int = 0, index: int = 0, expires_at: int = 0
    ) -> None:
        self.envelope = envelope
        self.first = first
        self.time = time
        self.lsn = lsn
        self.index = index
        self.expires_at = expires_at


class Entry:
    """One message on one queue: the only object that exists for each message in memory.

    `deliveries` counts how often it was delivered and returned. Above 0, a delivery is marked `redelivered`.
    """

    __slots__ = ("content", "deliveries", "position", "run")

    def __init__(self, position: int, content: bytes, run: Run) -> None:
        self.position = position
        self.content = content
        self.run = run
        self.deliveries = 0

    @property
    def start(self) -> int:
        """The number of the message within its block (as in `records.Reference`)."""
        return self.run.index + self.position - self.run.first

    def __lt__(self, other: Entry) -> bool:
        return self.position < other.position

    def __repr__(self) -> str:
        return f"Entry({self.position}, {len(self.content)} bytes)"
