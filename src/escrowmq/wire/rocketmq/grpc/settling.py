"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.core.access.table import Operation
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.rocketmq.grpc.answers import RocketmqRefusal, milliseconds, ok
from escrowmq.wire.rocketmq.grpc.leases import receipt
from escrowmq.wire.rocketmq.grpc.receiving import LONGEST_LEASE_MS
from escrowmq.wire.rocketmq.proto.definition_pb2 import ClientType, Code, Status
from escrowmq.wire.rocketmq.proto.service_pb2 import (
    AckMessageRequest,
    AckMessageResponse,
    AckMessageResultEntry,
    ChangeInvisibleDurationRequest,
    ChangeInvisibleDurationResponse,
    ForwardMessageToDeadLetterQueueRequest,
    ForwardMessageToDeadLetterQueueResponse,
)

if TYPE_CHECKING:
    from escrowmq.core.groups.group import Group
    from escrowmq.core.groups.options import Handle
    from escrowmq.wire.rocketmq.grpc.calls import Call
    from escrowmq.wire.rocketmq.grpc.session import GrpcSession
    from escrowmq.wire.rocketmq.proto.definition_pb2 import Resource

MOST_ENTRIES: Final = 1024
_STALE: Final = "the receipt handle is stale: its lease has run out, or the message was acknowledged"


def _group(session: GrpcSession, resource: Resource) -> Group:
    name = session.group(resource)
    session.door.check(Operation.SETTLE_GROUP, queue=name)
    found = session.catalogue.group(name)
    if found is None:
        raise RocketmqRefusal(Code.CONSUMER_GROUP_NOT_FOUND, f"the consumer group {name} does not exist")
    return found


def ack_message(session: GrpcSession, call: Call, request: AckMessageRequest) -> None:
    """Settle messages. The answer waits until that is on disk; each message has a status of its own."""
    if not 0 < len(request.entries) <= MOST_ENTRIES:
        raise RocketmqRefusal(Code.BAD_REQUEST, f"a request must have 1 to {MOST_ENTRIES} entries")
    group, leases = _group(session, request.group), session.client(call).leases
    handles: list[Handle | RocketmqRefusal] = []
    for entry in request.entries:
        try:
            handles.append(leases.take(entry.receipt_handle))
        except RocketmqRefusal as error:
            handles.append(error)
    settlement = group.settle([each for each in handles if not isinstance(each, RocketmqRefusal)])
    stale = set(settlement.stale)
    results = []
    for entry, handle in zip(request.entries, handles, strict=True):
        if isinstance(handle, RocketmqRefusal):
            status = handle.status
        elif handle in stale:
            status = Status(code=Code.INVALID_RECEIPT_HANDLE, message=_STALE)
        else:
            status = ok()
        results.append(
            AckMessageResultEntry(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=status)
        )
    together = results[0].status
    if any(each.status.code != together.code for each in results):
        together = Status(code=Code.MULTIPLE_RESULTS, message="the messages have different results")
    call.answer(AckMessageResponse(status=together, entries=results), settlement.lsn)


def change_invisible_duration(session: GrpcSession, call: Call, request: ChangeInvisibleDurationRequest) -> None:
    """Let a lease end at another time. A push consumer says in this way that it could not handle the message."""
    group, client = _group(session, request.group), session.client(call)
    invisible = milliseconds(request.invisible_duration)
    if not 0 <= invisible <= LONGEST_LEASE_MS:
        raise RocketmqRefusal(
            Code.ILLEGAL_INVISIBLE_TIME, f"the invisible time must be from 0 to {LONGEST_LEASE_MS} ms"
        )
    handle = client.leases.take(request.receipt_handle)
    try:
        if client.kind == ClientType.PUSH_CONSUMER:
            changed, lsn = group.give_back(handle, invisible)
        else:
            changed, lsn = group.change(handle, invisible)
    except BrokerError as error:
        raise _translated(error) from None
    call.answer(ChangeInvisibleDurationResponse(status=ok(), receipt_handle=receipt(changed)), lsn)


def forward_to_dead_letter_queue(
    session: GrpcSession, call: Call, request: ForwardMessageToDeadLetterQueueRequest
) -> None:
    """Move a message to the dead-letter topic of the group. Push consumers of FIFO groups ask for this."""
    group = _group(session, request.group)
    handle = session.client(call).leases.take(request.receipt_handle)
    try:
        lsn = group.dead_letter(handle)
    except BrokerError as error:
        raise _translated(error) from None
    call.answer(ForwardMessageToDeadLetterQueueResponse(status=ok()), lsn)


def _translated(error: BrokerError) -> BrokerError | RocketmqRefusal:
    if error.condition is Condition.NOT_FOUND:
        return RocketmqRefusal(Code.INVALID_RECEIPT_HANDLE, _STALE)
    return error
