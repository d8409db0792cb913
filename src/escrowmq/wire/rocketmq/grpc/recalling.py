"""RecallMessage: the sender of a delayed message withdraws it before it is due.

The result of a delayed send has a recall handle, which names the place of the message: its position in the hidden queue
of delayed messages, when it is due, and its id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.core.queues.delayed import NAME, DelayedQueue
from escrowmq.wire.rocketmq import properties as names
from escrowmq.wire.rocketmq.content import PROTOCOL, unpack
from escrowmq.wire.rocketmq.grpc.answers import RocketmqRefusal, ok
from escrowmq.wire.rocketmq.properties import value_of
from escrowmq.wire.rocketmq.proto.definition_pb2 import Code
from escrowmq.wire.rocketmq.proto.service_pb2 import RecallMessageRequest, RecallMessageResponse

if TYPE_CHECKING:
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.queues.queue import Queue
    from escrowmq.wire.rocketmq.grpc.calls import Call
    from escrowmq.wire.rocketmq.grpc.session import GrpcSession

_LONGEST: Final = 512
_PARTS: Final = 3
_MOST: Final = 1 << 63


class _Place(NamedTuple):
    position: int
    due: int
    message_id: str


def recall_handle(
    session: GrpcSession, queues: Sequence[Queue], envelope: Envelope, content: bytes, message_id: str
) -> str:
    """Return the handle of a message that is published next to `queues`; empty if it is due at once."""
    if not queues or not isinstance(queues[0], DelayedQueue):
        return ""
    engine = session.broker.engine
    return f"{queues[0].next_position:x}-{engine.delays.due(envelope, content, engine.now):x}-{message_id}"


def recall_message(session: GrpcSession, call: Call, request: RecallMessageRequest) -> None:
    """Withdraw a delayed message. The answer waits until that is on disk. It takes the right to send the message."""
    topic = session.topic(request.topic)
    place = _place(request.recall_handle)
    waiting = session.vhost.hidden.get(NAME)
    entry = waiting.find(place.position, place.due) if isinstance(waiting, DelayedQueue) else None
    if not isinstance(waiting, DelayedQueue) or entry is None or not _is_meant(entry, topic.name, place.message_id):
        raise RocketmqRefusal(Code.MESSAGE_NOT_FOUND, "no such message waits: it was delivered or recalled already")
    session.door.check_publish(topic.name, (entry.run.envelope.routing_key,))
    lsn = waiting.recall(entry, place.due)
    call.answer(RecallMessageResponse(status=ok(), message_id=place.message_id), lsn)


def _place(handle: str) -> _Place:
    parts = handle.split("-", _PARTS - 1) if len(handle) <= _LONGEST and handle.isascii() else []
    try:
        position, due = (int(part, 16) for part in parts[:-1])
    except ValueError:
        position = due = -1
    if not 0 <= position < _MOST or not 0 <= due < _MOST:
        raise RocketmqRefusal(Code.ILLEGAL_MESSAGE_ID, "the recall handle is malformed")
    return _Place(position, due, parts[-1])


def _is_meant(entry: Entry, topic: str, message_id: str) -> bool:
    envelope = entry.run.envelope
    if envelope.exchange != topic or envelope.protocol != PROTOCOL:
        return False
    return value_of(unpack(entry.content).properties, names.UNIQUE_KEY) == message_id
