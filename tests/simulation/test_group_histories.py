"""Histories of consumer groups keep their rules, and planted bugs are found."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.__main__ import report
from tests.simulation.faulty_world import TROUBLES
from tests.simulation.group_world import WEIGHTS, GroupWorld
from tests.simulation.history import Failure, history, shrink
from tests.simulation.planted_groups import PLANTED
from tests.simulation.planting import is_found
from tests.simulation.steps import Step

HISTORIES = 200
RARE = {
    "later messages of a key are not revoked": 11,
    "one attempt too many": 6,
    "retry after a failed sync": 80,
    "a full disk ignored": 12,
}
"""The first histories that find bugs which few histories find. They are tried first, which saves many seconds."""
NUMBER = st.integers(0, 255)
STEPS = st.lists(st.builds(Step, st.sampled_from(sorted(WEIGHTS)), NUMBER, NUMBER, NUMBER), max_size=80)

NEVER_MISSING = {
    *TROUBLES,
    *("leased", "leased again", "called", "acknowledged", "stale handles", "prolonged", "given back", "buried"),
    "refused: the disk cannot be read",
    *("reset", "crashes", "dead letters", "messages"),
}


@pytest.mark.rule("GRP-1", "GRP-2", "GRP-3", "GRP-4", "GRP-5", "GRP-6", "DUR-2", "DUR-4", "DUR-5")
def test_histories_by_seed_handle_every_message() -> None:
    events: Counter[str] = Counter()
    for seed in range(60):
        result = history(seed, make_world=GroupWorld)
        if isinstance(result, Failure):
            pytest.fail(f"seed {seed}: {report(shrink(result, tries=300))}")
        events.update(result)
    assert {event for event, number in events.items() if number} >= NEVER_MISSING


@pytest.mark.rule("GRP-2", "GRP-3")
@given(STEPS, st.integers(0, 2**16))
@settings(max_examples=40, deadline=None)
def test_generated_histories_handle_every_message(steps: list[Step], seed: int) -> None:
    GroupWorld(seed).run(steps)


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_found(bug: str) -> None:
    assert is_found(PLANTED[bug], HISTORIES, RARE.get(bug, 0), GroupWorld), f"not found in {HISTORIES} histories"
