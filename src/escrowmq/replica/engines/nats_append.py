"""One append to a stream of NATS: the entries that are on their way, and their answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from escrowmq.replica.engines.nats_client import WINDOW_BYTES
from escrowmq.replica.errors import AppendUnknown

WINDOW_ENTRIES: Final = 2000
"""The entries that are on their way at once."""
PUBLISH_BYTES: Final = 1 << 20
"""The bytes of entries that are published before anything is read. A single entry may have more."""


class AppendRefused(Exception):  # noqa: N818 - named after the event
    """None of the entries was stored, certainly."""


class NatsAppend:
    """The entries of an append. Belongs to the thread that uses the connection."""

    def __init__(self, entries: Sequence[bytes]) -> None:
        self._entries = entries
        self.begin_again()

    def begin_again(self) -> None:
        """Forget all answers."""
        self._positions = [-1] * len(self._entries)
        self._published = self._stored = self._refused = self._under_way = 0
        self._refusal = ""
        self._error: AppendUnknown | None = None

    @property
    def is_done(self) -> bool:
        """Whether `result` has something to say."""
        answered = self._stored + self._refused
        whole = self._published == len(self._entries) or bool(self._refused)
        return self._error is not None or (whole and answered == self._published)

    def result(self) -> list[int]:
        """Return the positions of the entries, once all are stored. Raises AppendUnknown and AppendRefused."""
        if self._error is not None:
            raise self._error
        if self._refused and not self._stored:
            raise AppendRefused(self._refusal)
        if self._refused:
            raise AppendUnknown(f"NATS stored only a part of an append: {self._refusal}")
        return self._positions

    @property
    def may_publish(self) -> bool:
        """Whether there is an entry to be published now. There are no more after a refusal."""
        if self._published == len(self._entries) or self._refused or self._error is not None:
            return False
        unanswered = self._published - self._stored
        size = self._under_way + len(self._entries[self._published])
        return not unanswered or (unanswered < WINDOW_ENTRIES and size <= WINDOW_BYTES)

    def next_entries(self) -> Iterator[tuple[int, bytes]]:
        """Yield some of the entries that may be published now, with their numbers. More may follow at once."""
        size = 0
        while self.may_publish:
            entry = self._entries[self._published]
            size += len(entry)
            if size > PUBLISH_BYTES and size > len(entry):
                return
            self._published += 1
            self._under_way += len(entry)
            yield self._published - 1, entry

    def store(self, index: int, position: int) -> None:
        """Note that an entry was stored at a position."""
        self._positions[index] = position
        self._stored += 1
        self._under_way -= len(self._entries[index])

    def refuse(self, reason: str) -> None:
        """Note that an entry was certainly not stored."""
        self._refused += 1
        self._refusal = reason

    def fail(self, error: AppendUnknown) -> None:
        """Note that nobody knows what was stored."""
        self._error = self._error or error
