"""Histories of RocketMQ's endpoints keep what was answered, and planted bugs are found."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.__main__ import report
from tests.simulation.history import Failure, history, shrink
from tests.simulation.planting import is_found
from tests.simulation.rocketmq.planted import PLANTED
from tests.simulation.rocketmq.world import RocketmqWorld

HISTORIES = 100
NEVER_MISSING = {
    *("answered: send", "answered: store", "answered: commit", "answered: roll back", "refused: contrary"),
    *("checked", "pulled", "opened again", "crash", "kill", "restarts", "messages"),
    *("failed syncs", "power failures", "refused appends", "full disks", "clock set back", "clock set forward"),
}


@pytest.mark.slow
@pytest.mark.rule("HALF-1", "HALF-2", "HALF-3", "HALF-11", "GRP-1", "DUR-1", "DUR-2")
def test_histories_by_seed_keep_what_was_answered() -> None:
    events: Counter[str] = Counter()
    for seed in range(25):
        result = history(seed, make_world=RocketmqWorld)
        if isinstance(result, Failure):
            pytest.fail(f"seed {seed}: {report(shrink(result, tries=300))}")
        events.update(result)
    assert {event for event, number in events.items() if number} >= NEVER_MISSING


@pytest.mark.slow
@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_found(bug: str) -> None:
    found = is_found(PLANTED[bug], HISTORIES, make_world=RocketmqWorld)
    assert found, f"not found in {HISTORIES} histories"
