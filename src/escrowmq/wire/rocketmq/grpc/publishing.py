"""SendMessage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from escrowmq.core.budget import PUBLISH
from escrowmq.core.conditions import BrokerError
from escrowmq.wire.rocketmq.content import envelope_of
from escrowmq.wire.rocketmq.grpc.answers import RocketmqRefusal, named, ok, refusal
from escrowmq.wire.rocketmq.grpc.framing import LARGEST
from escrowmq.wire.rocketmq.grpc.incoming import IncomingMessage, read_message
from escrowmq.wire.rocketmq.grpc.kinds import check_type
from escrowmq.wire.rocketmq.grpc.transactions import store_half
from escrowmq.wire.rocketmq.proto.definition_pb2 import Code, Status
from escrowmq.wire.rocketmq.proto.service_pb2 import (
    SendMessageRequest,
    SendMessageResponse,
    SendResultEntry,
)
from escrowmq.wire.rocketmq.recalls import handle_of

if TYPE_CHECKING:
    from escrowmq.core.topology.topics import Topic
    from escrowmq.wire.rocketmq.grpc.calls import Call
    from escrowmq.wire.rocketmq.grpc.session import GrpcSession
    from escrowmq.wire.rocketmq.proto.definition_pb2 import Message

MOST_MESSAGES = 256
"""The number of messages in a request."""


def send_message(session: GrpcSession, call: Call, request: SendMessageRequest) -> None:
    """Store messages. The answer waits until they are on disk; each message has a status of its own."""
    if not 0 < len(request.messages) <= MOST_MESSAGES:
        raise RocketmqRefusal(Code.BAD_REQUEST, f"a request must have 1 to {MOST_MESSAGES} messages")
    if session.is_blocked():
        raise RocketmqRefusal(Code.TOO_MANY_REQUESTS, f"the broker accepts no messages now: {session.blocked}")
    entries, last, size = [], 0, 0
    session.broker.engine.requests.left -= (len(request.messages) - 1) * PUBLISH
    for message in request.messages:
        try:
            incoming = _read(session, message, size)
            size += len(incoming.body)
            entry, lsn = _store(session, call, message, incoming)
            last = max(last, lsn)
        except BrokerError as error:
            session.refusals.call(error)
            entry = SendResultEntry(status=refusal(error))
        except RocketmqRefusal as error:
            entry = SendResultEntry(status=error.status)
        entries.append(entry)
    call.answer(SendMessageResponse(status=_together(entries), entries=entries), last)


def _together(entries: list[SendResultEntry]) -> Status:
    """Return the status of the response: that of all messages if they agree."""
    first = entries[0].status
    if all(entry.status.code == first.code for entry in entries):
        return first
    return Status(code=Code.MULTIPLE_RESULTS, message="the messages have different results")


def _read(session: GrpcSession, message: Message, size: int) -> IncomingMessage:
    """Return a message whose request has `size` octets of bodies before it. Raises RocketmqRefusal.

    Few octets of a request can stand for very many of compressed bodies, so all of them together are bounded.
    """
    if size > LARGEST:
        raise RocketmqRefusal(
            Code.MESSAGE_BODY_TOO_LARGE, f"the bodies of one request have more than {LARGEST} octets, decompressed"
        )
    return read_message(message, named(message.topic), session.broker.engine.now)


def _store(
    session: GrpcSession, call: Call, message: Message, incoming: IncomingMessage
) -> tuple[SendResultEntry, int]:
    """Store one message. Return its result, and the LSN that the answer waits for."""
    topic = session.topic(message.topic)
    session.door.check_publish(topic.name, (incoming.tag,))
    session.traffic.received += 1
    check_type(topic.message_type, incoming.kind)
    if incoming.kind == "transaction":
        return result(incoming.message_id), store_half(session, call, topic, incoming)
    return _publish(session, topic, incoming)


def _publish(session: GrpcSession, topic: Topic, incoming: IncomingMessage) -> tuple[SendResultEntry, int]:
    engine = session.broker.engine
    envelope = envelope_of(topic.name, incoming.tag)
    offset = 0
    if incoming.is_delayed or incoming.message_group:
        queue = -1 if incoming.message_group else session.next_partition(topic)
        content = incoming.content(queue)
        queues = engine.route(session.vhost, envelope, content)
    else:
        queue = session.next_partition(topic)
        content = incoming.content(queue)
        queues = (topic.streams[queue],)
    handle = ""
    if incoming.is_delayed:
        handle = handle_of(engine, queues, envelope, content, incoming.message_id)
    else:
        offset = queues[0].next_position - 1
    receipt = engine.publish(envelope, [content], queues)
    session.traffic.answered(1)
    return result(incoming.message_id, offset, handle), receipt.lsn


def result(message_id: str, offset: int = 0, handle: str = "") -> SendResultEntry:
    """Return the result of a message that was stored. Clients expect its id as that of the transaction, too."""
    return SendResultEntry(
        status=ok(), message_id=message_id, transaction_id=message_id, offset=offset, recall_handle=handle
    )
