"""One participant's part of a global transaction, driven by PEP 249's two-phase calls."""

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


class Refused(XaError):  # noqa: N818 - the vote is no error of the program
    """A participant does not vote for the commit."""


class Result(NamedTuple):
    """What came of a call: the state that the branch is in now, and why, if it is not the one asked for."""

    state: BranchState
    problem: BaseException | None = None


@dataclass(eq=False, slots=True)
class Branch:
    """Not for several threads at once. `release` takes the connection back, told whether it is as good as new."""

    name: str
    id: BranchId
    connection: Any
    release: Callable[[bool], None]
    state: BranchState = BranchState.ACTIVE
    problem: BaseException | None = None
    abandoned: bool = False
    """A call of it still hangs, so the connection must not be touched."""

    def begin(self, seconds: float | None) -> None:
        """Start the branch; whatever the driver raises. A broker also gets the time after which it may undo it."""
        begin(self.connection, self.connection.xid(FORMAT_ID, *self.id), seconds)

    def take(self, result: Result | BaseException) -> None:
        """Remember what a call came to; an exception means that there is no answer."""
        if isinstance(result, Result):
            self.state, self.problem = result
        else:
            self.state, self.problem, self.abandoned = BranchState.UNANSWERED, result, True

    def prepare(self) -> Result:
        """The vote: PREPARED, READ_ONLY, ROLLED_BACK, ACTIVE (not asked: unsound), UNANSWERED."""
        reason = unsound(self.connection)
        if reason is not None:
            return Result(BranchState.ACTIVE, Refused(reason))
        try:
            needed = self.connection.tpc_prepare()
        except Exception as error:  # noqa: BLE001 - every driver has its own
            if answer_of(error) not in (Answer.ROLLED_BACK, Answer.UNKNOWN_XID):
                return Result(BranchState.UNANSWERED, error)
            self._leave_branch()
            return Result(BranchState.ROLLED_BACK, error)
        if needed is False:  # oracledb and escrowmq.client say so; others return None
            end_read_only(self.connection)
            return Result(BranchState.READ_ONLY)
        return Result(BranchState.PREPARED)

    def commit(self) -> Result:
        """The second phase, after a decision."""
        return self._ended(_outcome(self.connection.tpc_commit, COMMIT), COMMIT)

    def commit_one_phase(self) -> Result:
        """Without a vote. ACTIVE if it was not asked, UNANSWERED if the participant may have done either."""
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
        """Of any state. A branch that is not there any more counts as rolled back."""
        if self.state is BranchState.ACTIVE and is_closed(self.connection):
            return Result(BranchState.ROLLED_BACK)  # work without a vote ends with its connection
        was_active = self.state is BranchState.ACTIVE
        result = self._ended(_outcome(self.connection.tpc_rollback, ROLLBACK), ROLLBACK)
        if was_active and result.state is BranchState.UNANSWERED and is_closed(self.connection):
            return Result(BranchState.ROLLED_BACK, result.problem)
        return result

    def _leave_branch(self) -> None:
        """The branch is over; some drivers want to be told, so that the connection can be used again."""
        with contextlib.suppress(Exception):
            self.connection.tpc_rollback()

    def _ended(self, result: Result, decided: str) -> Result:
        return _acknowledged(self.connection, self.connection.xid(FORMAT_ID, *self.id), result, decided)

    def let_go(self) -> None:
        """Give the connection back."""
        if not self.abandoned:
            self.release(self.problem is None and self.state in (BranchState.COMMITTED, BranchState.READ_ONLY))


def complete(connection: Any, xid: Any, decided: str) -> Result:
    """Commit or roll back a branch that `tpc_recover` listed; none of that name means that somebody else just did."""
    call = connection.tpc_commit if decided == COMMIT else connection.tpc_rollback
    result = _outcome(lambda: call(xid), decided)
    if result.problem is not None and answer_of(result.problem) is Answer.UNKNOWN_XID:
        return Result(_wanted(decided))
    return _acknowledged(connection, xid, result, decided)


def forget(connection: Any, xid: Any) -> None:
    """Tell the participant that its heuristic outcome is known; drivers that have no call for it need none."""
    call = getattr(connection, "tpc_forget", None)
    if callable(call):
        call(xid)


def _acknowledged(connection: Any, xid: Any, result: Result, decided: str) -> Result:
    """An outcome by hand that is the one decided needs nobody's attention; the participant is told that it is known."""
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
                assert state is not None, "that is what the answer means"
                return Result(state, error)
            case Answer.UNKNOWN_XID | Answer.ROLLED_BACK if decided == ROLLBACK:
                return Result(BranchState.ROLLED_BACK)
            case Answer.ROLLED_BACK:
                return Result(BranchState.HEURISTIC_ROLLBACK, error)
            case Answer.UNKNOWN_XID:  # prepared it was, and nobody but us may end it
                return Result(BranchState.HEURISTIC_HAZARD, error)
            case _:
                return Result(BranchState.UNANSWERED, error)
    return Result(_wanted(decided))
