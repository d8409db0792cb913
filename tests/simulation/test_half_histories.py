"""Histories of half messages deliver each committed message once, and planted bugs are found."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.__main__ import report
from tests.simulation.faulty_world import TROUBLES
from tests.simulation.half_world import WEIGHTS, HalfWorld
from tests.simulation.history import Failure, history, shrink
from tests.simulation.planted_half import PLANTED
from tests.simulation.planting import is_found
from tests.simulation.steps import Step

HISTORIES = 200
RARE = {
    "parking forgotten by recovery": 40,
    "a half message that cannot be read is committed": 65,
    "a refused append of a half message ignored": 96,
}
"""The first histories that find bugs which few histories find. They are tried first, which saves many seconds."""
NUMBER = st.integers(0, 255)
STEPS = st.lists(st.builds(Step, st.sampled_from(sorted(WEIGHTS)), NUMBER, NUMBER, NUMBER), max_size=80)

NEVER_MISSING = {
    *TROUBLES,
    *("commit", "roll back", "unknown", "resume", "force", "drop", "sent again", "checked", "check not taken"),
    *("refused: unknown", "refused: parked", "refused: rolled back", "refused: committed", "crashes", "messages"),
    *("arrived together", "survived: pending", "survived: parked", "survived: committed", "survived: rolled back"),
    "refused: the disk cannot be read",
}


@pytest.mark.rule(
    "HALF-1", "HALF-2", "HALF-3", "HALF-4", "HALF-5", "HALF-6", "HALF-11", "HALF-12", "DUR-2", "DUR-4", "DUR-5"
)
def test_histories_by_seed_deliver_each_committed_message_once() -> None:
    events: Counter[str] = Counter()
    for seed in range(120):
        result = history(seed, make_world=HalfWorld)
        if isinstance(result, Failure):
            pytest.fail(f"seed {seed}: {report(shrink(result, tries=300))}")
        events.update(result)
    assert {event for event, number in events.items() if number} >= NEVER_MISSING


@pytest.mark.rule("HALF-2", "HALF-3", "HALF-11")
@given(STEPS, st.integers(0, 2**16))
@settings(max_examples=40, deadline=None)
def test_generated_histories_deliver_each_committed_message_once(steps: list[Step], seed: int) -> None:
    HalfWorld(seed).run(steps)


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_found(bug: str) -> None:
    assert is_found(PLANTED[bug], HISTORIES, RARE.get(bug, 0), HalfWorld), f"not found in {HISTORIES} histories"
