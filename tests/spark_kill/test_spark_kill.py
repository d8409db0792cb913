"""Exactly once is proved by killing: the real driver, its real workers, the real broker (PIPE-3)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.spark_kill.points import POINTS
from tests.spark_kill.rounds import plan, run_rounds

SHORT = (  # before the decision, tests/demo kills the driver
    "driver: the epoch is decided, Spark has not noted it",
    "worker: prepared, and has not told",
    "broker: amid of write",
)


@pytest.mark.rule("PIPE-1")
@pytest.mark.rule("PIPE-2")
@pytest.mark.rule("PIPE-3")
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("spark")
def test_one_kill_of_each_kind(tmp_path: Path) -> None:
    run_rounds(tmp_path, SHORT, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_fifty_kills(tmp_path: Path) -> None:
    """`SPARK_KILL_ROUNDS` and `SPARK_KILL_SEED` change how many, and in which order."""
    rounds, seed = int(os.environ.get("SPARK_KILL_ROUNDS", "51")), int(os.environ.get("SPARK_KILL_SEED", "4"))
    run_rounds(tmp_path, plan(rounds, seed), seed, lambda line: print(line, flush=True))


def test_every_point_is_in_a_plan() -> None:
    assert set(SHORT) <= set(POINTS)
    assert set(plan(len(POINTS), 7)) == set(POINTS)
    assert plan(30, 1) == plan(30, 1)
