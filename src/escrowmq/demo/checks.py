"""What must have come out, computed from the data set without broker and Spark; and what did."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import escrowmq.client
from escrowmq.client.escrow import Escrow
from escrowmq.demo import flights
from escrowmq.demo.driver import GROUP
from escrowmq.demo.link import LATE, QUEUE, STREAMING, look, waiting
from escrowmq.demo.query import LATE_MINUTES

_FIELDS: Final = ("flights", "arrived", "delay", "late")


class Sums(NamedTuple):
    """Of a carrier in an hour of the day: flights, those that arrived, their minutes of delay, how many were late."""

    flights: int
    arrived: int
    delay: int
    late: int


Key = tuple[str, int]
Table = Mapping[Key, Sums]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The table, the numbers of the late flights in their order; and what is left where nothing should be."""

    table: Table
    late: list[int]
    waiting: int = 0
    held: int = 0
    in_doubt: int = 0
    files: int = field(default=0, compare=False)

    @property
    def flights(self) -> int:
        """How many flights the table counts."""
        return sum(sums.flights for sums in self.table.values())


def expected(data: Path, limit: int) -> Outcome:
    """From the data set itself."""
    table: dict[Key, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    late = []
    for ident, flight in enumerate(flights.flights(data, limit)):
        delay = flight["arr_delay"]
        sums = table[str(flight["carrier"]), int(flight["hour"] or 0)]
        sums[0] += 1
        if delay is None:
            continue
        sums[1] += 1
        sums[2] += int(delay)
        if int(delay) >= LATE_MINUTES:
            sums[3] += 1
            late.append(ident)
    return Outcome({key: Sums(*values) for key, values in table.items()}, late)


def found(url: str, table: Path) -> Outcome:
    """From broker and table."""
    from pyarrow import dataset

    total: dict[Key, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    parts = dataset.dataset(table, format="parquet")
    for row in parts.to_table(columns=["carrier", "hour", *_FIELDS]).to_pylist():
        sums = total[row["carrier"], row["hour"]]
        for i, name in enumerate(_FIELDS):
            sums[i] += row[name]
    late = [int(json.loads(body)["id"]) for body in look(url, LATE)]
    with escrowmq.client.connect(url) as connection:
        hold = Escrow(connection).hold(STREAMING, GROUP)
        in_doubt = len(connection.tpc_recover())
    left = waiting(url, QUEUE) + waiting(url, STREAMING)
    sums_of = {key: Sums(*values) for key, values in total.items()}
    return Outcome(sums_of, late, left, hold.end - hold.first, in_doubt, len(parts.files))


def faults(wanted: Outcome, outcome: Outcome) -> list[str]:
    """What is wrong; nothing, if all is well."""
    wrong = []
    if outcome.flights != wanted.flights:
        wrong.append(f"the table counts {outcome.flights:,} flights, not {wanted.flights:,}")
    keys = wanted.table.keys() | outcome.table.keys()
    differ = sorted(key for key in keys if wanted.table.get(key) != outcome.table.get(key))
    if differ:
        carrier, hour = differ[0]
        wrong.append(f"{len(differ)} of {len(keys)} rows of the table are wrong, first that of {carrier} at {hour} h")
    counts = Counter(outcome.late)
    twice = sum(1 for count in counts.values() if count > 1)
    if twice:
        wrong.append(f"{twice:,} late flights are on the queue more than once")
    missing = len(set(wanted.late) - counts.keys())
    if missing:
        wrong.append(f"{missing:,} late flights are not on the queue")
    strange = len(counts.keys() - set(wanted.late))
    if strange:
        wrong.append(f"{strange:,} flights on the queue of late ones were not late")
    if outcome.waiting or outcome.held or outcome.in_doubt:
        wrong.append(
            f"left behind: {outcome.waiting:,} messages waiting, {outcome.held:,} held, "
            f"{outcome.in_doubt:,} branches in doubt"
        )
    return wrong


def worst(table: Table, least: int) -> tuple[Key, float] | None:
    """Where one waited longest, on average in minutes, of what at least so many flights tell."""
    means = [(sums.delay / sums.arrived, key) for key, sums in table.items() if sums.arrived >= least]
    return (max(means)[1], max(means)[0]) if means else None
