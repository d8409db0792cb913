"""GetOffset, UpdateOffset and QueryOffset: positions of a group in one queue, and those of the queue itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from escrowmq.core.access.table import Operation
from escrowmq.wire.rocketmq.grpc.answers import RocketmqRefusal, named, ok
from escrowmq.wire.rocketmq.grpc.incoming import timestamp_ms
from escrowmq.wire.rocketmq.proto.definition_pb2 import Code, QueryOffsetPolicy
from escrowmq.wire.rocketmq.proto.service_pb2 import (
    GetOffsetRequest,
    GetOffsetResponse,
    QueryOffsetRequest,
    QueryOffsetResponse,
    UpdateOffsetRequest,
    UpdateOffsetResponse,
)

if TYPE_CHECKING:
    from escrowmq.core.queues.stream import StreamQueue
    from escrowmq.wire.rocketmq.grpc.calls import Call
    from escrowmq.wire.rocketmq.grpc.session import GrpcSession
    from escrowmq.wire.rocketmq.proto.definition_pb2 import MessageQueue


def _stream(session: GrpcSession, queue: MessageQueue) -> StreamQueue:
    topic = session.topic(queue.topic)
    if not 0 <= queue.id < len(topic.streams):
        raise RocketmqRefusal(Code.BAD_REQUEST, f"topic {topic.name} has no queue {queue.id}")
    return topic.streams[queue.id]


def get_offset(session: GrpcSession, call: Call, request: GetOffsetRequest) -> None:
    """Answer with the offset from which a group goes on."""
    stream, name = _stream(session, request.message_queue), session.group(request.group)
    session.door.check(Operation.DESCRIBE_GROUP, queue=name)
    group = session.catalogue.group(name)
    progress = None if group is None else group.progress(stream)
    if progress is None:
        raise RocketmqRefusal(Code.OFFSET_NOT_FOUND, f"the group {name} has no offset in this queue")
    call.answer(GetOffsetResponse(status=ok(), offset=progress - 1))


def update_offset(session: GrpcSession, call: Call, request: UpdateOffsetRequest) -> None:
    """Note that a group has handled everything before an offset. Its progress never goes back (GRP-5)."""
    stream, name = _stream(session, request.message_queue), session.group(request.group)
    session.door.check(Operation.CONSUME_GROUP, exchange=named(request.message_queue.topic), queue=name)
    if request.offset < 0:
        raise RocketmqRefusal(Code.ILLEGAL_OFFSET, "an offset cannot be negative")
    session.catalogue.ensure_group(name).advance(stream, request.offset + 1)
    call.answer(UpdateOffsetResponse(status=ok()))


def query_offset(session: GrpcSession, call: Call, request: QueryOffsetRequest) -> None:
    """Answer with the first offset of a queue, the one after its last message, or the first one of a time."""
    stream = _stream(session, request.message_queue)
    match request.query_offset_policy:
        case QueryOffsetPolicy.BEGINNING:
            position = stream.begin
        case QueryOffsetPolicy.END:
            position = stream.end
        case _:
            position = stream.position_at(timestamp_ms(request.timestamp) or 0)
    call.answer(QueryOffsetResponse(status=ok(), offset=position - 1))
