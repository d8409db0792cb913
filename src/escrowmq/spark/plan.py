"""The ranges of messages that a query reads from its queues, divided into partitions."""

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
    """A range of messages of one queue.

    Args:
        queue: the queue's name.
        kind: the queue's kind; STREAM for a stream.
        first: the number of the first message: its position in a stream, or its number in the group's reservation.
        end: the number after the last message.
        exact: whether all messages of the range must exist; otherwise there may be a gap at the beginning.
        ident: the stream's unique ID, 0 if it is not known.
    """

    queue: str
    kind: str
    first: int
    end: int
    exact: bool = True
    ident: int = 0


@dataclass(init=False)
class Part(InputPartition):
    """The range that one task reads. The first task of an epoch also settles the epoch's ranges of all queues."""

    span: Span
    settlements: tuple[Settle, ...]

    def __init__(self, span: Span, settlements: tuple[Settle, ...] = ()) -> None:
        self.span = span
        self.settlements = settlements


def cut(spans: Sequence[Span], most: int, wanted: int | None) -> list[Span]:
    """Divide ranges into pieces of at most `most` messages, in order.

    If `wanted` is given, the result has at least that many pieces, as far as there are enough messages. The number of
    pieces of a range is a power of two, so that the cores of a machine get equally many: of five pieces, one of two
    cores would get three.
    """
    total = sum(span.end - span.first for span in spans)
    pieces: list[Span] = []
    for span in spans:
        count = span.end - span.first
        if count <= 0:
            continue
        number = min(1 << (-(-count // most) - 1).bit_length(), count)
        if wanted is not None:
            number = max(number, min(-(-wanted * count // total), count))
        edges = [span.first + count * i // number for i in range(number + 1)]
        for i, (first, end) in enumerate(pairwise(edges)):
            pieces.append(replace(span, first=first, end=end, exact=span.exact or i > 0))
    return pieces
