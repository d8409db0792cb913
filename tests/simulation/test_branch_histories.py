"""Histories of distributed transactions break no rule, and planted bugs are found."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.__main__ import report
from tests.simulation.branch_world import WEIGHTS, BranchWorld
from tests.simulation.history import Failure, history, shrink
from tests.simulation.planted_branches import PLANTED
from tests.simulation.planting import is_found
from tests.simulation.steps import Step

HISTORIES = 400
RARE = {
    "settlements missing in the commit's record": 33,
    "prepared although the append was refused": 79,
    "half of a large commit visible": 20,
    "a prepared branch that cannot commit": 73,
    "retry after a failed sync": 15,
}
"""The first histories that find bugs which few histories find. They are tried first, which saves many seconds."""
NUMBER = st.integers(0, 255)
STEPS = st.lists(st.builds(Step, st.sampled_from(sorted(WEIGHTS)), NUMBER, NUMBER, NUMBER), max_size=80)

NEVER_MISSING = {
    *("start: OK", "start: NOT_ALLOWED", "start: COMMAND_INVALID", "join: OK", "join: RB_TIMEOUT", "resume: OK"),
    *("end: OK", "end: RB_ROLLBACK", "end: RB_TIMEOUT", "fail: RB_ROLLBACK", "suspend: OK", "suspend: NOT_FOUND"),
    *("prepare: OK", "prepare: RDONLY", "prepare: RB_ROLLBACK", "prepare: RB_TIMEOUT", "prepare: ILLEGAL_STATE"),
    *("commit: OK", "commit: RB_ROLLBACK", "commit one-phase: OK", "commit one-phase: ILLEGAL_STATE"),
    *("rollback: OK", "force: HEUR_COM", "force: HEUR_RB", "forget: ", "decide: OK", "decide: NOT_FOUND"),
    *("survived: prepared", "survived: forced commit", "survived: forced rollback", "failed syncs", "power failures"),
    *("commit: HEUR_COM", "commit: HEUR_RB", "rollback: HEUR_COM", "rollback: HEUR_RB", "clock set back"),
    *("returned: requeue", "returned: release", "returned: modify", "returned: modify and fail"),
    *("prepare in pieces: OK", "commit in pieces: OK", "commit in pieces: NOT_FOUND", "decide in pieces: OK"),
    "commit one-phase in pieces: OK",
    *("clock set forward", "full disks", "refused appends", "queues unavailable", "refused: the disk cannot be read"),
}


@pytest.mark.slow
@pytest.mark.rule("DTX-3", "DTX-4", "DTX-5", "DTX-7", "DTX-8", "DTX-9", "DTX-10", "DTX-11", "DTX-12", "DTX-14")
@pytest.mark.rule("TX-5", "TX-8", "ORD-2", "ORD-4", "ORD-5", "PIPE-2")
@pytest.mark.parametrize("first", range(0, 150, 50))
def test_histories_by_seed_agree_with_the_model(first: int) -> None:
    for seed in range(first, first + 50):
        result = history(seed, make_world=BranchWorld)
        if isinstance(result, Failure):
            pytest.fail(f"seed {seed}: {report(shrink(result, tries=300))}")


@pytest.mark.slow
def test_histories_by_seed_cover_all_events() -> None:
    events: Counter[str] = Counter()
    for seed in range(HISTORIES):
        result = history(seed, make_world=BranchWorld)
        assert not isinstance(result, Failure), result
        events.update({event: number for event, number in result.items() if number})
        if events.keys() >= NEVER_MISSING:
            return
    pytest.fail(f"not covered by {HISTORIES} histories: {NEVER_MISSING - events.keys()}")


@pytest.mark.rule("DTX-8", "DTX-9", "TX-5")
@given(STEPS, st.integers(0, 2**16))
@settings(max_examples=60)
def test_generated_histories_agree_with_the_model(steps: list[Step], seed: int) -> None:
    BranchWorld(seed).run(steps)


@pytest.mark.slow
@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_found(bug: str) -> None:
    assert is_found(PLANTED[bug], HISTORIES, RARE.get(bug, 0), BranchWorld), f"not found in {HISTORIES} histories"
