"""What the transaction manager raises. Every error says which participant is in which state."""

from __future__ import annotations

from collections.abc import Mapping

from escrowmq.xa.states import BranchState


class XaError(Exception):
    """Base of all errors of the transaction manager."""


class UsageError(XaError):
    """A call that makes no sense now: an unknown participant, a transaction that is over."""


class LogError(XaError):
    """The decision log cannot be opened, read or written; the text says why.

    `uncertain` tells that a decision may have come to the disk nevertheless.
    """

    def __init__(self, text: str, *, uncertain: bool = False) -> None:
        super().__init__(text)
        self.uncertain = uncertain


class LogInUse(LogError):  # noqa: N818 - the state is the name
    """Another live manager has the decision log."""


class LogDamaged(LogError):  # noqa: N818 - the state is the name
    """The log does not hold what was written to it. It is not used: what it lost would be rolled back."""


class TransactionError(XaError):
    """Base of what `commit` and `rollback` raise. `id` is the transaction's, `states` what each participant is in."""

    def __init__(self, text: str, id: str, states: Mapping[str, BranchState]) -> None:
        said = ", ".join(f"{participant}: {state.value}" for participant, state in states.items())
        super().__init__(f"{text} ({said}; transaction {id})" if said else f"{text} (transaction {id})")
        self.id = id
        self.states = dict(states)


class RolledBack(TransactionError):  # noqa: N818 - the state is the name
    """Nothing of the transaction has happened, or will. It can be tried again as a new one.

    A participant in the state `no answer` is told by recovery as soon as it can be reached.
    """


class TimedOut(RolledBack, TimeoutError):  # noqa: N818 - the state is the name
    """Rolled back because it took longer than its timeout."""


class InDoubt(TransactionError):  # noqa: N818 - the state is the name
    """The outcome is not known yet. It will be the same for all participants, and recovery brings it about.

    After a failure of the decision log: when the log can be written again, or with the next manager that opens it.
    After a lost answer to a one-phase commit: the one participant has decided already, ask it.
    """


class HeuristicError(TransactionError):
    """Somebody completed a branch by hand, against the decision or without its being known (DTX-11).

    `outcome` is that of the transaction as a whole: `commit` or `rollback` (the same everywhere, but not what was
    decided), `mixed`, or `hazard` (a participant does not know). It stays in the log until `TransactionManager.forget`.
    """

    def __init__(self, outcome: str, decided: str, id: str, states: Mapping[str, BranchState]) -> None:
        super().__init__(f"heuristic {outcome}: {decided} was decided", id, states)
        self.outcome = outcome
        self.decided = decided
