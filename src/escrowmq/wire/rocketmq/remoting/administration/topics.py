"""Topics: deleted, listed and described. The views of half messages are listed and described, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from escrowmq.core.access.table import Operation
from escrowmq.wire.rocketmq.names import AUTO_CREATE, is_reserved
from escrowmq.wire.rocketmq.remoting.administration.documents import VERSION, json_reply, table_of_queues
from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode
from escrowmq.wire.rocketmq.remoting.errors import RequestFault
from escrowmq.wire.rocketmq.remoting.fields import text
from escrowmq.wire.rocketmq.remoting.reply import HandlerReply, success
from escrowmq.wire.rocketmq.remoting.routing import MASTER, READ, READ_WRITE, broker
from escrowmq.wire.rocketmq.remoting.views import STATES, view_of

if TYPE_CHECKING:
    from escrowmq.core.topology.topics import Topic
    from escrowmq.wire.rocketmq.remoting.connection import RemotingConnection
    from escrowmq.wire.rocketmq.remoting.frames import Command

TYPE_ATTRIBUTE: Final = "message.type"
MINUTE_MS: Final = 60_000


def delete_topic(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Delete a topic. The request to the name server, which follows, finds it gone."""
    name = text(request.fields, "topic")
    if is_reserved(name):
        raise RequestFault(ResultCode.INVALID_PARAMETER, f"The topic[{name}] is conflict with system topic.")
    connection.catalogue.delete(name)
    return success(after=connection.engine.log.end_lsn)


def all_topics(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the names of all topics that the user may see."""
    del request
    return json_reply({"brokerAddr": None, "topicList": _names(connection)})


def _names(connection: RemotingConnection) -> list[str]:
    return sorted([*STATES, *(topic.name for topic in connection.catalogue.all())])


def topic_config(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the settings of one topic."""
    name = text(request.fields, "topic")
    return json_reply(_view_config(name) if name in STATES else _topic_config(_topic(connection, request)))


def all_topic_configs(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the settings of all topics that the user may see."""
    del request
    configs = {name: _view_config(name) for name in STATES}
    configs |= {topic.name: _topic_config(topic) for topic in connection.catalogue.all()}
    return json_reply({"dataVersion": VERSION, "topicConfigTable": configs})


def _topic_config(topic: Topic) -> dict[str, Any]:
    return _config(topic.name, len(topic.streams), READ_WRITE, {TYPE_ATTRIBUTE: topic.message_type.upper()})


def _view_config(name: str) -> dict[str, Any]:
    return _config(name, 1, READ, {})


def _config(name: str, queues: int, permissions: int, attributes: dict[str, str]) -> dict[str, Any]:
    return {
        "attributes": attributes,
        "order": False,
        "perm": permissions,
        "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": 0,
        "writeQueueNums": queues,
    }


def topic_stats(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the first and the last offset of each queue of a topic."""
    name = text(request.fields, "topic")
    view = view_of(connection, name)
    if view is not None:
        rows, rate = [((name, 0), _offsets(view.begin, view.end, 0))], 0.0
    else:
        topic, rows = _topic(connection, request), []
        rate = round(published(connection, topic, MINUTE_MS) / 60, 2)
        for partition, stream in enumerate(topic.streams):
            last = stream.read(stream.end - 1, 1) if stream.end > stream.begin else []
            rows.append(((name, partition), _offsets(stream.begin, stream.end, last[0].run.time if last else 0)))
    table = table_of_queues(connection.options.broker_name, rows)
    return success(body=f'{{"offsetTable":{table},"topicPutTps":{rate}}}'.encode())


def published(connection: RemotingConnection, topic: Topic, window_ms: int) -> int:
    """Return the number of messages that a topic has received in the last `window_ms` milliseconds, and still has."""
    begin = connection.engine.now - window_ms
    return sum(stream.end - stream.position_at(begin) for stream in topic.streams)


def _offsets(begin: int, end: int, updated_ms: int) -> dict[str, int]:
    return {"lastUpdateTimestamp": updated_ms, "maxOffset": end - 1, "minOffset": begin - 1}


def _topic(connection: RemotingConnection, request: Command) -> Topic:
    name = text(request.fields, "topic")
    found = connection.catalogue.seen(name)
    if found is None:
        raise RequestFault(ResultCode.TOPIC_NOT_EXIST, f"topic {name} does not exist")
    return found


def topics_of_cluster(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the names of the topics of the one cluster, and the broker's address."""
    asked = request.fields.get("cluster", connection.options.cluster)
    names = _names(connection) if asked == connection.options.cluster else []
    return json_reply({"brokerAddr": address_of_broker(connection), "topicList": names})


def system_topics(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the names of topics that are RocketMQ's own."""
    options = connection.options
    names = [options.cluster, options.broker_name]
    if request.code == Code.SYSTEM_TOPICS_OF_BROKER:
        names += [AUTO_CREATE, *STATES]
    return json_reply({"brokerAddr": address_of_broker(connection), "topicList": sorted(names)})


def address_of_broker(connection: RemotingConnection) -> str:
    """Return the address that routes have."""
    found: str = broker(connection)["brokerAddrs"][MASTER]
    return found


def groups_of_topic(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the names of the groups that consume a topic now, or have progress in it."""
    name, allows = text(request.fields, "topic"), connection.login.door.allows
    topic, members = None if name in STATES else connection.catalogue.seen(name), connection.consumers.members
    streams = {} if topic is None else {stream.ident: stream for stream in topic.streams}
    found = [
        group.name
        for group in connection.catalogue.groups()
        if allows(Operation.DESCRIBE_GROUP, queue=group.name)
        and (
            any(name in member.subscriptions for member in members(group.name).values())
            or any(group.progress(streams[ident]) is not None for ident in streams.keys() & group.cursors.keys())
        )
    ]
    return json_reply({"groupList": sorted(found)})
