"""The changes of half messages that are parts of decisions (`branches.decision.Recorded`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.core.half.origin import HalfOrigin
from escrowmq.core.records.half import HalfDecided, HalfStored, encode_half_decided, encode_half_stored
from escrowmq.core.records.kinds import Kind

if TYPE_CHECKING:
    from escrowmq.core.half.queue import HalfQueue

_HEAD_BYTES: Final = 64
_CHARACTER_BYTES: Final = 4
_STORED: Final = Kind.HALF_STORED
_DECIDED: Final = Kind.HALF_DECIDED


class NewHalf(NamedTuple):
    """A half message that arrives. Times are in milliseconds; `due` is that of the first check."""

    number: int
    ident: str
    born: int
    due: int
    origin: HalfOrigin


class Storing:
    """Half messages arrive."""

    __slots__ = ("_made", "_queue")

    def __init__(self, queue: HalfQueue, made: Sequence[NewHalf]) -> None:
        self._queue = queue
        self._made = made

    def operations(self) -> list[tuple[Kind, Sequence[bytes]]]:
        queue = self._queue.ident
        return [
            (_STORED, [encode_half_stored(HalfStored(queue, number, born, due, ident, origin.key))])
            for number, ident, born, due, origin in self._made
        ]

    def apply(self, end: int, synced: int) -> None:
        add = self._queue.ledger.add
        for half in self._made:
            add(*half)

    @property
    def bytes(self) -> int:
        texts = [text for half in self._made for text in (half.ident, *half.origin.key[:4])]
        return _HEAD_BYTES * len(self._made) + _CHARACTER_BYTES * sum(map(len, texts))


class Deciding:
    """Half messages are committed or rolled back."""

    __slots__ = ("_decided", "_done")

    def __init__(self, decided: Sequence[HalfDecided], done: Callable[[Sequence[HalfDecided]], None]) -> None:
        """`done` changes the state."""
        self._decided = decided
        self._done = done

    def operations(self) -> list[tuple[Kind, Sequence[bytes]]]:
        return [(_DECIDED, [encode_half_decided(decided)]) for decided in self._decided]

    def apply(self, end: int, synced: int) -> None:
        self._done(self._decided)

    @property
    def bytes(self) -> int:
        return _HEAD_BYTES * len(self._decided)
