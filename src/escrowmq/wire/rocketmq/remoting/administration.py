"""Requests of operators' tools (mqadmin): topics, groups, statistics, connections, and single messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from escrowmq.core.access.table import Operation
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.groups.options import GroupOptions
from escrowmq.wire.rocketmq import ids
from escrowmq.wire.rocketmq.names import dead_letter_topic
from escrowmq.wire.rocketmq.remoting.codes import ResultCode
from escrowmq.wire.rocketmq.remoting.errors import RequestFault
from escrowmq.wire.rocketmq.remoting.fields import document, member, number, text
from escrowmq.wire.rocketmq.remoting.messages import StoredAt, content_for, encode_stored
from escrowmq.wire.rocketmq.remoting.reply import HandlerReply, success
from escrowmq.wire.rocketmq.remoting.routing import READ_WRITE, broker
from escrowmq.wire.rocketmq.topics import MIXED

if TYPE_CHECKING:
    from escrowmq.core.groups.group import Group
    from escrowmq.core.topology.topics import Topic
    from escrowmq.wire.rocketmq.remoting.connection import RemotingConnection
    from escrowmq.wire.rocketmq.remoting.frames import Command

_TYPE: Final = "message.type"
_VERSION: Final = {"counter": 0, "stateVersion": 0, "timestamp": 0}


# -- topics


def update_topic(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Create a topic, or let it grow."""
    fields = request.fields
    partitions = max(number(fields, "readQueueNums", 8), number(fields, "writeQueueNums", 8))
    name = text(fields, "topic")
    known = connection.catalogue.find(name)
    wanted = _attributes(fields.get("attributes", "")).get(_TYPE)
    message_type = wanted.lower() if wanted is not None else known.message_type if known is not None else MIXED
    connection.catalogue.create(name, partitions, message_type)
    return success(after=connection.engine.log.end_lsn)


def _attributes(given: str) -> dict[str, str]:
    """The attributes in `+name=value,+name=value`."""
    pairs = (each.lstrip("+").partition("=") for each in given.split(","))
    return {name: value for name, between, value in pairs if between}


