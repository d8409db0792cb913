"""Stored messages as clients receive them. Those of other protocols are translated first."""

from __future__ import annotations

import hashlib
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

from google.protobuf.timestamp_pb2 import Timestamp

from escrowmq.wire.formats import translated
from escrowmq.wire.rocketmq import properties as names
from escrowmq.wire.rocketmq.content import PROTOCOL, unpack
from escrowmq.wire.rocketmq.formats import plain_body
from escrowmq.wire.rocketmq.grpc.incoming import TRACE_CONTEXT
from escrowmq.wire.rocketmq.grpc.settings import duration
from escrowmq.wire.rocketmq.ids import StreamPlace, message_id, place_offset
from escrowmq.wire.rocketmq.properties import applications, parse
from escrowmq.wire.rocketmq.proto.definition_pb2 import (
    Digest,
    DigestType,
    Encoding,
    Message,
    MessageType,
    Resource,
    SystemProperties,
)

if TYPE_CHECKING:
    from escrowmq.core.messages.envelope import Envelope

_SHOWN: Final = (names.TRANSACTION_ID, names.MESSAGE_GROUP)
"""Properties of RocketMQ's own that its proxy also shows among those of the application."""
_NOWHERE: Final = bytes(4)


class Whereabouts(NamedTuple):
    """Where a delivered message is stored, and under which handle it was leased."""

    stream: int
    position: int
    queue: int
    stored_ms: int
    handle: str
    attempt: int
    invisible_ms: int


def outgoing_message(topic: str, envelope: Envelope, content: bytes, where: Whereabouts | None = None) -> Message:
    """Return a stored message of `topic`. `where` is None for a half message, which has no place yet."""
    if envelope.protocol != PROTOCOL:
        envelope, content = translated(envelope, content, PROTOCOL)
    found = unpack(content)
    properties = {name: _text(value) for name, value in parse(found.properties).items()}
    body = plain_body(found)
    if body is None:
        body = found.body
    system = SystemProperties(
        keys=[key for key in properties.get(names.KEYS, "").split(" ") if key],
        message_id=properties.get(names.UNIQUE_KEY, ""),
        # Clients of other languages read other checksums in other ways; all of them read this one (RocketMQ's own).
        body_digest=Digest(type=DigestType.MD5, checksum=_md5(body)),
        body_encoding=Encoding.IDENTITY,
        message_type=_type(properties),
        born_timestamp=timestamp(found.born_ms),
        born_host=str(ip_address(found.host)) if found.host else "",
    )
    if properties.get(names.TAGS):
        system.tag = properties[names.TAGS]
    if properties.get(names.MESSAGE_GROUP):
        system.message_group = properties[names.MESSAGE_GROUP]
    if TRACE_CONTEXT in properties:
        system.trace_context = properties.pop(TRACE_CONTEXT)
    due_ms = names.whole(properties.get(names.DELIVER_MS))
    if due_ms is not None:
        system.delivery_timestamp.CopyFrom(timestamp(due_ms))
    if where is not None:
        _place(system, where)
    shown = applications(properties) | {name: properties[name] for name in _SHOWN if name in properties}
    return Message(topic=Resource(name=topic), user_properties=shown, system_properties=system, body=body)


def _place(system: SystemProperties, where: Whereabouts) -> None:
    if not system.message_id:
        system.message_id = message_id(_NOWHERE, 0, place_offset(StreamPlace(where.stream, where.position)))
    system.store_timestamp.CopyFrom(timestamp(where.stored_ms))
    system.store_host = "broker"
    system.receipt_handle = where.handle
    system.queue_id = where.queue
    system.queue_offset = where.position - 1
    system.delivery_attempt = where.attempt
    system.invisible_duration.CopyFrom(duration(where.invisible_ms))


def timestamp(milliseconds: int) -> Timestamp:
    """Return a time for the wire."""
    return Timestamp(seconds=milliseconds // 1000, nanos=milliseconds % 1000 * 1_000_000)


def _md5(body: bytes) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest().upper()


def _type(properties: dict[str, str]) -> MessageType:
    if properties.get(names.TRANSACTION) == "true":
        return MessageType.TRANSACTION
    if names.MESSAGE_GROUP in properties:
        return MessageType.FIFO
    return MessageType.DELAY if names.DELAYS & properties.keys() else MessageType.NORMAL


def _text(value: str) -> str:
    """Return `value`, with U+FFFD for octets that are not UTF-8, which this protocol cannot carry."""
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
