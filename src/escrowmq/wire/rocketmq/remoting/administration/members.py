"""The clients that are connected: members of consumer groups, and producers. Some requests go on to one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from escrowmq.core.access.table import Operation
from escrowmq.wire.rocketmq.remoting.administration.documents import json_reply
from escrowmq.wire.rocketmq.remoting.administration.queries import message_at
from escrowmq.wire.rocketmq.remoting.administration.topics import address_of_broker
from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode
from escrowmq.wire.rocketmq.remoting.errors import RequestFault
from escrowmq.wire.rocketmq.remoting.fields import text
from escrowmq.wire.rocketmq.remoting.frames import Command
from escrowmq.wire.rocketmq.remoting.producing import RemotingProducer
from escrowmq.wire.rocketmq.remoting.reply import HandlerReply

if TYPE_CHECKING:
    from collections.abc import Mapping

    from escrowmq.wire.rocketmq.remoting.clients import GroupMember, TopicSubscription
    from escrowmq.wire.rocketmq.remoting.connection import RemotingConnection

HIGHEST_RESULT: Final = (1 << 15) - 1
"""A binary header has 16 bits for the result."""


def consumer_connections(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the members of a group, and what they subscribe to."""
    members = _members(connection, text(request.fields, "consumerGroup"))
    if not members:
        name = request.fields["consumerGroup"]
        raise RequestFault(ResultCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
    first = next(iter(members.values()))
    return json_reply(
        {
            "connectionSet": [
                {
                    "clientAddr": each.address,
                    "clientId": each.client_id,
                    "language": each.language,
                    "version": each.version,
                }
                for each in members.values()
            ],
            "consumeFromWhere": first.consume_from or None,
            "consumeType": first.consume_type or None,
            "messageModel": first.message_model or None,
            "subscriptionTable": {
                topic: _subscription(topic, subscription)
                for each in members.values()
                for topic, subscription in each.subscriptions.items()
            },
        }
    )


def _members(connection: RemotingConnection, group: str) -> Mapping[str, GroupMember]:
    connection.login.door.check(Operation.DESCRIBE_GROUP, queue=group)
    return connection.consumers.members(group)


def _subscription(topic: str, subscription: TopicSubscription) -> dict[str, Any]:
    return {
        "classFilterMode": False,
        "codeSet": [],
        "expressionType": subscription.kind or "TAG",
        "subString": subscription.expression,
        "subVersion": subscription.version,
        "tagsSet": [],
        "topic": topic,
    }


def topics_of_group(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the topics that the members of a group subscribe to."""
    members = _members(connection, text(request.fields, "group"))
    topics = {topic for each in members.values() for topic in each.subscriptions}
    return json_reply({"brokerAddr": address_of_broker(connection), "topicList": sorted(topics)})


def subscription_of_group(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return a group's subscription to a topic; null if it has none."""
    group, topic = text(request.fields, "group"), text(request.fields, "topic")
    found = next(
        (each.subscriptions[topic] for each in _members(connection, group).values() if topic in each.subscriptions),
        None,
    )
    shown = None if found is None else _subscription(topic, found)
    return json_reply({"group": group, "subscriptionData": shown, "topic": topic})


# -- producers


def producer_connections(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the producers of a group."""
    group = text(request.fields, "producerGroup")
    found = _producers(connection).get(group)
    if not found:
        raise RequestFault(ResultCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
    shown = [
        {"clientAddr": each.address, "clientId": each.client_id, "language": each.language, "version": each.version}
        for each in found
    ]
    return json_reply({"connectionSet": shown})


def all_producers(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the producers of all groups."""
    del request
    data = {
        group: [
            {
                "clientId": each.client_id,
                "language": each.language,
                "lastUpdateTimestamp": each.seen_ms,
                "remoteIP": each.address,
                "version": each.version,
            }
            for each in found
        ]
        for group, found in _producers(connection).items()
    }
    return json_reply({"data": data})


def _producers(connection: RemotingConnection) -> dict[str, list[RemotingProducer]]:
    """The producers of classic clients by group: those of the user, who may know no others."""
    found: dict[str, list[RemotingProducer]] = {}
    for group, producers in connection.broker.half.producers.groups(connection.login.vhost_name):
        shown = [
            each
            for each in producers
            if isinstance(each, RemotingProducer) and each.user == connection.login.user and each.client_id
        ]
        if shown:
            found[group] = shown
    return found


# -- requests to a member


def running_info(connection: RemotingConnection, request: Command) -> None:
    """Ask a member for its state, and pass on its answer."""
    _pass_on(connection, request, Operation.DESCRIBE_GROUP, request.body)


def consume_directly(connection: RemotingConnection, request: Command) -> None:
    """Have a member consume a message now, and pass on the result."""
    body = message_at(connection, text(request.fields, "msgId"))
    _pass_on(connection, request, Operation.SETTLE_GROUP, body)


def _pass_on(connection: RemotingConnection, request: Command, operation: Operation, body: bytes) -> None:
    group, client_id = text(request.fields, "consumerGroup"), text(request.fields, "clientId")
    connection.login.door.check(operation, queue=group)
    member = connection.consumers.members(group).get(client_id)
    if member is None:
        raise RequestFault(ResultCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")

    def answered(response: Command | None) -> None:
        if response is None:
            response = Command(ResultCode.CONSUME_TIMEOUT, remark=f"consumer <{group}> <{client_id}> Timeout")
        code = response.code if 0 <= response.code <= HIGHEST_RESULT else ResultCode.SYSTEM_ERROR
        connection.respond(request, Command(code, body=response.body, remark=response.remark))

    member.connection.ask(Code(request.code), dict(request.fields), body, answered)
