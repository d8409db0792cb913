"""One participant's branch of a global transaction, driven by PEP 249's two-phase calls."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from escrowmq.xa.drivers import (
    Answer,
    answer_of,
    as_decided,
    begin,
    end_read_only,
    heuristic_state,
    is_closed,
    is_reply,
    unsound,
)
from escrowmq.xa.errors import XaError
from escrowmq.xa.states import COMMIT, ROLLBACK, BranchState
from escrowmq.xa.xids import FORMAT_ID, BranchId


class Refused(XaError):  # noqa: N818 - a vote is not an error of the program
    """A participant votes against the commit."""


class Result(NamedTuple):
    """The result of a call: the branch's new state, and the reason if that is not the requested one."""

    state: BranchState
    problem: BaseException | None = None


@dataclass(eq=False, slots=True)
class Branch:
    """A branch and its connection; not thread-safe.

    `release` takes the connection back. Its argument says whether the connection can be reused.
    """

    name: str
    id: BranchId
    connection: Any
    release: Callable[[bool], None]
    state: BranchState = BranchState.ACTIVE
    problem: BaseException | None = None
    abandoned: bool = False
    """A call on the connection still hangs, so nothing else may use it."""

    def begin(self, seconds: float | None) -> None:
        """Begin the branch; a broker also gets its timeout in seconds. Raises the driver's errors."""
        begin(self.connection, self.connection.xid(FORMAT_ID, *self.id), seconds)

    def take(self, result: Result | BaseException) -> None:
        """Record the result of a call. An exception means that there was no answer."""
        if isinstance(result, Result):
            self.state, self.problem = result
        else:
            self.state, self.problem, self.abandoned = BranchState.UNANSWERED, result, True

    def prepare(self) -> Result:
        """Ask for the vote: PREPARED, READ_ONLY, ROLLED_BACK or UNANSWERED.

        The result is ACTIVE if the participant was not asked, because a statement in the branch has failed.
        """
        reason = unsound(self.connection)
        if reason is not None:
            return Result(BranchState.ACTIVE, Refused(reason))
        try:
            needed = self.connection.tpc_prepare()
        except Exception as error:  # noqa: BLE001 - each driver has errors of its own
            if answer_of(error) not in (Answer.ROLLED_BACK, Answer.UNKNOWN_XID):
                return Result(BranchState.UNANSWERED, error)
            self._leave_branch()
            return Result(BranchState.ROLLED_BACK, error)
        if needed is False:  # oracledb and escrowmq.client; other drivers return None
            end_read_only(self.connection)
            return Result(BranchState.READ_ONLY)
        return Result(BranchState.PREPARED)

    def commit(self) -> Result:
        """Commit in the second phase, after the decision."""
        return self._ended(_outcome(self.connection.tpc_commit, COMMIT), COMMIT)

    def commit_one_phase(self) -> Result:
        """Commit without a vote.

        The result is ACTIVE if the participant was not asked, UNANSWERED if its outcome is unknown.
        """
        reason = unsound(self.connection)
        if reason is not None:
            return Result(BranchState.ACTIVE, Refused(reason))
        try:
            self.connection.tpc_commit()
        except Exception as error:  # noqa: BLE001
            state = heuristic_state(error)
            if state is not None:
                return self._ended(Result(state, error), COMMIT)
            if not is_reply(self.connection, error):
                return Result(BranchState.UNANSWERED, error)
            self._leave_branch()
            return Result(BranchState.ROLLED_BACK, error)
        return Result(BranchState.COMMITTED)

    def rollback(self) -> Result:
        """Roll back in any state. A branch that no longer exists counts as rolled back."""
        if self.state is BranchState.ACTIVE and is_closed(self.connection):
            return Result(BranchState.ROLLED_BACK)  # unprepared work ends with its connection
        was_active = self.state is BranchState.ACTIVE
        result = self._ended(_outcome(self.connection.tpc_rollback, ROLLBACK), ROLLBACK)
        if was_active and result.state is BranchState.UNANSWERED and is_closed(self.connection):
            return Result(BranchState.ROLLED_BACK, result.problem)
        return result

    def _leave_branch(self) -> None:
        """Call `tpc_rollback` after the branch has ended: some drivers need that before they reuse the connection."""
        with contextlib.suppress(Exception):
            self.connection.tpc_rollback()

    def _ended(self, result: Result, decided: str) -> Result:
        return _acknowledged(self.connection, self.connection.xid(FORMAT_ID, *self.id), result, decided)

    def let_go(self) -> None:
        """Return the connection."""
        if not self.abandoned:
            self.release(self.problem is None and self.state in (BranchState.COMMITTED, BranchState.READ_ONLY))


def complete(connection: Any, xid: Any, decided: str) -> Result:
    """Commit or roll back a branch that `tpc_recover` listed.

    If the participant does not know the branch, another process has just completed it.
    """
    call = connection.tpc_commit if decided == COMMIT else connection.tpc_rollback
    result = _outcome(lambda: call(xid), decided)
    if result.problem is not None and answer_of(result.problem) is Answer.UNKNOWN_XID:
        return Result(_wanted(decided))
    return _acknowledged(connection, xid, result, decided)


def forget(connection: Any, xid: Any) -> None:
    """Have the participant forget a heuristic outcome. Drivers without `tpc_forget` need no call."""
    call = getattr(connection, "tpc_forget", None)
    if callable(call):
        call(xid)


def _acknowledged(connection: Any, xid: Any, result: Result, decided: str) -> Result:
    """Have the participant forget a heuristic outcome that happens to be the decided one, which needs no attention."""
    if not as_decided(result.state, decided):
        return result
    try:
        forget(connection, xid)
    except Exception as error:  # noqa: BLE001
        return Result(BranchState.UNANSWERED, error)
    return Result(_wanted(decided))


def _wanted(decided: str) -> BranchState:
    return BranchState.COMMITTED if decided == COMMIT else BranchState.ROLLED_BACK


def _outcome(call: Callable[[], object], decided: str) -> Result:
    try:
        call()
    except Exception as error:  # noqa: BLE001
        match answer_of(error):
            case Answer.HEURISTIC:
                state = heuristic_state(error)
                assert state is not None, "Answer.HEURISTIC implies a state"
                return Result(state, error)
            case Answer.UNKNOWN_XID | Answer.ROLLED_BACK if decided == ROLLBACK:
                return Result(BranchState.ROLLED_BACK)
            case Answer.ROLLED_BACK:
                return Result(BranchState.HEURISTIC_ROLLBACK, error)
            case Answer.UNKNOWN_XID:  # it was prepared, and only this manager may complete it
                return Result(BranchState.HEURISTIC_HAZARD, error)
            case _:
                return Result(BranchState.UNANSWERED, error)
    return Result(_wanted(decided))
