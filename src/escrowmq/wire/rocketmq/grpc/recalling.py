"""RecallMessage: the sender of a delayed message withdraws it before it is due."""

from __future__ import annotations

from typing import TYPE_CHECKING

from escrowmq.wire.rocketmq.grpc.answers import RocketmqRefusal, ok
from escrowmq.wire.rocketmq.proto.definition_pb2 import Code
from escrowmq.wire.rocketmq.proto.service_pb2 import RecallMessageRequest, RecallMessageResponse
from escrowmq.wire.rocketmq.recalls import place_in, waiting_at

if TYPE_CHECKING:
    from escrowmq.wire.rocketmq.grpc.calls import Call
    from escrowmq.wire.rocketmq.grpc.session import GrpcSession


def recall_message(session: GrpcSession, call: Call, request: RecallMessageRequest) -> None:
    """Withdraw a delayed message. The answer waits until that is on disk. It takes the right to send the message."""
    topic = session.topic(request.topic)
    place = place_in(request.recall_handle)
    if place is None:
        raise RocketmqRefusal(Code.ILLEGAL_MESSAGE_ID, "the recall handle is malformed")
    found = waiting_at(session.vhost, topic.name, place)
    if found is None:
        raise RocketmqRefusal(Code.MESSAGE_NOT_FOUND, "no such message waits: it was delivered or recalled already")
    waiting, entry = found
    session.door.check_publish(topic.name, (entry.run.envelope.routing_key,))
    call.answer(RecallMessageResponse(status=ok(), message_id=place.message_id), waiting.recall(entry, place.due))
