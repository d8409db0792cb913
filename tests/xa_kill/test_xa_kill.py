"""DTX-15 end to end: queue, table and queue in one global transaction, with kill -9 of any party at any step."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.xa.postgres import needs_postgresql
from tests.xa_kill.rounds import kills_for, run_rounds
from tests.xa_kill.steps import EVERY, RECOVERY, TRANSFER, VICTIMS, schedule


@needs_postgresql
@pytest.mark.rule("DTX-8")
@pytest.mark.rule("DTX-10")
@pytest.mark.rule("DTX-15")
@pytest.mark.slow
def test_fifteen_kills(tmp_path: Path) -> None:
    run_rounds(tmp_path, kills_for(15, seed=1))


@needs_postgresql
@pytest.mark.long
@pytest.mark.timeout(0)
def test_kills_at_every_step(tmp_path: Path) -> None:
    """`XA_KILL_ROUNDS` and `XA_KILL_SEED` set the number of rounds and their order."""
    rounds, seed = int(os.environ.get("XA_KILL_ROUNDS", "150")), int(os.environ.get("XA_KILL_SEED", "2"))
    run_rounds(tmp_path, kills_for(rounds, seed), lambda line: print(line, flush=True))


def test_a_long_run_reaches_every_step_of_every_victim() -> None:
    kills = kills_for(EVERY, seed=5)
    assert {(kill.victim, kill.step) for kill in kills if kill.manager is None} == {
        (victim, step) for victim in VICTIMS for step in TRANSFER
    }
    assert {kill.manager for kill in kills} == {None, *RECOVERY}


def test_the_same_seed_is_the_same_schedule() -> None:
    assert schedule(200, 7) == schedule(200, 7)
    assert schedule(200, 7) != schedule(200, 8)
