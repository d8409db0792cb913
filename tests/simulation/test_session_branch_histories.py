"""Histories of distributed transactions over sessions of AMQP 0-10 break no rule, and planted bugs are found."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.__main__ import report
from tests.simulation.amqp010.branch_world import SessionBranchWorld
from tests.simulation.amqp010.planted_branches import PLANTED
from tests.simulation.history import Failure, history, shrink
from tests.simulation.planting import is_found

HISTORIES = 400
RARE = {
    "read-only reported as prepared": 26,
    "heuristic decisions not in doubt": 47,
    "deliveries of an ended session lost": 14,
}
"""The first histories that find bugs which few histories find. They are tried first, which saves many seconds."""
NEVER_MISSING = {
    *("start: OK", "start: NOT_ALLOWED", "start: COMMAND_INVALID", "join: OK", "join: NOT_FOUND", "resume: OK"),
    *("resume: COMMAND_INVALID", "end: OK", "end: RB_ROLLBACK", "end: ILLEGAL_STATE", "end: COMMAND_INVALID"),
    *("fail: RB_ROLLBACK", "suspend: OK", "prepare: OK", "prepare: RDONLY", "prepare: RB_ROLLBACK"),
    *("prepare: ILLEGAL_STATE", "prepare: NOT_FOUND", "commit: OK", "commit: NOT_FOUND", "commit: RB_ROLLBACK"),
    *("commit one-phase: OK", "commit one-phase: ILLEGAL_STATE", "commit: HEUR_COM", "commit: HEUR_RB"),
    *("rollback: OK", "rollback: HEUR_COM", "rollback: HEUR_RB", "forget: ", "forget: ILLEGAL_STATE", "recover"),
    *("rejected beside a branch", "released beside a branch", "connections lost", "sessions detached"),
    *("survived: prepared", "failed syncs", "power failures", "decide: OK", "force: HEUR_COM", "force: HEUR_RB"),
}


@pytest.mark.slow
@pytest.mark.rule("DTX-3", "DTX-4", "DTX-5", "DTX-7", "DTX-8", "DTX-9", "DTX-10", "DTX-11", "DTX-12", "DTX-14")
@pytest.mark.parametrize("first", range(0, 60, 30))
def test_histories_by_seed_agree_with_the_model(first: int) -> None:
    for seed in range(first, first + 30):
        result = history(seed, make_world=SessionBranchWorld)
        if isinstance(result, Failure):
            pytest.fail(f"seed {seed}: {report(shrink(result, tries=300))}")


@pytest.mark.slow
def test_histories_by_seed_cover_all_events() -> None:
    events: Counter[str] = Counter()
    for seed in range(HISTORIES):
        result = history(seed, make_world=SessionBranchWorld)
        assert not isinstance(result, Failure), result
        events.update({event: number for event, number in result.items() if number})
        if events.keys() >= NEVER_MISSING:
            return
    pytest.fail(f"not covered by {HISTORIES} histories: {NEVER_MISSING - events.keys()}")


def test_a_history_is_the_same_each_time() -> None:
    assert history(3, 60, SessionBranchWorld) == history(3, 60, SessionBranchWorld)


@pytest.mark.slow
@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_found(bug: str) -> None:
    found = is_found(PLANTED[bug], HISTORIES, RARE.get(bug, 0), SessionBranchWorld)
    assert found, f"not found in {HISTORIES} histories"
