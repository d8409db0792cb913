"""Processing stays exactly once when the real driver, workers and broker are killed (PIPE-3)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.spark_kill.moments import run_moments
from tests.spark_kill.points import POINTS
from tests.spark_kill.rounds import plan, run_rounds


@pytest.mark.rule("PIPE-1")
@pytest.mark.rule("PIPE-2")
@pytest.mark.rule("PIPE-3")
@pytest.mark.rule("PIPE-7")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ten_kills_and_freezes_at_random_moments_lose_and_duplicate_nothing(tmp_path: Path) -> None:
    run_moments(tmp_path, 10, seed=3)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_a_hundred_kills_and_freezes_at_random_moments_lose_and_duplicate_nothing(tmp_path: Path) -> None:
    """The environment variables SPARK_KILL_ROUNDS and SPARK_KILL_SEED change the number and the moments."""
    rounds, seed = int(os.environ.get("SPARK_KILL_ROUNDS", "100")), int(os.environ.get("SPARK_KILL_SEED", "4"))
    run_moments(tmp_path, rounds, seed, lambda line: print(line, flush=True))


@pytest.mark.long
@pytest.mark.timeout(0)
def test_fifty_kills_lose_and_duplicate_nothing(tmp_path: Path) -> None:
    """The environment variables SPARK_KILL_ROUNDS and SPARK_KILL_SEED change the number and the order of kills."""
    rounds, seed = int(os.environ.get("SPARK_KILL_ROUNDS", "51")), int(os.environ.get("SPARK_KILL_SEED", "4"))
    run_rounds(tmp_path, plan(rounds, seed), seed, lambda line: print(line, flush=True))


def test_a_plan_contains_every_point() -> None:
    assert set(plan(len(POINTS), 7)) == set(POINTS)
    assert plan(30, 1) == plan(30, 1)
