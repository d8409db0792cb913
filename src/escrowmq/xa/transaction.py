"""A global transaction: all of its branches commit, or none."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from escrowmq.xa.branch import Branch, Result
from escrowmq.xa.calls import CallTimeout
from escrowmq.xa.errors import HeuristicError, InDoubt, LogError, RolledBack, TimedOut, UsageError, XaError
from escrowmq.xa.log import Decision, commit_decision
from escrowmq.xa.states import COMMIT, FINAL, HEURISTIC, ROLLBACK, BranchState, heuristic_outcome
from escrowmq.xa.xids import BranchId

if TYPE_CHECKING:
    from escrowmq.xa.manager import TransactionManager

logger = logging.getLogger("escrowmq.xa")


class Phase(Enum):
    """The phase of a global transaction."""

    ACTIVE = "active"
    PREPARED = "prepared"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    IN_DOUBT = "in doubt"


class GlobalTransaction:
    """A transaction made by `TransactionManager.transaction`; for one thread at a time.

    As a context manager it commits at the end of the block, and rolls back if the block raises. `tx["bank"]` is the
    connection for work at the participant `bank`.
    """

    def __init__(self, manager: TransactionManager, id: str, timeout: float | None) -> None:
        self.id = id
        self.phase = Phase.ACTIVE
        self._manager = manager
        self._timeout = timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._branches: list[Branch] = []
        self._one_phase = False

    # ---- work ----

    def __getitem__(self, name: str) -> Any:
        """Return the connection of a participant. Raises KeyError if it does not take part."""
        for branch in self._branches:
            if branch.name == name:
                return branch.connection
        raise KeyError(name)

    def enlist(self, name: str, connection: Any = None) -> Any:
        """Add a participant, with your own connection or, if None, one of the manager's. Returns the connection.

        Your own connection must not be in a transaction; you can use it again when this one is over. One of the
        manager's is returned to it then, so do not keep a reference. Errors of the driver are raised unchanged.

        Raises:
            UsageError: The participant is unknown or already takes part, or the transaction is over.
            TimedOut: The transaction's timeout has expired.
        """
        self._expect(Phase.ACTIVE, "enlist")
        if any(branch.name == name for branch in self._branches):
            raise UsageError(f"{name} already takes part in transaction {self.id}")
        if self._overdue():
            self._give_up(TimedOut, f"rolled back: not finished within {self._timeout:g} s")
        branch = self._manager.branch(BranchId(self.id, f"{name}.{len(self._branches) + 1}"), connection)
        try:
            branch.begin(self._timeout)
        except BaseException:
            branch.release(False)
            raise
        self._branches.append(branch)
        return branch.connection

    @property
    def states(self) -> dict[str, BranchState]:
        """The state of each participant."""
        return {branch.name: branch.state for branch in self._branches}

    @property
    def unfinished(self) -> list[str]:
        """The participants that have not acknowledged the decision. Recovery will repeat it."""
        return [branch.name for branch in self._branches if branch.state is BranchState.UNANSWERED]

    # ---- outcome ----

    def commit(self) -> None:
        """Commit at all participants. On return, the decision is on disk and will be carried out even after a crash.

        A participant that could not be reached after its vote is listed in `unfinished` and commits when it is back.

        Raises:
            RolledBack: The transaction was rolled back.
            TimedOut: It was rolled back because its timeout expired.
            InDoubt: The outcome is not known yet.
            HeuristicError: An operator has completed a branch.
            UsageError: The transaction is over or already prepared.
        """
        with self._interruptible():
            self._prepare()
            self._decide()

    def prepare(self) -> None:
        """Run only the first phase, for a coordinator of several coordinators; `decide` runs the second.

        Raises RolledBack or TimedOut if the transaction was rolled back.
        """
        with self._interruptible():
            self._prepare()

    def decide(self) -> None:
        """Run the second phase: write the decision to commit, then carry it out. Raises what `commit` raises."""
        with self._interruptible():
            self._decide()

    def rollback(self) -> None:
        """Undo everything. Raises HeuristicError if an operator has committed a branch."""
        self._expect(Phase.PREPARED if self.phase is Phase.PREPARED else Phase.ACTIVE, "roll back")
        with self._interruptible():
            self._undo()
            self._over(ROLLBACK)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.phase not in (Phase.ACTIVE, Phase.PREPARED):
            return  # the block has ended the transaction
        if error is None:
            (self.commit if self.phase is Phase.ACTIVE else self.decide)()
            return
        try:
            self.rollback()
        except HeuristicError as heuristic:
            raise heuristic from error

    # ---- inside ----

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """On an interrupt such as Ctrl-C, leave unfinished branches to recovery, which knows the log."""
        try:
            yield
        except XaError:
            raise
        except BaseException:
            if self.phase in (Phase.ACTIVE, Phase.PREPARED):
                self.phase = Phase.IN_DOUBT
            for branch in self._branches:
                if branch.state not in FINAL:
                    branch.state, branch.abandoned = BranchState.UNANSWERED, True
            self._manager.leave(self.id, self._branches)
            raise

    def _prepare(self) -> None:
        self._expect(Phase.ACTIVE, "commit")
        if self._overdue():
            self._give_up(TimedOut, f"rolled back: not finished within {self._timeout:g} s")
        self._one_phase = len(self._branches) < 2
        if not self._one_phase:
            failure = self._manager.log.failure
            if failure is not None:
                self._give_up(RolledBack, f"rolled back: {failure}", failure)
            self._vote()
        self.phase = Phase.PREPARED

    def _decide(self) -> None:
        self._expect(Phase.PREPARED, "decide")
        if self._one_phase:
            self._commit_one_phase()
            return
        voters = [branch for branch in self._branches if branch.state is BranchState.PREPARED]
        if voters:
            decision = commit_decision(self.id, [branch.id.bqual for branch in voters])
            try:
                self._manager.log.write(decision)
            except LogError as error:
                if not error.uncertain:
                    self._give_up(RolledBack, f"rolled back: {error}", error)
                self._leave_in_doubt(f"in doubt: {error}", error)
            self.phase = Phase.COMMITTED
            self._call(voters, Branch.commit)
        self.phase = Phase.COMMITTED
        self._over(COMMIT)

    def _expect(self, phase: Phase, what: str) -> None:
        self._manager.check_process()
        if self.phase is not phase:
            raise UsageError(f"cannot {what}: transaction {self.id} is {self.phase.value}")

    def _overdue(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline

    def _call(self, branches: Collection[Branch], what: Callable[[Branch], Result]) -> None:
        functions = [lambda branch=branch: what(branch) for branch in branches]
        results = self._manager.callers.run(functions, self._manager.call_timeout)
        for branch, result in zip(branches, results, strict=True):
            if isinstance(result, BaseException) and not isinstance(result, CallTimeout):
                result = Result(BranchState.UNANSWERED, result)
            branch.take(result)

    def _vote(self) -> None:
        self._call(self._branches, Branch.prepare)
        refusing = [b for b in self._branches if b.state not in (BranchState.PREPARED, BranchState.READ_ONLY)]
        if refusing:
            first = refusing[0]
            self._give_up(
                RolledBack, f"rolled back: {first.name} did not prepare: {_said(first.problem)}", first.problem
            )
        if self._overdue():
            self._give_up(TimedOut, f"rolled back: not finished within {self._timeout:g} s")

    def _commit_one_phase(self) -> None:
        self._call(self._branches, Branch.commit_one_phase)
        branch = next(iter(self._branches), None)
        if branch is None or branch.state is BranchState.COMMITTED:
            self.phase = Phase.COMMITTED
            self._over(COMMIT)
        elif branch.state is BranchState.UNANSWERED:
            self._leave_in_doubt(f"in doubt: {branch.name} has not answered: {_said(branch.problem)}", branch.problem)
        elif branch.state in HEURISTIC:
            self.phase = Phase.COMMITTED
            self._over(COMMIT)
        else:
            text = f"rolled back: {branch.name} did not commit: {_said(branch.problem)}"
            self._give_up(RolledBack, text, branch.problem)

    def _undo(self) -> None:
        self._call([branch for branch in self._branches if _may_undo(branch)], Branch.rollback)
        self.phase = Phase.ROLLED_BACK

    def _give_up(self, kind: type[RolledBack], text: str, cause: BaseException | None = None) -> NoReturn:
        self._undo()
        self._over(ROLLBACK)
        raise kind(text, self.id, self.states) from cause

    def _leave_in_doubt(self, text: str, cause: BaseException | None) -> NoReturn:
        self.phase = Phase.IN_DOUBT
        self._manager.leave(self.id, self._branches)
        raise InDoubt(text, self.id, self.states) from cause

    def _over(self, decided: str) -> None:
        """Finish after every participant has the outcome, or could not be reached."""
        problems = {branch.name: branch.problem for branch in self._branches if branch.problem is not None}
        self._manager.record(self._decision(decided))
        self._manager.leave(self.id, self._branches)
        for name in self.unfinished:
            logger.warning(
                "transaction %s: %s has not answered; recovery will repeat the outcome %r: %s",
                *(self.id, name, decided, _said(problems.get(name))),
            )
        outcome = heuristic_outcome([_counted(state, decided) for state in self.states.values()])
        if outcome is not None and outcome != decided:
            raise HeuristicError(outcome, decided, self.id, self.states)

    def _decision(self, decided: str) -> Decision:
        branches = {
            branch.id.bqual: BranchState.PREPARED if branch.state is BranchState.UNANSWERED else branch.state
            for branch in self._branches
            if branch.state is not BranchState.READ_ONLY
        }
        return Decision(self.id, decided, time.time(), branches)


def _may_undo(branch: Branch) -> bool:
    return not branch.abandoned and branch.state in (
        BranchState.ACTIVE,
        BranchState.PREPARED,
        BranchState.UNANSWERED,
    )


def _counted(state: BranchState, decided: str) -> BranchState:
    if state in HEURISTIC or state is BranchState.READ_ONLY:
        return state
    return BranchState.COMMITTED if decided == COMMIT else BranchState.ROLLED_BACK


def _said(problem: BaseException | None) -> str:
    text = " ".join(str(problem).split())
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__
