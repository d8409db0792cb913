"""The simulator finds each planted bug within a bounded number of histories."""

from __future__ import annotations

import pytest

from tests.simulation.history import Failure, history, shrink
from tests.simulation.planted import PLANTED
from tests.simulation.planting import is_found, planted
from tests.simulation.world import World

HISTORIES = 400
RARE = {
    "a commit written as two records": 224,
    "ack record lost": 29,
    "transaction visible at once": 16,
    "large commit visible at once": 13,
    "rollback forgets deliveries": 20,
    "a refused append ignored": 24,
    "a footer before the sync of the frames": 62,
}
"""The first histories that find bugs which few histories find. They are tried first, which saves many seconds."""


@pytest.mark.slow
@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_found(bug: str) -> None:
    assert is_found(PLANTED[bug], HISTORIES, RARE.get(bug, 0)), f"not found in {HISTORIES} histories"


def test_a_failing_history_is_shortened() -> None:
    with planted(PLANTED["prefetch counted by half"]):
        failures = (history(seed) for seed in range(HISTORIES))
        failure = next(result for result in failures if isinstance(result, Failure))
        short = shrink(failure)
        assert failure.is_violation
        assert len(short.steps) < 10 < len(failure.steps)
        with pytest.raises(type(failure.error)):
            World(short.seed).run(short.steps)
