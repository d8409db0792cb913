"""The state of half messages as records, for snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from escrowmq.core.half.rows import SIZE, Chunk
from escrowmq.core.records.half import HalfRow, encode_half_states
from escrowmq.core.records.kinds import Kind

if TYPE_CHECKING:
    from escrowmq.core.half.ledger import HalfLedger

CHUNKS: Final = 32
"""Chunks in one record."""


class CapturedHalf:
    """A quick copy of the state of a virtual host's half messages, which is encoded as records later, on any thread."""

    __slots__ = ("_chunks", "_origins", "_queue")

    def __init__(self, queue: int, ledger: HalfLedger) -> None:
        """`queue` is the number of the hidden queue."""
        self._queue = queue
        self._origins = [(origin.number, origin.key) for origin in ledger.origins.all()]
        self._chunks = ledger.rows.shared()

    def records(self) -> Iterator[tuple[Kind, list[bytes]]]:
        """Yield the records."""
        yield Kind.HALF_STATE, encode_half_states(self._queue, self._origins, ())
        for at in range(0, len(self._chunks), CHUNKS):
            yield Kind.HALF_STATE, encode_half_states(self._queue, (), _rows(self._chunks[at : at + CHUNKS]))


def _rows(chunks: Sequence[Chunk]) -> list[HalfRow]:
    return [
        HalfRow(
            chunk.base + i,
            chunk.ids[i],
            chunk.born[i],
            chunk.due[i],
            chunk.origins[i],
            chunk.checks[i],
            chunk.states[i],
        )
        for chunk in chunks
        for i in range(SIZE)
        if chunk.states[i]
    ]
