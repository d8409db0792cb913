"""Transactional messages: half messages in, decisions, and checks to the producers (HALF-1 to HALF-12).

A transaction goes by the id of its message. The producers of a topic are a group with the topic's name, since this
protocol has no producer groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.core.access.table import Operation
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.rocketmq.content import envelope_of
from escrowmq.wire.rocketmq.grpc.answers import RocketmqRefusal, named, ok, refusal
from escrowmq.wire.rocketmq.grpc.incoming import check_id
from escrowmq.wire.rocketmq.proto.definition_pb2 import Code, Status, TransactionResolution
from escrowmq.wire.rocketmq.proto.service_pb2 import EndTransactionRequest, EndTransactionResponse

if TYPE_CHECKING:
    from escrowmq.core.half.message import HalfMessage
    from escrowmq.core.topology.topics import Topic
    from escrowmq.wire.rocketmq.grpc.calls import Call
    from escrowmq.wire.rocketmq.grpc.incoming import IncomingMessage
    from escrowmq.wire.rocketmq.grpc.session import GrpcSession

_WRONG: Final = frozenset((Condition.NOT_FOUND, Condition.ILLEGAL_STATE))


def store_half(session: GrpcSession, call: Call, topic: Topic, incoming: IncomingMessage) -> int:
    """Store a half message, unless it is stored already. Return the LSN that the answer waits for."""
    client = session.client(call)
    session.door.check(Operation.STORE_HALF, exchange=topic.name, key=incoming.tag)
    queue = session.next_partition(topic)
    stored = session.broker.half.store(
        session.vhost.name,
        topic.name,
        incoming.message_id,
        envelope_of(topic.name, incoming.tag),
        incoming.content(queue),
        topic.streams[queue],
        group=topic.name,
        user=session.user,
        producer=client,
        immunity_ms=incoming.immunity_ms,
    )
    client.produces(topic.name)
    return stored.lsn


def end_transaction(session: GrpcSession, call: Call, request: EndTransactionRequest) -> None:
    """Commit or roll back. The answer waits until the decision is on disk; a repeated decision is a success."""
    check_id(request.message_id)
    half = _half(session, named(request.topic), request)
    session.door.check(Operation.DECIDE_HALF, half=half)
    halves = session.broker.half
    try:
        match request.resolution:
            case TransactionResolution.COMMIT:
                lsn = halves.commit(half.vhost, half.number, message_id=half.message_id)
            case TransactionResolution.ROLLBACK:
                lsn = halves.roll_back(half.vhost, half.number, message_id=half.message_id)
            case _:  # some clients tell that they do not know the outcome yet
                lsn = halves.unknown(half.vhost, half.number, message_id=half.message_id)
    except BrokerError as error:
        call.answer(EndTransactionResponse(status=decision_refusal(session, error)))
        return
    call.answer(EndTransactionResponse(status=ok()), lsn)


def decision_refusal(session: GrpcSession, error: BrokerError) -> Status:
    """Return the status for a decision that the core refuses."""
    if error.condition in _WRONG:
        return RocketmqRefusal(Code.INVALID_TRANSACTION_ID, error.text).status
    session.refusals.call(error)
    return refusal(error)


def _half(session: GrpcSession, topic: str, request: EndTransactionRequest) -> HalfMessage:
    ident = request.transaction_id
    if not ident:
        raise RocketmqRefusal(Code.INVALID_TRANSACTION_ID, "transaction id cannot be empty")
    half = session.broker.half.named(session.vhost.name, topic, ident) if ident == request.message_id else None
    if half is None:
        raise RocketmqRefusal(
            Code.INVALID_TRANSACTION_ID,
            f"the transaction {ident[:100]!r} of topic {topic!r} is not known; it may have been decided long ago",
        )
    return half
