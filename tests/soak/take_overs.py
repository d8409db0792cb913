"""Rounds of faults with replicated brokers, in batches that can be gone on with after an interruption."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from tests.replica_kill.__main__ import KINDS

SIZE: Final = 50
"""The rounds of a batch, each of which begins with empty brokers and ends with the judgement of all that is left."""


class Batch(NamedTuple):
    """Some rounds on one engine. `first` is the number of the first one, from 1 on, among those on all engines."""

    engine: str
    first: int
    rounds: int
    seed: int


def batches(count: int, seed: int) -> Iterator[Batch]:
    """Divide so many rounds among the engines, and the rounds of each among batches with consecutive seeds."""
    share = count // len(KINDS)
    for number, engine in enumerate(KINDS):
        for begin in range(0, share, SIZE):
            yield Batch(engine, number * share + begin + 1, min(SIZE, share - begin), seed)
            seed += 1


def run_take_overs(
    count: int, first: int, seed: int, report: Callable[[str], None], run: Callable[[Batch], None] | None = None
) -> None:
    """Harm replicated brokers and nodes of their engine, from the batch on that has the round `first`.

    Each node's journal must be clean. `run` runs a batch.
    """
    left_out = {engine: why for engine, kind in KINDS.items() if (why := kind.missing()) is not None}
    if count:
        for engine, why in left_out.items():
            report(f"left out: replication on {KINDS[engine].engine}: {why}")
    for batch in batches(count, seed):
        last = batch.first + batch.rounds - 1
        if batch.engine in left_out or last < first:
            continue
        report(
            f"rounds {batch.first} to {last} of {count}, on {KINDS[batch.engine].engine} with seed {batch.seed}; to go "
            f"on here after an interruption: --minutes 0 --backups 0 --kills 0 --take-overs {count} "
            f"--first-take-over {batch.first} --seed {seed}"
        )
        (run or _run)(batch)


def _run(batch: Batch) -> None:
    options = ["--rounds", str(batch.rounds), "--seed", str(batch.seed), "--engine", batch.engine]
    subprocess.run([sys.executable, "-u", "-m", "tests.replica_kill", *options], check=True)
