"""The simulator finds each planted bug within a bounded number of histories."""

from __future__ import annotations

import pytest

from tests.simulation.history import Failure, history, shrink
from tests.simulation.planted import PLANTED
from tests.simulation.planting import planted
from tests.simulation.world import World

HISTORIES = 400
RARE = {"a commit written as two records": 224, "a footer before the sync of the frames": 62}
"""The first histories that find bugs which few histories find. They are tried first, which saves many seconds."""


@pytest.mark.slow
@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_found(bug: str) -> None:
    with planted(PLANTED[bug]):
        for seed in (RARE.get(bug, 0), *range(HISTORIES)):
            if isinstance(history(seed), Failure):
                return
    pytest.fail(f"not found in {HISTORIES} histories")


def test_a_failing_history_is_shortened() -> None:
    with planted(PLANTED["prefetch counted by half"]):
        failures = (history(seed) for seed in range(HISTORIES))
        failure = next(result for result in failures if isinstance(result, Failure))
        short = shrink(failure)
        assert failure.is_violation
        assert len(short.steps) < 10 < len(failure.steps)
        with pytest.raises(type(failure.error)):
            World(short.seed).run(short.steps)
