"""Random histories of replication keep its promises, and find each planted bug."""

from __future__ import annotations

import pytest

from escrowmq.replica.errors import ReplicaError
from tests.simulation.ledger import Violation
from tests.simulation.planting import planted
from tests.simulation.replica.planted import PLANTED
from tests.simulation.replica.world import World

HISTORIES = 300
STEPS = 120


def test_confirmed_frames_survive_every_change_of_the_leader() -> None:
    worlds = [World(seed) for seed in range(HISTORIES)]
    for world in worlds:
        world.run(STEPS)
    assert sum(world.take_overs for world in worlds) > HISTORIES
    assert sum(len(world.confirmed) for world in worlds) > 5 * HISTORIES
    assert sum(world.deposed for world in worlds) > HISTORIES // 3
    assert sum(world.answers for world in worlds) > HISTORIES


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_found(bug: str) -> None:
    with planted(PLANTED[bug]):
        for seed in range(HISTORIES):
            try:
                World(seed).run(STEPS)
            except (Violation, ReplicaError):
                return
    pytest.fail(f"not found in {HISTORIES} histories")
