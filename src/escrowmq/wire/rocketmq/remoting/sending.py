"""Sends of classic clients: one message, in either form of its fields, or a batch; normal, delayed or transactional."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.core.conditions import BrokerError
from escrowmq.wire.rocketmq import ids, names, properties
from escrowmq.wire.rocketmq.content import ANY_QUEUE, TRANSACTION_MASK, MessageContent, envelope_of, head_of
from escrowmq.wire.rocketmq.recalls import handle_of
from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode
from escrowmq.wire.rocketmq.remoting.errors import RequestFault
from escrowmq.wire.rocketmq.remoting.fields import flag, number, text
from escrowmq.wire.rocketmq.remoting.messages import LONGEST_PROPERTIES, BatchError, decode_batch
from escrowmq.wire.rocketmq.remoting.producing import store_half
from escrowmq.wire.rocketmq.remoting.recalling import classic_handle
from escrowmq.wire.rocketmq.remoting.reply import HandlerReply, success
from escrowmq.wire.rocketmq.topics import MIXED, TRANSACTION, UNSPECIFIED, type_fault

if TYPE_CHECKING:
    from escrowmq.core.queues.stream import StreamQueue
    from escrowmq.core.topology.topics import Topic
    from escrowmq.wire.endpoint import Peer
    from escrowmq.wire.rocketmq.remoting.connection import RemotingConnection
    from escrowmq.wire.rocketmq.remoting.frames import Command

MOST_IN_BATCH: Final = 10_000
MOST_FAILURES: Final = 16
_TRANSACTIONAL: Final = properties.TRANSACTION.encode()
_SHORT: Final = {
    "a": "producerGroup",
    "b": "topic",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "l": "maxReconsumeTimes",
    "m": "batch",
}
"""The fields of a send in its second version."""


class Send(NamedTuple):
    """The fields of a send."""

    group: str
    topic: str
    queue: int
    system_flag: int
    born_ms: int
    flag: int
    properties: bytes
    failures: int
    most_failures: int
    batch: bool


def read_send(request: Command) -> Send:
    """Return the fields of a send in any version. Raises RequestFault."""
    fields: Mapping[str, str] = request.fields
    if request.code != Code.SEND:
        fields = {_SHORT[name]: value for name, value in fields.items() if name in _SHORT}
    raw = fields.get("properties", "").encode("utf-8", "surrogateescape")
    if len(raw) > LONGEST_PROPERTIES:
        raise RequestFault(
            ResultCode.MESSAGE_ILLEGAL,
            f"the properties have {len(raw)} octets; at most {LONGEST_PROPERTIES} are allowed",
        )
    return Send(
        text(fields, "producerGroup"),
        text(fields, "topic"),
        number(fields, "queueId", ANY_QUEUE),
        number(fields, "sysFlag", 0) & 0x7FFFFFFF,
        number(fields, "bornTimestamp", 0),
        _i32(number(fields, "flag", 0)),
        raw,
        _i32(number(fields, "reconsumeTimes", 0)),
        number(fields, "maxReconsumeTimes", MOST_FAILURES),
        flag(fields, "batch") or request.code == Code.SEND_BATCH,
    )


def _i32(value: int) -> int:
    return value if -(1 << 31) <= value < 1 << 31 else 0


def send(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Take one message or a batch, and answer when it is on disk (DUR-1)."""
    asked = read_send(request)
    connection.publishes()
    if len(request.body) > connection.largest_body:
        raise RequestFault(
            ResultCode.MESSAGE_ILLEGAL,
            f"the body has {len(request.body)} octets; at most {connection.largest_body} are allowed",
        )
    if asked.batch:
        return _send_batch(connection, asked, request.body)
    found = properties.parse(asked.properties)
    kind = properties.kind_of(found)
    transactional = kind == TRANSACTION and not asked.failures
    topic = topic_for(connection, asked, transactional=transactional)
    _check_type(topic, kind)
    partition = chosen(connection, topic, asked.queue)
    content = MessageContent(
        asked.properties,
        request.body,
        asked.flag,
        asked.system_flag & ~TRANSACTION_MASK,
        asked.born_ms,
        partition,
        asked.failures,
        *connection.born,
    )
    tag = found.get(properties.TAGS, "")
    _check_tag(tag)
    connection.login.door.check_publish(topic.name, (tag,))
    connection.login.traffic.received += 1
    if transactional:
        return store_half(connection, asked.group, topic, tag, content, found)
    envelope, stream = envelope_of(topic.name, tag), topic.streams[partition]
    packed = content.pack()
    engine = connection.engine
    if properties.DELAYS & found.keys():
        queues = engine.route(connection.login.vhost, envelope, packed)
        position = stream.next_position if queues == (stream,) else 0
        handle = handle_of(engine, queues, envelope, packed, found.get(properties.UNIQUE_KEY, ""))
        receipt = engine.publish(envelope, [packed], queues)
        if handle:
            connection.login.traffic.answered(1)
            return _delayed(connection, topic, partition, found.get(properties.UNIQUE_KEY, ""), handle, receipt.lsn)
    else:
        position = stream.next_position
        receipt = engine.publish(envelope, [packed], (stream,))
    connection.login.traffic.answered(1)
    return _sent(connection, stream, partition, position, found.get(properties.UNIQUE_KEY, ""), receipt.lsn)


