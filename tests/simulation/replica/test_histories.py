"""Random histories of replication keep its promises, and find each planted bug."""

from __future__ import annotations

import os

import pytest

from escrowmq.replica.errors import ReplicaError
from tests.simulation.ledger import Violation
from tests.simulation.planting import planted
from tests.simulation.replica.forks import KINDS, ForkingWorld
from tests.simulation.replica.planted import PLANTED, PLANTED_WITH_LOSSES
from tests.simulation.replica.world import World

HISTORIES = 150
STEPS = 120
RARE = {"what the log has lost is not put back": 11, "a log that has become shorter is read on": 16}
"""The first histories that find bugs which few histories find. They are tried first, which saves many seconds."""
FOUND = (602269, 603028)
"""The seeds of histories with losses in which the log loses the header of a segment that has no frame yet."""


def test_confirmed_frames_survive_every_change_of_the_leader() -> None:
    worlds = [World(seed) for seed in range(HISTORIES)]
    for world in worlds:
        world.run(STEPS)
    assert sum(world.take_overs for world in worlds) > HISTORIES
    assert sum(len(world.confirmed) for world in worlds) > 5 * HISTORIES
    assert sum(world.deposed for world in worlds) > HISTORIES // 3
    assert sum(world.answers for world in worlds) > HISTORIES
    assert sum(world.trimmed for world in worlds) > HISTORIES // 20
    assert any(world.copied_anew for world in worlds)


def test_what_the_log_loses_is_put_back_from_copies_or_reported() -> None:
    worlds = [World(seed, losing=True) for seed in range(HISTORIES)]
    for world in worlds:
        world.run(STEPS)
    assert sum(world.losses for world in worlds) > HISTORIES
    assert sum(world.found_lost for world in worlds) > HISTORIES
    assert sum(world.put_back for world in worlds) > HISTORIES


def test_a_leader_whose_claim_the_log_has_lost_disturbs_no_other_with_the_same_epoch() -> None:
    worlds = [ForkingWorld(seed) for seed in range(HISTORIES // 10)]
    for world in worlds:
        world.run(STEPS)
    assert sum(world.forks for world in worlds) > HISTORIES // 10


@pytest.mark.parametrize("seed", FOUND)
def test_histories_with_losses_that_once_found_faults_break_no_rule(seed: int) -> None:
    World(seed, losing=True).run(STEPS)


@pytest.mark.parametrize("bug", [*PLANTED, *PLANTED_WITH_LOSSES])
def test_planted_bugs_are_found(bug: str) -> None:
    with planted({**PLANTED, **PLANTED_WITH_LOSSES}[bug]):
        for seed in (RARE.get(bug, 0), *range(HISTORIES // 3)):
            world = ForkingWorld(seed) if bug in PLANTED_WITH_LOSSES else World(seed)
            try:
                world.run(STEPS)
            except (Violation, ReplicaError):
                return
    pytest.fail(f"not found in {HISTORIES // 3} histories")


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_very_many_histories_break_no_rule(kind: str) -> None:
    first = int(os.environ.get("LONG_START", "1000"))
    for seed in range(first, first + int(os.environ.get("LONG_SEEDS", "15000"))):
        KINDS[kind](seed).run(STEPS)
