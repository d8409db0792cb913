"""The outcome of a transaction after heuristic decisions."""

from __future__ import annotations

import pytest

from escrowmq.xa.states import BranchState as S
from escrowmq.xa.states import heuristic_outcome


@pytest.mark.rule("DTX-11")
@pytest.mark.parametrize(
    ("states", "outcome"),
    [
        ([S.COMMITTED, S.COMMITTED], None),
        ([S.ROLLED_BACK], None),
        ([], None),
        ([S.HEURISTIC_ROLLBACK, S.HEURISTIC_ROLLBACK], "rollback"),
        ([S.HEURISTIC_ROLLBACK, S.READ_ONLY], "rollback"),
        ([S.HEURISTIC_ROLLBACK, S.COMMITTED], "mixed"),
        ([S.HEURISTIC_COMMIT, S.COMMITTED], "commit"),
        ([S.HEURISTIC_COMMIT, S.ROLLED_BACK], "mixed"),
        ([S.HEURISTIC_MIXED, S.COMMITTED], "mixed"),
        ([S.HEURISTIC_HAZARD, S.HEURISTIC_ROLLBACK], "hazard"),
    ],
)
def test_the_outcome_follows_from_all_states_together(states: list[S], outcome: str | None) -> None:
    assert heuristic_outcome(states) == outcome