def _sent(
    connection: RemotingConnection, stream: StreamQueue, partition: int, position: int, key: str, lsn: int
) -> HandlerReply:
    offset = ids.place_offset(ids.StreamPlace(stream.ident, position)) if position else 0
    fields = {
        "msgId": ids.message_id(*connection.address, offset),
        "queueId": str(partition),
        "queueOffset": str(max(position - 1, 0)),
        "transactionId": key,
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    return success({name: value for name, value in fields.items() if value}, after=lsn)


def _delayed(
    connection: RemotingConnection, topic: Topic, partition: int, key: str, handle: str, lsn: int
) -> HandlerReply:
    reply = _sent(connection, topic.streams[partition], partition, 0, key, lsn)
    reply.response.fields["recallHandle"] = classic_handle(topic.name, connection.options.broker_name, handle)
    return reply


def _check_type(topic: Topic, kind: str) -> None:
    """Raises RequestFault unless the topic takes messages of this type (HALF-7). Topics of groups take all that the
    groups could not handle.
    """
    fault = type_fault(topic.message_type, kind)
    if fault and names.group_of(topic.name) is None:
        raise RequestFault(ResultCode.MESSAGE_ILLEGAL, fault)


def _check_tag(tag: str) -> None:
    fault = names.tag_fault(tag)
    if fault:
        raise RequestFault(ResultCode.MESSAGE_ILLEGAL, fault)


def _send_batch(connection: RemotingConnection, asked: Send, body: bytes) -> HandlerReply:
    try:
        parts = decode_batch(body, MOST_IN_BATCH)
    except BatchError as error:
        raise RequestFault(ResultCode.MESSAGE_ILLEGAL, str(error)) from None
    if not parts:
        raise RequestFault(ResultCode.MESSAGE_ILLEGAL, "the batch is empty")
    topic = topic_for(connection, asked)
    partition = chosen(connection, topic, asked.queue)
    stream = topic.streams[partition]
    runs: list[tuple[str, list[bytes]]] = []
    is_checked = topic.message_type not in {MIXED, UNSPECIFIED}
    heads: dict[tuple[int, int], bytes] = {}
    octets: bytes | None = None  # of the last tag
    tag = ""
    for part in parts:
        if len(part.properties) > LONGEST_PROPERTIES:
            raise RequestFault(ResultCode.MESSAGE_ILLEGAL, "the properties of a message in the batch are too long")
        if is_checked or _TRANSACTIONAL in part.properties:
            kind = properties.kind_in(part.properties)
            if kind == TRANSACTION:
                raise RequestFault(ResultCode.MESSAGE_ILLEGAL, "a batch cannot have transactional messages")
            _check_type(topic, kind)
        before, octets = octets, properties.octets_of(part.properties, properties.TAGS)
        if octets != before:
            tag = properties.value_of(part.properties, properties.TAGS) or ""
            _check_tag(tag)
        shape = part.flag, len(part.properties)
        head = heads.get(shape)
        if head is None:
            head = heads[shape] = head_of(part.flag, 0, asked.born_ms, partition, 0, connection.born, shape[1])
        content = b"".join((head, part.properties, part.body))
        if runs and runs[-1][0] == tag:
            runs[-1][1].append(content)
        else:
            runs.append((tag, [content]))
    connection.login.door.check_publish(topic.name, sorted({tag for tag, _ in runs}))
    engine = connection.engine
    engine.requests.left -= len(parts) // 4
    first = stream.next_position
    lsn = engine.publish_each((envelope_of(topic.name, tag), contents, (stream,)) for tag, contents in runs).lsn
    connection.login.traffic.received += len(parts)
    connection.login.traffic.answered(len(parts))
    key = properties.value_of(parts[0].properties, properties.UNIQUE_KEY) or ""
    return _sent(connection, stream, partition, first, key, lsn)


def topic_for(connection: RemotingConnection, asked: Send, *, transactional: bool = False) -> Topic:
    """Return the topic of a send, which is created if that is allowed: for transactional messages only if this one is.
    A message that failed too often goes to the dead-letter topic of its group. Raises RequestFault.
    """
    name = asked.topic
    catalogue = connection.catalogue
    if name.startswith(names.RETRY) and asked.failures >= max(asked.most_failures, 1):
        name = names.dead_letter_topic(name[len(names.RETRY) :])
    found = catalogue.find(name)
    if found is not None:
        return found
    fault = names.topic_fault(name)
    if fault:
        result = ResultCode.NO_PERMISSION if names.is_reserved(name) else ResultCode.INVALID_PARAMETER
        raise RequestFault(result, fault)
    group = names.group_of(name)
    if group is not None and catalogue.group(group) is not None:
        return catalogue.create(name, 1)
    if not connection.options.auto_create:
        connection.login.refusals.missing(name, catalogue.vhost.name)
        raise RequestFault(
            ResultCode.TOPIC_NOT_EXIST, f"topic {name} does not exist, and none is created automatically"
        )
    try:
        return catalogue.create(name, connection.options.partitions, TRANSACTION if transactional else UNSPECIFIED)
    except BrokerError as error:
        connection.login.refusals.call(error)
        raise RequestFault(ResultCode.TOPIC_NOT_EXIST, f"topic {name} does not exist: {error.text}") from None


def chosen(connection: RemotingConnection, topic: Topic, queue: int) -> int:
    """Return the queue of a message: the producer's choice, or the next one in turn. Raises RequestFault."""
    count = len(topic.streams)
    if queue < 0:
        return connection.next_queue(count)
    if queue >= count:
        raise RequestFault(
            ResultCode.INVALID_PARAMETER, f"request queueId[{queue}] is illegal: topic {topic.name} has {count}"
        )
    return queue


def born_at(peer: Peer) -> tuple[bytes, int]:
    """Return the address of a client, for the messages that it sends."""
    try:
        address = ipaddress.ip_address(peer.host.partition("%")[0])
    except ValueError:
        return b"", 0
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).packed, peer.port & 0xFFFF
