"""What consumers ask for besides messages: heartbeats, offsets, locks of queues, and messages sent back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from escrowmq.core.access.table import Operation
from escrowmq.core.budget import QUEUE
from escrowmq.core.records.groups import SettledCause
from escrowmq.wire.rocketmq import ids, names, properties
from escrowmq.wire.rocketmq.content import ANY_QUEUE, envelope_of
from escrowmq.wire.rocketmq.filters import FilterError, wanted
from escrowmq.wire.rocketmq.remoting.clients import GroupMember, TopicSubscription
from escrowmq.wire.rocketmq.remoting.codes import ResultCode
from escrowmq.wire.rocketmq.remoting.errors import RequestFault
from escrowmq.wire.rocketmq.remoting.fields import client_named, document, member, number, objects, text
from escrowmq.wire.rocketmq.remoting.messages import LONGEST_PROPERTIES, content_for
from escrowmq.wire.rocketmq.remoting.reply import HandlerReply, success
from escrowmq.wire.rocketmq.remoting.sending import MOST_FAILURES
from escrowmq.wire.rocketmq.remoting.views import HalfView, view_of

if TYPE_CHECKING:
    from escrowmq.core.queues.stream import StreamQueue
    from escrowmq.wire.rocketmq.remoting.connection import RemotingConnection
    from escrowmq.wire.rocketmq.remoting.frames import Command

MOST_GROUPS: Final = 1024
MOST_NEW_GROUPS: Final = 16
"""Groups that one heartbeat makes, since each costs about half a millisecond."""
MOST_SUBSCRIPTIONS: Final = 1024
MOST_QUEUES: Final = 8192
LOCK_MS: Final = 60_000
LONGEST_WORD: Final = 64
"""Characters of a word that is kept to be shown. Longer ones are cut."""
_FIRST_LEVEL: Final = 3
MOST_COUNTED: Final = (1 << 31) - 1
"""Failed deliveries that a message can note."""


def heartbeat(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Bring the groups of a client up to date."""
    found = document(request.body)
    client_id = client_named(found, "clientID")
    if not client_id:
        raise RequestFault(ResultCode.INVALID_PARAMETER, "a heartbeat has no clientID")
    connection.note_client(client_id, request)
    for producer in objects(found.get("producerDataSet"), MOST_GROUPS):
        group = member(producer, "groupName")
        if group:
            connection.producer.join(group)
    room = MOST_NEW_GROUPS
    for consumer in objects(found.get("consumerDataSet"), MOST_GROUPS):
        room -= _join(connection, request, client_id, consumer, room, keep=found.get("withoutSub") is True)
    return success()


def _join(
    connection: RemotingConnection, request: Command, client_id: str, found: dict[str, Any], room: int, *, keep: bool
) -> int:
    """Make a client a member of a group. Return the number of groups that this has made, of at most `room`."""
    group = member(found, "groupName")
    known = connection.consumers.member(connection, group)
    subscriptions = known.subscriptions if keep and known is not None else _subscriptions(found)
    catalogue, consumers = connection.catalogue, connection.consumers
    before = 0 if known is None else len(known.subscriptions)
    if consumers.subscriptions_of(connection) - before + len(subscriptions) > connection.most_subscriptions:
        raise RequestFault(
            ResultCode.SYSTEM_BUSY, f"a connection has at most {connection.most_subscriptions} subscriptions, the limit"
        )
    made = catalogue.group(group) is None
    if made and room <= 0:
        raise RequestFault(
            ResultCode.SYSTEM_BUSY, f"a heartbeat makes at most {MOST_NEW_GROUPS} consumer groups; the next one goes on"
        )
    connection.engine.requests.left -= 1 + len(subscriptions) // 4
    catalogue.ensure_group(group)
    for topic in subscriptions:
        catalogue.check_consume(group, topic)
    if known is None and len(connection.consumers.groups_of(connection)) >= MOST_GROUPS:
        raise RequestFault(ResultCode.SYSTEM_BUSY, f"a client has at most {MOST_GROUPS} consumer groups")
    joined = GroupMember(
        connection,
        client_id,
        _word(found, "consumeType"),
        _word(found, "messageModel"),
        _word(found, "consumeFromWhere"),
        request.language[:LONGEST_WORD],
        request.version,
        str(connection.peer),
        connection.engine.now,
        subscriptions,
    )
    consumers.join(group, joined)
    return int(made)


