"""Which link termini, consumer groups and queues the records name by their numbers, and from where to where in the log.

`names.ExistingNames` checks that these exist there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from escrowmq.core.records.kinds import Kind
from escrowmq.pipeline.columns import U32, U64, take
from escrowmq.pipeline.frames import Records
from escrowmq.pipeline.operations import Operations

STEP: Final = "named"
"""The step of a mention in the table of steps (`pipeline.branches`). Its columns are `owner` (what is named), `branch`
(its number), `lsn` (the first record that names it) and `settled` (the last one).
"""


class Mention(NamedTuple):
    """The first and the last record, by LSN, that name something in a part of the log."""

    what: str
    number: int
    first: int
    last: int


class _Place(NamedTuple):
    """Where records of some kinds have a number."""

    what: str
    at: int
    dtype: Any
    kinds: tuple[Kind, ...]


_OF_LINKS: Final = (Kind.ARRIVED, Kind.FORGOTTEN, Kind.ACQUIRED, Kind.GIVEN_BACK)
_OF_GROUPS: Final = (Kind.GROUP_LEASED, Kind.GROUP_SETTLED, Kind.GROUP_PROGRESS, Kind.GROUP_LOCKED)
_OF_HALVES: Final = (
    Kind.HALF_STORED,
    Kind.HALF_DECIDED,
    Kind.HALF_CHECKED,
    Kind.HALF_PARKED,
    Kind.HALF_RESUMED,
)
_PLACES: Final = (
    _Place("link terminus", 0, U64, _OF_LINKS),
    _Place("queue", 8, U32, (Kind.ACQUIRED, Kind.GIVEN_BACK)),
    _Place("consumer group", 0, U32, _OF_GROUPS),
    _Place("queue", 4, U32, _OF_GROUPS),
    _Place("queue", 0, U32, (*_OF_HALVES, Kind.DELIVERED, Kind.HELD, Kind.RELEASED)),
)


def steps(records: Records, operations: Operations) -> Iterator[dict[str, object]]:
    """Yield a step for each number that some records of the log name."""
    for what, at, dtype, kinds in _PLACES:
        alone, inside = records.of_kind(*kinds), operations.of_kind(*kinds)
        if not len(alone) and not len(inside):
            continue
        length = np.r_[records.length[alone], operations.length[inside]]
        whole = length >= at + dtype.itemsize
        place = np.r_[records.at[alone], operations.at[inside]][whole] + at
        lsn = np.r_[records.lsn[alone], records.lsn[operations.record[inside]] + operations.order[inside]][whole]
        numbers, which = np.unique(take(records.data, place, dtype), return_inverse=True)
        first, last = np.full(len(numbers), np.iinfo(np.int64).max), np.zeros(len(numbers), np.int64)
        np.minimum.at(first, which, lsn)
        np.maximum.at(last, which, lsn)
        for number, begin, end in zip(numbers.tolist(), first.tolist(), last.tolist(), strict=True):
            others = {"operations": 0, "published": 0, "at_us": 0, "whole": True, "snapshot": False}
            yield {"step": STEP, "owner": what, "branch": number, "lsn": begin, "settled": end, **others}


def mention(row: Mapping[str, Any]) -> Mention:
    """Return the mention in a step."""
    return Mention(row["owner"], row["branch"], row["lsn"], row["settled"])
