"""The states of a branch as the transaction manager sees it, and what they make together."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Final


class BranchState(StrEnum):
    """One participant's part of a global transaction."""

    ACTIVE = "active"
    PREPARED = "prepared"
    READ_ONLY = "read-only"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    UNANSWERED = "no answer"
    """It was asked and did not answer, or not clearly; recovery asks again."""
    HEURISTIC_COMMIT = "committed by hand"
    HEURISTIC_ROLLBACK = "rolled back by hand"
    HEURISTIC_MIXED = "partly committed by hand"
    HEURISTIC_HAZARD = "completed by hand, nobody knows how"


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
    """What heuristic decisions made of a transaction: commit, rollback, mixed, hazard; None if there were none.

    `states` are those of its branches that had work; one that has not answered yet counts as what was decided, so the
    caller gives COMMITTED or ROLLED_BACK for it.
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
