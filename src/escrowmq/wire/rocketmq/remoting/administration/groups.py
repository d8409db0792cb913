"""Consumer groups: created, changed, deleted, and described."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from escrowmq.core.access.table import Operation
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.groups.options import GroupOptions
from escrowmq.wire.rocketmq.names import dead_letter_topic
from escrowmq.wire.rocketmq.remoting.administration.documents import VERSION, json_reply
from escrowmq.wire.rocketmq.remoting.fields import document, member, text
from escrowmq.wire.rocketmq.remoting.reply import HandlerReply, success

if TYPE_CHECKING:
    from escrowmq.core.groups.group import Group
    from escrowmq.wire.rocketmq.remoting.connection import RemotingConnection
    from escrowmq.wire.rocketmq.remoting.frames import Command


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
    group = group_named(connection, text(request.fields, "groupName"), Operation.DELETE_GROUP)
    connection.broker.groups.delete(group)
    return success(after=connection.engine.log.end_lsn)


def group_config(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the settings of one consumer group."""
    return json_reply(_group_config(group_named(connection, text(request.fields, "group"), Operation.DESCRIBE_GROUP)))


def all_group_configs(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the settings of all consumer groups that the user may see."""
    del request
    allows = connection.login.door.allows
    configs = {
        group.name: _group_config(group)
        for group in connection.catalogue.groups()
        if allows(Operation.DESCRIBE_GROUP, queue=group.name)
    }
    return json_reply({"dataVersion": VERSION, "forbiddenTable": {}, "subscriptionGroupTable": configs})


def _group_config(group: Group) -> dict[str, Any]:
    return {
        "attributes": {},
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "consumeMessageOrderly": group.options.fifo,
        "consumeTimeoutMinute": 15,
        "groupName": group.name,
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "groupSysFlag": 0,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": group.options.max_attempts - 1,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 0,
    }


def group_named(connection: RemotingConnection, name: str, operation: Operation) -> Group:
    connection.login.door.check(operation, queue=name)
    found = connection.catalogue.group(name)
    if found is None:
        raise BrokerError(Condition.NOT_FOUND, f"consumer group '{name}' does not exist")
    return found
