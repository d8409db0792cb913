"""Messages of producers: checked, and put into the form in which they are stored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.wire.rocketmq import properties as names
from escrowmq.wire.rocketmq.content import ANY_QUEUE, TRANSACTION_COMMITTED, MessageContent
from escrowmq.wire.rocketmq.grpc.answers import RocketmqRefusal, milliseconds
from escrowmq.wire.rocketmq.grpc.framing import gunzipped
from escrowmq.wire.rocketmq.grpc.kinds import NAMES
from escrowmq.wire.rocketmq.grpc.settings import LARGEST_BODY
from escrowmq.wire.rocketmq.grpc.status import GrpcFault, GrpcStatus
from escrowmq.wire.rocketmq.names import tag_fault
from escrowmq.wire.rocketmq.properties import render
from escrowmq.wire.rocketmq.proto.definition_pb2 import Code, Encoding, Message, SystemProperties

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

TRACE_CONTEXT: Final = "TRACE_CONTEXT"
MOST_PROPERTIES: Final = 128
LARGEST_PROPERTIES: Final = 16 << 10
LONGEST_ID: Final = 255
LONGEST_GROUP: Final = 64
LONGEST_DELAY_MS: Final = 24 * 3600 * 1000
_LATEST_MS: Final = 1 << 63
_SEPARATOR: Final = re.compile("[\x01\x02]")
_CONTROL: Final = re.compile("[\x01\x02\r\n\t]")


class IncomingMessage(NamedTuple):
    """A message before it has a queue."""

    message_id: str
    kind: str
    tag: str
    text: bytes
    body: bytes
    born_ms: int
    is_delayed: bool
    message_group: str
    immunity_ms: int

    def content(self, queue: int = ANY_QUEUE) -> bytes:
        """Return the content that is stored. A transactional message is stored as consumers will get it."""
        flag = TRANSACTION_COMMITTED if self.kind == "transaction" else 0
        return MessageContent(self.text, self.body, system_flag=flag, born_ms=self.born_ms, queue=queue).pack()


def read_message(message: Message, topic: str, now_ms: int) -> IncomingMessage:
    """Return a message that a producer sends. Raises RocketmqRefusal."""
    system = message.system_properties
    kind = _kind(system)
    body = _body(message)
    check_id(system.message_id)
    properties = _application_properties(message.user_properties)
    tag = _tag(system)
    if tag:
        properties[names.TAGS] = tag
    if system.keys:
        properties[names.KEYS] = " ".join(_key(key) for key in system.keys)
    properties[names.UNIQUE_KEY] = system.message_id
    properties[names.WAIT] = "true"
    if system.trace_context:
        properties[TRACE_CONTEXT] = _clean(system.trace_context, "trace context", Code.ILLEGAL_MESSAGE_PROPERTY_KEY)
    group = _message_group(system, kind)
    if group:
        properties[names.MESSAGE_GROUP] = group
    immunity_ms = 0
    if kind == "delay":
        due_ms = _due(system.delivery_timestamp, now_ms)
        properties[names.DELIVER_MS] = str(due_ms)
    elif kind == "transaction":
        immunity_ms = _immunity(system)
        properties |= {names.TRANSACTION: "true", names.PRODUCER_GROUP: topic, names.TRANSACTION_ID: system.message_id}
        if immunity_ms:
            properties[names.CHECK_IMMUNITY] = str(immunity_ms // 1000)
    text = render(properties)
    if len(text) > LARGEST_PROPERTIES:
        raise RocketmqRefusal(
            Code.MESSAGE_PROPERTIES_TOO_LARGE, f"{len(text)} octets of properties; at most {LARGEST_PROPERTIES}"
        )
    born_ms = timestamp_ms(system.born_timestamp) or now_ms
    return IncomingMessage(system.message_id, kind, tag, text, body, born_ms, kind == "delay", group, immunity_ms)


def _kind(system: SystemProperties) -> str:
    kind = NAMES.get(system.message_type)
    if kind is None:
        raise RocketmqRefusal(Code.BAD_REQUEST, f"messages of type {system.message_type} are not supported")
    return kind


def _body(message: Message) -> bytes:
    body = message.body
    if message.system_properties.body_encoding == Encoding.GZIP:
        try:
            body = gunzipped(body)
        except GrpcFault as fault:  # the other messages of the request have results of their own
            too_large = fault.status is GrpcStatus.RESOURCE_EXHAUSTED
            code = Code.MESSAGE_BODY_TOO_LARGE if too_large else Code.MESSAGE_CORRUPTED
            raise RocketmqRefusal(code, fault.text) from None
    if not body:
        raise RocketmqRefusal(Code.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    if len(body) > LARGEST_BODY:
        raise RocketmqRefusal(Code.MESSAGE_BODY_TOO_LARGE, f"a body of {len(body)} octets; at most {LARGEST_BODY}")
    return bytes(body)


def check_id(ident: str) -> None:
    """Raises RocketmqRefusal unless `ident` can be the id of a message."""
    if not ident or len(ident) > LONGEST_ID or _CONTROL.search(ident):
        raise RocketmqRefusal(
            Code.ILLEGAL_MESSAGE_ID, "message id cannot be empty, too long, or have control characters"
        )


def _application_properties(given: Mapping[str, str]) -> dict[str, str]:
    if len(given) > MOST_PROPERTIES:
        raise RocketmqRefusal(Code.MESSAGE_PROPERTIES_TOO_LARGE, f"{len(given)} properties; at most {MOST_PROPERTIES}")
    found = dict(given)
    if names.SYSTEM.isdisjoint(found) and "" not in found and not _SEPARATOR.search("".join(chain(*found.items()))):
        return found
    for name, value in found.items():
        if name in names.SYSTEM or not name:
            raise RocketmqRefusal(
                Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"the property name {name!r} is RocketMQ's own or empty"
            )
        if _SEPARATOR.search(name + value):
            raise RocketmqRefusal(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"the property {name!r} has control characters")
    return found


def _clean(text: str, what: str, code: Code) -> str:
    if _CONTROL.search(text):
        raise RocketmqRefusal(code, f"the {what} has control characters")
    return text


def _tag(system: SystemProperties) -> str:
    if not system.HasField("tag"):
        return ""
    tag = _clean(system.tag, "tag", Code.ILLEGAL_MESSAGE_TAG)
    fault = tag_fault(tag)
    if fault:
        raise RocketmqRefusal(Code.ILLEGAL_MESSAGE_TAG, fault)
    if not tag.strip() or "|" in tag:
        raise RocketmqRefusal(Code.ILLEGAL_MESSAGE_TAG, f"the tag {tag!r} is blank or has a '|'")
    return str(tag)


def _key(key: str) -> str:
    if not key.strip():
        raise RocketmqRefusal(Code.ILLEGAL_MESSAGE_KEY, "a key cannot be blank")
    return _clean(key, "key", Code.ILLEGAL_MESSAGE_KEY)


def _message_group(system: SystemProperties, kind: str) -> str:
    group = _clean(system.message_group, "message group", Code.ILLEGAL_MESSAGE_GROUP)
    if kind != "fifo":
        if group:
            raise RocketmqRefusal(
                Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, f"a message of type {kind} with a message group"
            )
        return ""
    if not group.strip() or len(group.encode()) >= LONGEST_GROUP:
        raise RocketmqRefusal(Code.ILLEGAL_MESSAGE_GROUP, f"message group must have 1 to {LONGEST_GROUP - 1} octets")
    return group


def _due(timestamp: Timestamp, now_ms: int) -> int:
    due_ms = timestamp_ms(timestamp)
    if due_ms is None or due_ms - now_ms > LONGEST_DELAY_MS:
        raise RocketmqRefusal(Code.ILLEGAL_DELIVERY_TIME, "the delivery time is missing, or more than one day away")
    return due_ms


def _immunity(system: SystemProperties) -> int:
    wanted = milliseconds(system.orphaned_transaction_recovery_duration)
    return max(0, min(wanted, 3_600_000))


def timestamp_ms(timestamp: Timestamp) -> int | None:
    """Return a time in milliseconds since the epoch; None if it is not set, or has more than 63 bits."""
    if not timestamp.seconds and not timestamp.nanos:
        return None
    found = max(0, int(timestamp.seconds) * 1000 + int(timestamp.nanos) // 1_000_000)
    return found if found < _LATEST_MS else None
