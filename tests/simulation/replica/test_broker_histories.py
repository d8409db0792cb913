"""Histories of the whole broker on a journal that several nodes share, with every world and its oracle."""

from __future__ import annotations

import os
from typing import Final

import pytest

from tests.simulation.__main__ import report
from tests.simulation.history import Failure, history, shrink
from tests.simulation.planting import planted
from tests.simulation.replica.brokers import PLANTED, SEARCHING, STEPS, WORLDS, clusters

HISTORIES: Final = 12
SEARCHED: Final = 60
RARE: Final = {"a frame that never counted comes back": 126}
"""The seed of a history of branches that finds a bug which few others find."""
FOUND: Final = {
    "LinkWorld": (25, 63, 202),
    "GroupWorld": (20, 221, 264),
    "HalfWorld": (226,),
    "SessionBranchWorld": (285,),
    "SessionWorld": (23037,),
}
"""The seeds of histories that found faults. In 25 and 63, the log loses the only snapshot that covers a gap. In that of
half messages, a frame that was dropped comes back after a power failure. In 23037, changes of the clock add up. In the
others, the log loses claims, and a copy that has counted in one of them is not the newest.
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_every_world_keeps_its_rules_when_other_nodes_take_over(name: str) -> None:
    with clusters() as made:
        for seed in range(HISTORIES):
            result = history(seed, STEPS, WORLDS[name])
            if isinstance(result, Failure):
                pytest.fail(f"seed {seed}: {report(shrink(result, tries=100))}")
    assert sum(cluster.take_overs for cluster in made) > 2 * HISTORIES
    assert sum(cluster.losses for cluster in made)
    assert sum(cluster.restored for cluster in made)


@pytest.mark.parametrize(("name", "seed"), [(name, seed) for name, seeds in FOUND.items() for seed in seeds])
def test_histories_that_once_found_faults_break_no_rule(name: str, seed: int) -> None:
    with clusters():
        result = history(seed, STEPS, WORLDS[name])
    assert not isinstance(result, Failure), report(result)


def test_deposed_leaders_that_go_on_and_trimmed_logs_are_among_the_histories() -> None:
    with clusters() as made:
        for seed in range(HISTORIES):
            history(seed, STEPS)
    assert sum(cluster.resumed for cluster in made)
    assert sum(cluster.trimmed for cluster in made)


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_found(bug: str) -> None:
    with clusters(), planted(PLANTED[bug]):
        for seed in (*([RARE[bug]] if bug in RARE else []), *range(SEARCHED)):
            for world in SEARCHING:
                if isinstance(history(seed, STEPS, WORLDS[world]), Failure):
                    return
    pytest.fail(f"not found in {SEARCHED} histories")


@pytest.mark.long
@pytest.mark.parametrize("name", WORLDS)
def test_very_many_histories_on_clusters_break_no_rule(name: str) -> None:
    first = int(os.environ.get("LONG_START", "1000"))
    with clusters():
        for seed in range(first, first + int(os.environ.get("LONG_SEEDS", "15000"))):
            result = history(seed, STEPS, WORLDS[name])
            assert not isinstance(result, Failure), f"seed {seed}: {report(result)}"
