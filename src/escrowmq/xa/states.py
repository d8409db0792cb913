"""The states of a branch as the transaction manager sees them, and the outcome of several together."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Final


class BranchState(StrEnum):
    """The state of one participant's branch. The values are stored in decision logs, so they must not change."""

    ACTIVE = "active"
    PREPARED = "prepared"
    READ_ONLY = "read-only"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    UNANSWERED = "no answer"
    """The participant did not answer, or not clearly. Recovery asks again."""
    HEURISTIC_COMMIT = "committed by hand"
    HEURISTIC_ROLLBACK = "rolled back by hand"
    HEURISTIC_MIXED = "partly committed by hand"
    HEURISTIC_HAZARD = "completed by hand, with an unknown outcome"


HEURISTIC: Final = frozenset(
    {
        BranchState.HEURISTIC_COMMIT,
        BranchState.HEURISTIC_ROLLBACK,
        BranchState.HEURISTIC_MIXED,
        BranchState.HEURISTIC_HAZARD,
    }
)
FINAL: Final = HEURISTIC | {BranchState.READ_ONLY, BranchState.COMMITTED, BranchState.ROLLED_BACK}

COMMIT: Final = "commit"
ROLLBACK: Final = "rollback"


def heuristic_outcome(states: Collection[BranchState]) -> str | None:
    """Return the outcome of a transaction after heuristic decisions: commit, rollback, mixed or hazard.

    `states` are those of the branches with work. For a branch that has not answered yet, the caller passes COMMITTED or
    ROLLED_BACK, according to the decision. Returns None if there were no heuristic decisions.
    """
    found = set(states) - {BranchState.READ_ONLY}
    if not found & HEURISTIC:
        return None
    if BranchState.HEURISTIC_HAZARD in found:
        return "hazard"
    if found <= {BranchState.COMMITTED, BranchState.HEURISTIC_COMMIT}:
        return COMMIT
    if found <= {BranchState.ROLLED_BACK, BranchState.HEURISTIC_ROLLBACK}:
        return ROLLBACK
    return "mixed"
