"""The class `dtx`: X/Open XA on sessions.

A session works for branches after `dtx.select`; any session may ask for their outcomes. `wire.branch_requests` says who
may ask for what. What the broker refuses ends the session, with the error code that Qpid has for the state of the
branch, since clients depend on it: not-found for an unknown xid, not-allowed for a known one, illegal-state for a call
that does not fit its state, and command-invalid for one that does not fit the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from escrowmq.core.access.table import Operation
from escrowmq.core.branches.branch import State
from escrowmq.core.branches.xa import XaStatus
from escrowmq.core.branches.xa_branch import XaBranch
from escrowmq.core.branches.xid import Xid
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire import branch_requests
from escrowmq.wire.amqp010.codec import spec
from escrowmq.wire.amqp010.codec.types import Array
from escrowmq.wire.amqp010.ports import Reply
from escrowmq.wire.amqp010.transacting import Transacting

if TYPE_CHECKING:
    from escrowmq.core.branches.xa import XaResult
    from escrowmq.wire.amqp010.codec.structs import Command
    from escrowmq.wire.amqp010.ports import Content, Handler, SessionPort, Work

STATUSES: Final[Mapping[XaStatus, spec.XaStatus]] = {
    XaStatus.OK: spec.XaStatus.XA_OK,
    XaStatus.RB_ROLLBACK: spec.XaStatus.XA_RBROLLBACK,
    XaStatus.RB_TIMEOUT: spec.XaStatus.XA_RBTIMEOUT,
    XaStatus.HEUR_HAZ: spec.XaStatus.XA_HEURHAZ,
    XaStatus.HEUR_COM: spec.XaStatus.XA_HEURCOM,
    XaStatus.HEUR_RB: spec.XaStatus.XA_HEURRB,
    XaStatus.HEUR_MIX: spec.XaStatus.XA_HEURMIX,
    XaStatus.RDONLY: spec.XaStatus.XA_RDONLY,
}
"""The status of the specification for each status of the core."""
STRUCT32: Final = 0xAB
"""The type of the xids in the array of `dtx.recover`."""


# -- demarcation


def dtx_select(session: SessionPort, command: spec.DtxSelect, _: Content | None) -> None:
    """DTX-1."""
    session.part(Transacting).select_distributed()


def dtx_start(session: SessionPort, command: spec.DtxStart, _: Content | None) -> Reply:
    """DTX-2, DTX-3."""
    demarcation = session.part(Transacting).demarcation
    if command.join and command.resume:
        raise BrokerError(Condition.COMMAND_INVALID, "join and resume exclude each other")
    xid = _xid(command.xid)
    status = branch_requests.start(session, demarcation, xid, join=command.join, resume=command.resume)
    return _told(status)


def dtx_end(session: SessionPort, command: spec.DtxEnd, _: Content | None) -> Reply:
    """End or suspend the session's association with a branch (DTX-3, DTX-5).

    A branch with which the session is not associated is an illegal state, whether it is known or not, and another one
    than that for which the session works an invalid command.
    """
    demarcation = session.part(Transacting).demarcation
    if command.fail and command.suspend:
        raise BrokerError(Condition.COMMAND_INVALID, "fail and suspend exclude each other")
    xid, working = _xid(command.xid), session.branch
    try:
        branch_requests.known(session, xid, Operation.LEAVE_BRANCH)
        return _told(demarcation.end(xid, fail=command.fail, suspend=command.suspend))
    except BrokerError as error:
        if error.condition not in (Condition.NOT_FOUND, Condition.ILLEGAL_STATE):
            raise
        if isinstance(working, XaBranch) and working.xid != xid:
            text = f"the session works for xid {working.xid}, not for xid {xid}"
            raise BrokerError(Condition.COMMAND_INVALID, text) from None
        raise BrokerError(Condition.ILLEGAL_STATE, error.text) from None


# -- coordination


def dtx_prepare(session: SessionPort, command: spec.DtxPrepare, _: Content | None) -> Work:
    """DTX-8."""
    xid = _xid(command.xid)
    return _answer(session, xid, (yield from branch_requests.prepare(session, xid)))


def dtx_commit(session: SessionPort, command: spec.DtxCommit, _: Content | None) -> Work:
    """DTX-9. Messages without a queue were refused or dropped when they were sent."""
    xid = _xid(command.xid)
    result = yield from branch_requests.commit(session, xid, one_phase=command.one_phase)
    return _answer(session, xid, result)


def dtx_rollback(session: SessionPort, command: spec.DtxRollback, _: Content | None) -> Reply:
    """DTX-9, DTX-14."""
    xid = branch_requests.known(session, _xid(command.xid), Operation.ROLL_BACK_BRANCH)
    return _answer(session, xid, session.broker.coordinator.rollback(xid))


def dtx_forget(session: SessionPort, command: spec.DtxForget, _: Content | None) -> Reply:
    """DTX-10."""
    xid = branch_requests.known(session, _xid(command.xid), Operation.FORGET_BRANCH)
    return Reply(after=session.broker.coordinator.forget(xid))


def dtx_recover(session: SessionPort, command: spec.DtxRecover, _: Content | None) -> Reply:
    """Report the branches in doubt that the user may see, all at once (DTX-10).

    The answer waits for the disk, since a branch that it does not name has been decided.
    """
    found = [spec.Xid(*xid) for xid in branch_requests.in_doubt(session)]
    return Reply(spec.RecoverResult(Array(found, code=STRUCT32)), session.broker.log.end_lsn)


def dtx_get_timeout(session: SessionPort, command: spec.DtxGetTimeout, _: Content | None) -> Reply:
    """DTX-12."""
    xid = branch_requests.known(session, _xid(command.xid), Operation.GET_TIMEOUT)
    return Reply(spec.GetTimeoutResult(session.broker.branches.get_timeout(xid)))


def dtx_set_timeout(session: SessionPort, command: spec.DtxSetTimeout, _: Content | None) -> None:
    """DTX-12. A branch that has timed out stays so, and the client hears of it from its next call, as with Qpid."""
    if command.timeout is None:
        raise BrokerError(Condition.INVALID_ARGUMENT, "dtx.set-timeout needs a timeout")
    xid = branch_requests.known(session, _xid(command.xid), Operation.SET_TIMEOUT)
    branches = session.broker.branches
    if branches.find(xid).state is not State.TIMED_OUT:
        branches.set_timeout(xid, command.timeout)


def _xid(given: spec.Xid | None) -> Xid:
    """Return the xid of a command. Raises INVALID_ARGUMENT if it, or a part of it, is absent or too long (DTX-13)."""
    if given is None or given.format is None or given.global_id is None or given.branch_id is None:
        raise BrokerError(Condition.INVALID_ARGUMENT, "the xid, or a part of it, is missing")
    return Xid(given.format, given.global_id, given.branch_id).check()


def _told(status: XaStatus, after: int = 0) -> Reply:
    return Reply(spec.XaResult(STATUSES[status]), after)


def _answer(session: SessionPort, xid: Xid, result: XaResult) -> Reply:
    if result.reason:  # logged, because the answer has no field for the reason
        session.report(spec.ErrorCode.RESOURCE_LIMIT_EXCEEDED, f"branch {xid} is rolled back: {result.reason}")
    return _told(result.status, result.lsn)


HANDLERS: Final[Mapping[type[Command], Handler]] = {
    spec.DtxSelect: dtx_select,
    spec.DtxStart: dtx_start,
    spec.DtxEnd: dtx_end,
    spec.DtxCommit: dtx_commit,
    spec.DtxForget: dtx_forget,
    spec.DtxGetTimeout: dtx_get_timeout,
    spec.DtxPrepare: dtx_prepare,
    spec.DtxRecover: dtx_recover,
    spec.DtxRollback: dtx_rollback,
    spec.DtxSetTimeout: dtx_set_timeout,
}
