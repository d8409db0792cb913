"""The errors of the transaction manager. Those about a transaction name each participant's state."""

from __future__ import annotations

from collections.abc import Mapping

from escrowmq.xa.states import BranchState


class XaError(Exception):
    """The base of all errors of the transaction manager."""


class UsageError(XaError):
    """The call is not valid now: for example, the participant is unknown or the transaction is over."""


class LogError(XaError):
    """The decision log cannot be opened, read or written; the text says why.

    `uncertain` means that a decision may have reached the disk nevertheless.
    """

    def __init__(self, text: str, *, uncertain: bool = False) -> None:
        super().__init__(text)
        self.uncertain = uncertain


class LogInUse(LogError):  # noqa: N818 - the state is the name
    """Another running manager uses the decision log."""


class LogDamaged(LogError):  # noqa: N818 - the state is the name
    """The log's content is not what was written. It is not used, because lost decisions would be rolled back."""


class TransactionError(XaError):
    """The base of the errors of `commit` and `rollback`.

    `id` is the transaction's; `states` is the state of each participant.
    """

    def __init__(self, text: str, id: str, states: Mapping[str, BranchState]) -> None:
        said = ", ".join(f"{participant}: {state.value}" for participant, state in states.items())
        super().__init__(f"{text} ({said}; transaction {id})" if said else f"{text} (transaction {id})")
        self.id = id
        self.states = dict(states)


class RolledBack(TransactionError):  # noqa: N818 - the state is the name
    """The transaction has no effect and never will. The work can be repeated in a new transaction.

    Recovery rolls back at participants in the state `no answer` as soon as they can be reached.
    """


class TimedOut(RolledBack, TimeoutError):  # noqa: N818 - the state is the name
    """The transaction was rolled back because its timeout expired."""


class InDoubt(TransactionError):  # noqa: N818 - the state is the name
    """The outcome is not known yet. It will be the same for all participants.

    After a failure of the decision log, recovery completes the transaction when the log can be written again, or when
    the next manager opens it. After a lost answer to a one-phase commit, the only participant has already decided and
    must be asked.
    """


class HeuristicError(TransactionError):
    """An operator completed a branch, against the decision or with an unknown outcome (DTX-11).

    `outcome` is that of the whole transaction: `commit` or `rollback` (the same everywhere, but not as decided),
    `mixed`, or `hazard` (unknown at a participant). The log keeps it until `TransactionManager.forget`.
    """

    def __init__(self, outcome: str, decided: str, id: str, states: Mapping[str, BranchState]) -> None:
        super().__init__(f"heuristic {outcome}, but {decided} was decided", id, states)
        self.outcome = outcome
        self.decided = decided
