"""The changes of half messages that are parts of decisions (`branches.decision.Recorded`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from escrowmq.core.records.half import HalfDecided, HalfStored, encode_half_decided, encode_half_stored
from escrowmq.core.records.kinds import Kind

if TYPE_CHECKING:
    from escrowmq.core.half.origin import HalfOrigin
    from escrowmq.core.half.queue import HalfQueue

_HEAD_BYTES: Final = 64
_CHARACTER_BYTES: Final = 4


class Storing:
    """A half message arrives."""

    __slots__ = ("_done", "_origin", "_queue", "_stored")

    def __init__(
        self, queue: HalfQueue, stored: HalfStored, origin: HalfOrigin, done: Callable[[HalfStored], None]
    ) -> None:
        """`done` is called after the change."""
        self._queue = queue
        self._stored = stored
        self._origin = origin
        self._done = done

    def operations(self) -> list[tuple[Kind, Sequence[bytes]]]:
        return [(Kind.HALF_STORED, [encode_half_stored(self._stored)])]

    def apply(self, end: int, synced: int) -> None:
        stored = self._stored
        self._queue.ledger.add(stored.number, stored.ident, stored.born, stored.due, self._origin)
        self._done(stored)

    @property
    def bytes(self) -> int:
        texts = (self._stored.ident, *self._stored.origin[:4])
        return _HEAD_BYTES + _CHARACTER_BYTES * sum(map(len, texts))


class Deciding:
    """A half message is committed or rolled back."""

    __slots__ = ("_decided", "_done")

    def __init__(self, decided: HalfDecided, done: Callable[[HalfDecided], None]) -> None:
        """`done` changes the state."""
        self._decided = decided
        self._done = done

    def operations(self) -> list[tuple[Kind, Sequence[bytes]]]:
        return [(Kind.HALF_DECIDED, [encode_half_decided(self._decided)])]

    def apply(self, end: int, synced: int) -> None:
        self._done(self._decided)

    @property
    def bytes(self) -> int:
        return _HEAD_BYTES
