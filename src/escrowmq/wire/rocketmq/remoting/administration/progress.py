"""The progress of consumer groups: shown, reset, and copied from one group to another."""

from __future__ import annotations

import json
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from escrowmq.core.access.table import Operation
from escrowmq.wire.rocketmq.remoting.administration.documents import table_of_queues
from escrowmq.wire.rocketmq.remoting.administration.groups import group_named
from escrowmq.wire.rocketmq.remoting.administration.topics import address_of_broker
from escrowmq.wire.rocketmq.remoting.codes import ResultCode
from escrowmq.wire.rocketmq.remoting.errors import RequestFault
from escrowmq.wire.rocketmq.remoting.fields import number, text
from escrowmq.wire.rocketmq.remoting.reply import HandlerReply, success

if TYPE_CHECKING:
    from escrowmq.core.groups.group import Group
    from escrowmq.core.queues.stream import StreamQueue
    from escrowmq.core.topology.topics import Topic
    from escrowmq.wire.rocketmq.remoting.connection import RemotingConnection
    from escrowmq.wire.rocketmq.remoting.frames import Command

_NOW: Final = -1
"""The time that stands for the end of each queue."""
_NONE: Final = -1
"""The offset that stands for none: the time counts."""


def consume_stats(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return how far a group has come in each queue of the topics that it consumes."""
    name, only = text(request.fields, "consumerGroup"), request.fields.get("topic", "")
    group = group_named(connection, name, Operation.DESCRIBE_GROUP)
    return success(body=_stats(connection, group, only)[0].encode())


def broker_consume_stats(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the same for all groups that the user may see."""
    del request
    parts, behind = [], 0
    for group in connection.catalogue.groups():
        if connection.login.door.allows(Operation.DESCRIBE_GROUP, queue=group.name):
            table, count = _stats(connection, group, "")
            parts.append(f"{{{json.dumps(group.name)}:[{table}]}}")
            behind += count
    address = json.dumps(address_of_broker(connection))
    body = (
        f'{{"brokerAddr":{address},"consumeStatsList":[{",".join(parts)}],"totalDiff":{behind},"totalInflightDiff":0}}'
    )
    return success(body=body.encode())


def _stats(connection: RemotingConnection, group: Group, only: str) -> tuple[str, int]:
    """The progress of a group in topics that the user may see, and the number of messages that it has yet to handle."""
    rows: list[tuple[tuple[str, int], dict[str, Any]]] = []
    behind = 0
    catalogue = connection.catalogue
    for ident in group.cursors:  # few, while there may be very many topics
        connection.engine.requests.left -= 1
        found = catalogue.numbered(ident)
        if found is None or (only and found[0].name != only) or not catalogue.sees(found[0].name):
            continue
        topic, queue, stream = found
        position = group.progress(stream)
        if position is None:
            continue
        behind += stream.end - position
        handled = stream.read(position - 1, 1) if stream.begin < position else []
        row = {
            "brokerOffset": stream.end - 1,
            "consumerOffset": position - 1,
            "lastTimestamp": handled[0].run.time if handled else 0,
            "pullOffset": position - 1,
        }
        rows.append(((topic.name, queue), row))
    rows.sort(key=itemgetter(0))
    table = table_of_queues(connection.options.broker_name, rows)
    return f'{{"consumeTps":0.0,"offsetTable":{table}}}', behind


def reset_progress(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Set the progress of a group in all queues of a topic, or in one, to a time or to an offset. Members that consume
    it are told the new offset with their next pull.
    """
    fields = request.fields
    topic = _topic(connection, text(fields, "topic"))
    group = group_named(connection, text(fields, "group"), Operation.RESET_GROUP)
    only, time = number(fields, "queueId", -1), number(fields, "timestamp", _NOW)
    if only >= len(topic.streams):
        raise RequestFault(ResultCode.INVALID_PARAMETER, f"topic {topic.name} has no queue {only}")
    rows = []
    for queue, stream in enumerate(topic.streams):
        if only not in {-1, queue}:
            continue
        position = _wanted(stream, number(fields, "offset", _NONE), time)
        before = group.progress(stream)
        if not _flag(fields.get("isForce")) and before is not None and before < position:
            position = before
        group.reset(stream, position)
        connection.consumers.note_reset(group.name, stream.ident)
        rows.append(((topic.name, queue), (group.progress(stream) or 1) - 1))
    table = table_of_queues(connection.options.broker_name, rows)
    return success(body=f'{{"offsetTable":{table}}}'.encode(), after=connection.engine.log.end_lsn)


def _flag(given: str | None) -> bool:
    """Whether the progress may also move forward, which it may unless the client says otherwise."""
    return given is None or given.lower() == "true"


def _wanted(stream: StreamQueue, offset: int, time: int) -> int:
    if offset != _NONE:
        return offset + 1
    return stream.end if time == _NOW else stream.position_at(time)


def copy_progress(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Give a group the progress that another one has in a topic."""
    fields = request.fields
    topic = _topic(connection, text(fields, "topic"))
    source = group_named(connection, text(fields, "srcGroup"), Operation.DESCRIBE_GROUP)
    name = text(fields, "destGroup")
    connection.login.door.check(Operation.RESET_GROUP, queue=name)
    target = connection.catalogue.ensure_group(name)
    for stream in topic.streams:
        position = source.progress(stream)
        if position is not None:
            target.reset(stream, position)
            connection.consumers.note_reset(name, stream.ident)
    return success(after=connection.engine.log.end_lsn)


def _topic(connection: RemotingConnection, name: str) -> Topic:
    found = connection.catalogue.seen(name)
    if found is None:
        raise RequestFault(ResultCode.TOPIC_NOT_EXIST, f"Topic {name} does not exist")
    return found
