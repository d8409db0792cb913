"""Single messages: by the id that names their place, by their keys, and half messages that are to be checked again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.core.access.table import Operation
from escrowmq.wire.rocketmq import ids
from escrowmq.wire.rocketmq.remoting.codes import ResultCode
from escrowmq.wire.rocketmq.remoting.errors import RequestFault
from escrowmq.wire.rocketmq.remoting.fields import flag, number, text
from escrowmq.wire.rocketmq.remoting.messages import StoredAt, content_for, encode_stored
from escrowmq.wire.rocketmq.remoting.reply import HandlerReply, success
from escrowmq.wire.rocketmq.remoting.searches import KeySearch
from escrowmq.wire.rocketmq.remoting.views import shown

if TYPE_CHECKING:
    from escrowmq.core.half.message import HalfMessage
    from escrowmq.wire.rocketmq.remoting.connection import RemotingConnection
    from escrowmq.wire.rocketmq.remoting.frames import Command

_UNIQUE: Final = "_UNIQUE_KEY_QUERY"


def view_message(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the message at the place that an id names, or the half message."""
    return success(body=_message(connection, number(request.fields, "offset")))


def message_at(connection: RemotingConnection, message_id: str) -> bytes:
    """Return the message that an id names, as clients receive it. Raises RequestFault."""
    offset = ids.offset_of(message_id)
    if offset is None:
        raise RequestFault(ResultCode.SYSTEM_ERROR, f"can not find message by the id {message_id[:100]}")
    return _message(connection, offset)


def _message(connection: RemotingConnection, offset: int) -> bytes:
    half = _half(connection, offset)
    if half is not None:
        _check_read(connection, half.topic)
        return shown(connection, half)
    place = ids.place_of(offset)
    found = connection.catalogue.numbered(place.stream) if place is not None else None
    entries = found[2].read(place.position, 1) if place is not None and found is not None else []
    if place is None or found is None or not entries or entries[0].position != place.position:
        raise RequestFault(ResultCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
    topic, partition, _ = found
    _check_read(connection, topic.name)
    (entry,) = entries
    at = StoredAt(
        topic.name, partition, place.position - 1, ids.place_offset(place), entry.run.time, *connection.address
    )
    return encode_stored(content_for(entry.run.envelope, entry.content), at)


def _check_read(connection: RemotingConnection, topic: str) -> None:
    connection.login.door.check(Operation.CONSUME_GROUP, exchange=topic, queue=topic)


def _half(connection: RemotingConnection, offset: int) -> HalfMessage | None:
    half_number = ids.half_of(offset)
    return None if half_number is None else connection.broker.half.at(connection.login.vhost_name, half_number)


def query_message(connection: RemotingConnection, request: Command) -> HandlerReply | None:
    """Search a topic for messages with a key. The answer follows after some turns."""
    fields = request.fields
    name = text(fields, "topic")
    _check_read(connection, name)
    topic = connection.catalogue.topic(name)
    KeySearch(connection, request, topic, text(fields, "key"), unique=flag(fields, _UNIQUE)).start()
    return None


def resume_half(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Have a parked half message checked again, from the first check on (HALF-6)."""
    offset = ids.offset_of(text(request.fields, "msgId"))
    half = None if offset is None else _half(connection, offset)
    if half is None:
        raise RequestFault(ResultCode.SYSTEM_ERROR, "the message id names no half message that is known")
    connection.login.door.check(Operation.DECIDE_HALF, half=half)
    return success(after=connection.broker.half.resume(half.vhost, half.number))
