"""Computes the expected results from the data set, without broker and Spark, and compares them with the actual ones."""

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
    """The sums of a carrier in an hour of the day: flights, arrived flights, their delay in minutes, late flights."""

    flights: int
    arrived: int
    delay: int
    late: int


Key = tuple[str, int]
Table = Mapping[Key, Sums]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The table, the numbers of the late flights in order, and the counts of leftovers, which should be zero."""

    table: Table
    late: list[int]
    waiting: int = 0
    held: int = 0
    in_doubt: int = 0
    files: int = field(default=0, compare=False)

    @property
    def flights(self) -> int:
        """The number of flights in the table."""
        return sum(sums.flights for sums in self.table.values())


def expected(data: Path, limit: int) -> Outcome:
    """Compute the results from the data set."""
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
    """Read the results from the broker and the table."""
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
    """Compare the results. Returns one line for each fault."""
    wrong = []
    if outcome.flights != wanted.flights:
        wrong.append(f"the table counts {outcome.flights:,} flights, not {wanted.flights:,}")
    keys = wanted.table.keys() | outcome.table.keys()
    differ = sorted(key for key in keys if wanted.table.get(key) != outcome.table.get(key))
    if differ:
        carrier, hour = differ[0]
        wrong.append(f"{len(differ)} of {len(keys)} rows of the table are wrong; the first is {carrier} at {hour} h")
    counts = Counter(outcome.late)
    twice = sum(1 for count in counts.values() if count > 1)
    if twice:
        wrong.append(f"{twice:,} late flights are on the queue more than once")
    missing = len(set(wanted.late) - counts.keys())
    if missing:
        wrong.append(f"{missing:,} late flights are not on the queue")
    strange = len(counts.keys() - set(wanted.late))
    if strange:
        wrong.append(f"{strange:,} flights on the queue of late flights were not late")
    if outcome.waiting or outcome.held or outcome.in_doubt:
        wrong.append(
            f"left behind: {outcome.waiting:,} messages waiting, {outcome.held:,} held, "
            f"{outcome.in_doubt:,} branches in doubt"
        )
    return wrong


def worst(table: Table, least: int) -> tuple[Key, float] | None:
    """Return the row with the longest average delay, and that delay in minutes.

    Rows with fewer than `least` arrived flights are ignored. Returns None if there is no other row.
    """
    means = [(sums.delay / sums.arrived, key) for key, sums in table.items() if sums.arrived >= least]
    return (max(means)[1], max(means)[0]) if means else None
