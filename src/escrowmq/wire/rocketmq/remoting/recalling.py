"""Recall of delayed messages by classic clients.

They read the topic and the broker's name out of the handle, so theirs is `v1 TOPIC BROKER DUE PLACE` in base 64, where
PLACE is the handle of `wire.rocketmq.recalls`.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Final

from escrowmq.wire.rocketmq.recalls import LONGEST, DelayedPlace, place_in, waiting_at
from escrowmq.wire.rocketmq.remoting.codes import ResultCode
from escrowmq.wire.rocketmq.remoting.errors import RequestFault
from escrowmq.wire.rocketmq.remoting.fields import text
from escrowmq.wire.rocketmq.remoting.reply import HandlerReply, success

if TYPE_CHECKING:
    from escrowmq.wire.rocketmq.remoting.connection import RemotingConnection
    from escrowmq.wire.rocketmq.remoting.frames import Command

_VERSION: Final = "v1"
_PARTS: Final = 5


def classic_handle(topic: str, broker_name: str, handle: str) -> str:
    """Return the handle for a classic client; empty without a handle."""
    place = place_in(handle) if handle else None
    if place is None:
        return ""
    whole = f"{_VERSION} {topic} {broker_name} {place.due} {handle}"
    return base64.urlsafe_b64encode(whole.encode()).decode()


def _named(handle: str) -> tuple[str, DelayedPlace] | None:
    """The topic and the place in a handle; None for a malformed one."""
    try:
        parts = base64.urlsafe_b64decode(handle[: 2 * LONGEST]).decode().split(" ")
    except (binascii.Error, ValueError):
        return None
    place = place_in(parts[-1]) if len(parts) == _PARTS and parts[0] == _VERSION else None
    return None if place is None else (parts[1], place)


def recall_message(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Withdraw a delayed message, and answer when that is on disk. It takes the right to send the message."""
    topic = text(request.fields, "topic")
    named = _named(text(request.fields, "recallHandle"))
    if named is None or named[0] != topic:
        raise RequestFault(ResultCode.ILLEGAL_OPERATION, "recall handle is invalid")
    place = named[1]
    found = waiting_at(connection.login.vhost, topic, place)
    if found is None:
        raise RequestFault(ResultCode.ILLEGAL_OPERATION, "no such message waits: it was delivered or recalled already")
    waiting, entry = found
    connection.login.door.check_publish(topic, (entry.run.envelope.routing_key,))
    return success({"msgId": place.message_id}, after=waiting.recall(entry, place.due))