def _word(found: dict[str, Any], name: str) -> str:
    """A word of the protocol, which is only kept to be shown."""
    return member(found, name)[:LONGEST_WORD]


def _subscriptions(found: dict[str, Any]) -> dict[str, TopicSubscription]:
    result = {}
    for each in objects(found.get("subscriptionDataSet"), MOST_SUBSCRIPTIONS):
        version = each.get("subVersion")
        subscription = TopicSubscription(
            member(each, "expressionType"), member(each, "subString") or "*", version if type(version) is int else 0
        )
        try:
            wanted(subscription.kind, subscription.expression)
        except FilterError as error:
            raise RequestFault(ResultCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
        topic = member(each, "topic")
        if len(topic) > names.LONGEST_TOPIC:
            raise RequestFault(ResultCode.INVALID_PARAMETER, names.topic_fault(topic))
        result[topic] = subscription
    return result


def unregister(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Take a client out of a group."""
    producers, consumers = request.fields.get("producerGroup"), request.fields.get("consumerGroup")
    if producers:
        connection.producer.part(producers)
    if consumers:
        connection.consumers.leave(connection, consumers)
    return success()


def consumers_of_group(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the client ids of a group, by which each client finds its share of the queues."""
    group = text(request.fields, "consumerGroup")
    connection.login.door.check(Operation.SETTLE_GROUP, queue=group)
    members = connection.consumers.members(group)
    if not members:
        raise RequestFault(ResultCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
    return success(body=json.dumps({"consumerIdList": sorted(members)}).encode())


def check_client(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Check the filter of a consumer before it starts."""
    data = document(request.body).get("subscriptionData")
    if isinstance(data, dict):
        _subscriptions({"subscriptionDataSet": [data]})
    return success()


# -- offsets


def query_offset(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return where a group goes on. A group without progress begins with the first message, if that is still there."""
    group, stream = _place(connection, request)
    found = connection.catalogue.group(group)
    position = found.progress(stream) if found is not None else None
    if position is None and stream.begin == 1:
        position = 1
    if position is None:
        raise RequestFault(ResultCode.QUERY_NOT_FOUND, f"group {group} has no offset in this queue yet")
    return success({"offset": str(position - 1)})


def update_offset(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Note how far a group has come. It never goes back (GRP-5)."""
    offset = number(request.fields, "commitOffset")
    group, stream = _place(connection, request)
    if offset >= 0 and not connection.consumers.was_reset(group, stream.ident):
        connection.catalogue.ensure_group(group).advance(stream, offset + 1)
    return success()


def _place(connection: RemotingConnection, request: Command) -> tuple[str, StreamQueue]:
    group, topic = text(request.fields, "consumerGroup"), text(request.fields, "topic")
    connection.catalogue.check_consume(group, topic)
    return group, connection.catalogue.stream(topic, number(request.fields, "queueId"))


def _stream(connection: RemotingConnection, request: Command) -> StreamQueue | HalfView:
    topic = text(request.fields, "topic")
    view = view_of(connection, topic)
    if view is not None:
        return view
    connection.catalogue.check_see(topic)
    return connection.catalogue.stream(topic, number(request.fields, "queueId"))


def max_offset(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the offset after the last message of a queue, once that message is on disk (see `pulling`)."""
    return success({"offset": str(_stream(connection, request).end - 1)}, after=connection.engine.log.end_lsn)


def min_offset(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the offset of the first message of a queue."""
    return success({"offset": str(_stream(connection, request).begin - 1)})


def search_offset(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the offset of the first message that arrived at a time or later."""
    stream = _stream(connection, request)
    offset = stream.position_at(number(request.fields, "timestamp")) - 1
    return success({"offset": str(offset)}, after=connection.engine.log.end_lsn)


def earliest_time(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the time at which the first message of a queue arrived; -1 for an empty queue."""
    stream = _stream(connection, request)
    if isinstance(stream, HalfView):
        return success({"timestamp": "-1"})
    entries = stream.read(stream.begin, 1)
    return success({"timestamp": str(entries[0].run.time if entries else -1)})


# -- locks of queues, for orderly consumption


def lock_queues(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Let a client consume queues alone. Return those that it has now."""
    return _lock(connection, request, lock=True)


def unlock_queues(connection: RemotingConnection, request: Command) -> HandlerReply:
    """End such locks."""
    return _lock(connection, request, lock=False)


def _lock(connection: RemotingConnection, request: Command, *, lock: bool) -> HandlerReply:
    found = document(request.body)
    name, owner = member(found, "consumerGroup"), client_named(found, "clientId")
    catalogue = connection.catalogue
    connection.login.door.check(Operation.SETTLE_GROUP, queue=name)
    group = catalogue.ensure_group(name)
    locked = []
    for queue in objects(found.get("mqSet"), MOST_QUEUES):
        asked, partition = member(queue, "topic"), queue.get("queueId")
        topic = catalogue.find(asked) if catalogue.sees(asked) else None
        if topic is None or type(partition) is not int or not 0 <= partition < len(topic.streams):
            continue
        stream = topic.streams[partition]
        connection.engine.requests.left -= QUEUE
        if not lock:
            group.unlock(stream, owner)
        elif group.lock(stream, owner, connection.engine.now + LOCK_MS):
            locked.append({"topic": topic.name, "brokerName": connection.options.broker_name, "queueId": partition})
    return success(body=json.dumps({"lockOKMQSet": locked}).encode() if lock else b"")


# -- messages that consumers could not handle


def send_back(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Put a message on the retry topic of its group, due later, or on its dead-letter topic after the last attempt, in
    one step with the group's progress (HALF-9, GRP-4).
    """
    fields = request.fields
    name = text(fields, "group")
    catalogue = connection.catalogue
    connection.login.door.check(Operation.SETTLE_GROUP, queue=name)
    group = catalogue.ensure_group(name)
    place = ids.place_of(number(fields, "offset"))
    found = catalogue.numbered(place.stream) if place is not None else None
    if place is None or found is None:
        raise RequestFault(ResultCode.SYSTEM_ERROR, f"look message by offset failed, {fields.get('offset')}")
    topic, _, stream = found
    catalogue.check_consume(name, topic.name)
    entries = stream.read(place.position, 1)
    if not entries or entries[0].position != place.position:
        raise RequestFault(ResultCode.SYSTEM_ERROR, f"look message by offset failed, {fields.get('offset')}")
    content = content_for(entries[0].run.envelope, entries[0].content)
    kept = properties.parse(content.properties)
    kept.setdefault(properties.RETRY_TOPIC, topic.name)
    kept.setdefault(properties.ORIGIN_ID, ids.message_id(*connection.address, ids.place_offset(place)))
    for delay in properties.DELAYS:
        kept.pop(delay, None)
    level = number(fields, "delayLevel", 0)
    dead = content.failures >= max(number(fields, "maxReconsumeTimes", MOST_FAILURES), 0) or level < 0
    if not dead:
        kept[properties.DELAY] = str(level if level > 0 else _FIRST_LEVEL + content.failures)
    target = catalogue.find(names.dead_letter_topic(name) if dead else names.retry_topic(name))
    if target is None:
        target = catalogue.create(names.dead_letter_topic(name) if dead else names.retry_topic(name), 1)
    text_form = properties.render(kept)
    if len(text_form) > LONGEST_PROPERTIES:
        text_form = content.properties
    packed = content._replace(
        properties=text_form, failures=min(content.failures + 1, MOST_COUNTED), queue=ANY_QUEUE
    ).pack()
    envelope = envelope_of(target.name, entries[0].run.envelope.routing_key)
    queues = connection.engine.route(connection.login.vhost, envelope, packed)
    cause = SettledCause.DEAD if dead else SettledCause.RETRIED
    return success(after=group.send_back(stream, place.position, envelope, packed, queues, cause))
