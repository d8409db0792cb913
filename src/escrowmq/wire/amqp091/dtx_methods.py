"""The classes dtx-demarcation (101) and dtx-coordination (105): X/Open XA on channels.

A channel works for branches after `dtx-demarcation.select`; any channel may ask for their outcomes. A refusal closes
the channel and never the connection, even with a code that closes the connection elsewhere. `wire.branch_requests` says
who may ask for what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from escrowmq.core.access.table import Operation
from escrowmq.core.branches.xid import Xid
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire import branch_requests
from escrowmq.wire.amqp091 import codes, spec
from escrowmq.wire.amqp091.operations import Handler
from escrowmq.wire.amqp091.table import FieldValue, LongStr
from escrowmq.wire.demarcation import Demarcation

if TYPE_CHECKING:
    from escrowmq.core.branches.coordinator import Coordinator
    from escrowmq.core.branches.xa import XaResult
    from escrowmq.wire.amqp091.channel import Channel

_FRAME: Final = 64  # the octets of a recover-ok frame that are not xids, rounded up
_ITEM: Final = 5  # type tag and length of an xid


# -- demarcation


def select(channel: Channel, method: spec.DtxDemarcationSelect) -> None:
    """Put the channel into dtx mode (DTX-1). A channel has one mode: transactional, confirming, or this one."""
    if channel.confirming:
        raise BrokerError(Condition.PRECONDITION_FAILED, "cannot switch from confirm to dtx mode")
    if channel.demarcation is None:
        if channel.branch is not None:
            raise BrokerError(Condition.PRECONDITION_FAILED, "cannot switch from tx to dtx mode")
        connection = channel.connection
        owner = f"{connection.user} from {connection.label}, channel {channel.number}"
        channel.demarcation = Demarcation(channel, connection.limits.transaction, connection.user, owner)
    channel.send(spec.DtxDemarcationSelectOk())


def start(channel: Channel, method: spec.DtxDemarcationStart) -> None:
    """DTX-2, DTX-3."""
    demarcation = _demarcation(channel)
    if method.join and method.resume:
        raise BrokerError(Condition.COMMAND_INVALID, "join and resume exclude each other")
    xid = Xid.decode(method.xid)
    status = branch_requests.start(channel, demarcation, xid, join=method.join, resume=method.resume)
    channel.send(spec.DtxDemarcationStartOk(status))


def end(channel: Channel, method: spec.DtxDemarcationEnd) -> None:
    """DTX-3, DTX-5."""
    demarcation = _demarcation(channel)
    if method.fail and method.suspend:
        raise BrokerError(Condition.COMMAND_INVALID, "fail and suspend exclude each other")
    status = demarcation.end(
        _known(channel, method.xid, Operation.LEAVE_BRANCH), fail=method.fail, suspend=method.suspend
    )
    channel.send(spec.DtxDemarcationEndOk(status))


def _demarcation(channel: Channel) -> Demarcation:
    if channel.demarcation is None:
        raise BrokerError(Condition.COMMAND_INVALID, "no dtx-demarcation.select on this channel")
    return channel.demarcation


# -- coordination


def prepare(channel: Channel, method: spec.DtxCoordinationPrepare) -> Iterator[bool | None]:
    """DTX-8."""
    xid = Xid.decode(method.xid)
    result = yield from branch_requests.prepare(channel, xid)
    _answer(channel, xid, spec.DtxCoordinationPrepareOk, result)


def commit(channel: Channel, method: spec.DtxCoordinationCommit) -> Iterator[bool | None]:
    """Commit a branch (DTX-9). Unroutable messages are returned to the committing channel, before the answer."""
    xid = Xid.decode(method.xid)
    result = yield from branch_requests.commit(channel, xid, one_phase=method.one_phase)
    for publication in result.returned:
        channel.send_returns(publication.envelope, publication.contents, result.lsn)
    _answer(channel, xid, spec.DtxCoordinationCommitOk, result)


def rollback(channel: Channel, method: spec.DtxCoordinationRollback) -> None:
    """DTX-9, DTX-14."""
    xid = _known(channel, method.xid, Operation.ROLL_BACK_BRANCH)
    _answer(channel, xid, spec.DtxCoordinationRollbackOk, _coordinator(channel).rollback(xid))


def forget(channel: Channel, method: spec.DtxCoordinationForget) -> None:
    """DTX-10."""
    lsn = _coordinator(channel).forget(_known(channel, method.xid, Operation.FORGET_BRANCH))
    channel.send(spec.DtxCoordinationForgetOk(), lsn)


def recover(channel: Channel, method: spec.DtxCoordinationRecover) -> None:
    """Report the branches in doubt that the user may see (DTX-10). One answer has as many xids as fit into a frame.
    Further requests return the rest, and finally none.

    The answer waits for the disk for the same reason as in `on_channel`: a branch that it does not name has been
    decided.
    """
    if method.startscan:
        channel.scan = branch_requests.in_doubt(channel)
    scan = channel.scan
    if scan is None:
        raise BrokerError(Condition.COMMAND_INVALID, "no scan is open: set startscan in the first recover")
    room = channel.connection.frame_max - _FRAME
    xids: list[FieldValue] = []
    for xid in scan:
        data = LongStr(xid.encode())
        room -= len(data) + _ITEM
        if room < 0:
            break
        xids.append(data)
    channel.scan = None if method.endscan else scan[len(xids) :]
    channel.send(spec.DtxCoordinationRecoverOk({"xids": xids}), channel.broker.log.end_lsn)


def set_timeout(channel: Channel, method: spec.DtxCoordinationSetTimeout) -> None:
    """DTX-12."""
    channel.broker.branches.set_timeout(_known(channel, method.xid, Operation.SET_TIMEOUT), method.timeout)
    channel.send(spec.DtxCoordinationSetTimeoutOk())


def get_timeout(channel: Channel, method: spec.DtxCoordinationGetTimeout) -> None:
    """DTX-12."""
    seconds = channel.broker.branches.get_timeout(_known(channel, method.xid, Operation.GET_TIMEOUT))
    channel.send(spec.DtxCoordinationGetTimeoutOk(seconds))


def _known(channel: Channel, data: bytes, operation: Operation) -> Xid:
    """Decode the xid, and check that the user may do `operation` with its branch. Raises INVALID_ARGUMENT, and as
    `branch_requests.known`.
    """
    return branch_requests.known(channel, Xid.decode(data), operation)


def _coordinator(channel: Channel) -> Coordinator:
    return channel.broker.coordinator


def _answer(channel: Channel, xid: Xid, kind: Callable[[int], Any], result: XaResult) -> None:
    if result.reason:  # logged, because the answer has no field for the reason
        text = f"channel {channel.number}: branch {xid} is rolled back: {result.reason}"
        channel.connection.failed(codes.RESOURCE_ERROR, text)
    channel.send(kind(result.status), result.lsn)


def on_channel(ask: Handler) -> Handler:
    """Wrap `ask` so that a refusal by the core closes only the channel.

    The refusal is sent when everything in the log is on disk. For example, "no such branch" means that the branch is
    decided, and a transaction manager that hears this forgets its own decision. If the broker then crashed and the
    branch were back, no program would know its outcome (DTX-9).
    """

    def handler(channel: Channel, method: Any) -> Iterator[bool | None]:
        try:
            rest = ask(channel, method)
            if rest is not None:
                yield from rest
        except BrokerError as error:
            channel.refuse(error, method, channel.broker.log.end_lsn)

    return handler


_METHODS: Final[dict[int, Handler]] = {
    spec.DtxDemarcationSelect.INDEX: select,
    spec.DtxDemarcationStart.INDEX: start,
    spec.DtxDemarcationEnd.INDEX: end,
    spec.DtxCoordinationCommit.INDEX: commit,
    spec.DtxCoordinationForget.INDEX: forget,
    spec.DtxCoordinationGetTimeout.INDEX: get_timeout,
    spec.DtxCoordinationPrepare.INDEX: prepare,
    spec.DtxCoordinationRecover.INDEX: recover,
    spec.DtxCoordinationRollback.INDEX: rollback,
    spec.DtxCoordinationSetTimeout.INDEX: set_timeout,
}
HANDLERS: Final[dict[int, Handler]] = {index: on_channel(ask) for index, ask in _METHODS.items()}