def delete_topic(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Delete a topic. The request to the name server, which follows, finds it gone."""
    connection.catalogue.delete(text(request.fields, "topic"))
    return success(after=connection.engine.log.end_lsn)


def all_topics(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the names of all topics."""
    del request
    return _document({"brokerAddr": None, "topicList": sorted(topic.name for topic in connection.catalogue.all())})


def topic_config(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the settings of one topic."""
    return _document(_topic_config(_topic(connection, request)))


def all_topic_configs(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the settings of all topics."""
    del request
    configs = {topic.name: _topic_config(topic) for topic in connection.catalogue.all()}
    return _document({"dataVersion": _VERSION, "topicConfigTable": configs})


def _topic_config(topic: Topic) -> dict[str, Any]:
    count = len(topic.streams)
    return {
        "attributes": {_TYPE: topic.message_type.upper()},
        "order": False,
        "perm": READ_WRITE,
        "readQueueNums": count,
        "topicFilterType": "SINGLE_TAG",
        "topicName": topic.name,
        "topicSysFlag": 0,
        "writeQueueNums": count,
    }


def topic_stats(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the first and the last offset of each queue of a topic."""
    topic = _topic(connection, request)
    rows = {}
    for partition, stream in enumerate(topic.streams):
        last = stream.read(stream.end - 1, 1) if stream.end > stream.begin else []
        rows[partition] = {
            "lastUpdateTimestamp": last[0].run.time if last else 0,
            "maxOffset": stream.end - 1,
            "minOffset": stream.begin - 1,
        }
    return _table(connection, topic.name, rows, "")


def _topic(connection: RemotingConnection, request: Command) -> Topic:
    name = text(request.fields, "topic")
    found = connection.catalogue.find(name)
    if found is None:
        raise RequestFault(ResultCode.TOPIC_NOT_EXIST, f"topic {name} does not exist")
    return found


# -- groups


def update_group(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Create a consumer group, or change its settings."""
    found = document(request.body)
    name, retries = member(found, "groupName"), found.get("retryMaxTimes")
    attempts = retries + 1 if type(retries) is int and retries >= 0 else GroupOptions().max_attempts
    options = GroupOptions(
        fifo=found.get("consumeMessageOrderly") is True,
        max_attempts=attempts,
        dead_letter_topic=dead_letter_topic(name),
    )
    connection.catalogue.ensure_group(name, options)
    return success(after=connection.engine.log.end_lsn)


def delete_group(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Delete a consumer group with its progress."""
    group = _group(connection, text(request.fields, "groupName"), Operation.DELETE_GROUP)
    connection.broker.groups.delete(group)
    return success(after=connection.engine.log.end_lsn)


def group_config(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the settings of one consumer group."""
    return _document(_group_config(_group(connection, text(request.fields, "group"), Operation.DESCRIBE_GROUP)))


def all_group_configs(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the settings of all consumer groups that the user may see."""
    del request
    allows = connection.login.door.allows
    configs = {
        group.name: _group_config(group)
        for group in connection.catalogue.groups()
        if allows(Operation.DESCRIBE_GROUP, queue=group.name)
    }
    return _document({"dataVersion": _VERSION, "forbiddenTable": {}, "subscriptionGroupTable": configs})


def _group_config(group: Group) -> dict[str, Any]:
    return {
        "attributes": {},
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "consumeMessageOrderly": group.options.fifo,
        "groupName": group.name,
        "groupSysFlag": 0,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": group.options.max_attempts - 1,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 0,
    }


def _group(connection: RemotingConnection, name: str, operation: Operation) -> Group:
    connection.login.door.check(operation, queue=name)
    found = connection.catalogue.group(name)
    if found is None:
        raise BrokerError(Condition.NOT_FOUND, f"consumer group '{name}' does not exist")
    return found


def consume_stats(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return how far a group has come in each queue of the topics that it consumes."""
    name, only = text(request.fields, "consumerGroup"), request.fields.get("topic", "")
    group = _group(connection, name, Operation.DESCRIBE_GROUP)
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for topic in connection.catalogue.all():
        if only and topic.name != only:
            continue
        for partition, stream in enumerate(topic.streams):
            position = group.progress(stream)
            if position is not None:
                rows[topic.name, partition] = {
                    "brokerOffset": stream.end - 1,
                    "consumerOffset": position - 1,
                    "lastTimestamp": 0,
                    "pullOffset": position - 1,
                }
    return _offsets(connection, rows.items(), '"consumeTps":0.0,')


def consumer_connections(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the members of a group, and what they subscribe to."""
    name = text(request.fields, "consumerGroup")
    connection.login.door.check(Operation.DESCRIBE_GROUP, queue=name)
    members = list(connection.consumers.members(name).values())
    if not members:
        raise RequestFault(ResultCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
    first = members[0]
    subscriptions = {
        topic: {
            "classFilterMode": False,
            "codeSet": [],
            "expressionType": subscription.kind or "TAG",
            "subString": subscription.expression,
            "subVersion": 0,
            "tagsSet": [],
            "topic": topic,
        }
        for each in members
        for topic, subscription in each.subscriptions.items()
    }
    return _document(
        {
            "connectionSet": [
                {
                    "clientAddr": each.address,
                    "clientId": each.client_id,
                    "language": each.language,
                    "version": each.version,
                }
                for each in members
            ],
            "consumeFromWhere": first.consume_from or None,
            "consumeType": first.consume_type or None,
            "messageModel": first.message_model or None,
            "subscriptionTable": subscriptions,
        }
    )


# -- the broker


def broker_runtime(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return figures about the broker, for `mqadmin clusterList`."""
    del request
    topics = connection.catalogue.all()
    held = sum(stream.end - stream.begin for topic in topics for stream in topic.streams)
    table = {
        "brokerActive": "true",
        "brokerVersionDesc": "V5_3_3",
        "bootTimestamp": "0",
        "commitLogDiskRatio": "0",
        "consumeQueueDiskRatio": "0",
        "dispatchBehindBytes": "0",
        "earliestMessageTimeStamp": "0",
        "getTransferredTps": "0 0 0",
        "msgGetTotalTodayNow": "0",
        "msgGetTotalTodayMorning": "0",
        "msgGetTotalYesterdayMorning": "0",
        "msgPutTotalTodayNow": str(held),
        "msgPutTotalTodayMorning": "0",
        "msgPutTotalYesterdayMorning": "0",
        "pageCacheLockTimeMills": "0",
        "pullThreadPoolQueueHeadWaitTimeMills": "0",
        "pullThreadPoolQueueSize": "0",
        "putTps": "0 0 0",
        "sendThreadPoolQueueHeadWaitTimeMills": "0",
        "sendThreadPoolQueueSize": "0",
        "timerCongestNum": "0",
        "timerEnqueueTps": "0",
        "timerDequeueTps": "0",
        "timerOffsetBehind": "0",
        "timerReadBehind": "0",
    }
    return _document({"table": table})


def topics_of_cluster(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the names of the topics of the one cluster, and the broker's address."""
    names = sorted(topic.name for topic in connection.catalogue.all())
    asked = request.fields.get("cluster", connection.options.cluster)
    addresses = list(broker(connection)["brokerAddrs"].values())
    return _document({"brokerAddr": addresses[0], "topicList": names if asked == connection.options.cluster else []})


def view_message(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the message at the place that an id names."""
    place = ids.place_of(number(request.fields, "offset"))
    found = connection.catalogue.numbered(place.stream) if place is not None else None
    entries = found[2].read(place.position, 1) if place is not None and found is not None else []
    if place is None or found is None or not entries or entries[0].position != place.position:
        raise RequestFault(ResultCode.SYSTEM_ERROR, f"can not find message by offset {request.fields.get('offset')}")
    topic, partition, stream = found
    connection.login.door.check(Operation.CONSUME, queue=stream.name)
    (entry,) = entries
    at = StoredAt(
        topic.name, partition, place.position - 1, ids.place_offset(place), entry.run.time, *connection.address
    )
    return success(body=encode_stored(content_for(entry.run.envelope, entry.content), at))


# -- forms of tables


def _document(found: Mapping[str, Any]) -> HandlerReply:
    return success(body=json.dumps(found, separators=(",", ":")).encode())


def _table(
    connection: RemotingConnection, topic: str, rows: Mapping[int, Mapping[str, Any]], before: str
) -> HandlerReply:
    return _offsets(connection, (((topic, partition), row) for partition, row in rows.items()), before)


def _offsets(
    connection: RemotingConnection, rows: Iterable[tuple[tuple[str, int], Mapping[str, Any]]], before: str
) -> HandlerReply:
    """A table by queue. Its keys are objects, which JSON does not have but the clients' library writes and reads."""
    dump: Callable[[object], str] = json.dumps
    parts = [
        dump({"brokerName": connection.options.broker_name, "queueId": partition, "topic": topic}) + ":" + dump(row)
        for (topic, partition), row in rows
    ]
    return success(body=f'{{{before}"offsetTable":{{{",".join(parts)}}}}}'.encode())
