"""Ranges of queues: what is to be read of each, cut into partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from pyspark.sql.datasource import InputPartition

from escrowmq.client.escrow import Settle

STREAM: Final = "stream"


@dataclass(frozen=True, slots=True)
class Span:
    """What is to be read of one queue: numbers `first` to `end` - 1; of a stream these are its positions.

    With `exact`, all of them have been there; else there may be gaps at the beginning. `ident` is the stream's own, 0
    if it is not known.
    """

    queue: str
    kind: str
    first: int
    end: int
    exact: bool = True
    ident: int = 0


@dataclass(init=False)
class Part(InputPartition):
    """What one task reads; and, in the first one of an epoch, what the epoch settles of all queues."""

    span: Span
    settlements: tuple[Settle, ...]

    def __init__(self, span: Span, settlements: tuple[Settle, ...] = ()) -> None:
        self.span = span
        self.settlements = settlements


def cut(spans: Sequence[Span], most: int, wanted: int | None) -> list[Span]:
    """Pieces of at most `most` messages, in order; at least `wanted` of them, if there are so many messages."""
    total = sum(span.end - span.first for span in spans)
    pieces: list[Span] = []
    for span in spans:
        count = span.end - span.first
        if count <= 0:
            continue
        number = -(-count // most)
        if wanted is not None:
            number = max(number, min(-(-wanted * count // total), count))
        edges = [span.first + count * i // number for i in range(number + 1)]
        for i, (first, end) in enumerate(pairwise(edges)):
            pieces.append(replace(span, first=first, end=end, exact=span.exact or i > 0))
    return pieces
