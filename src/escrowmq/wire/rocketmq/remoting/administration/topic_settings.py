"""The settings of a topic: its number of queues and its type. A change that the broker cannot make is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from escrowmq.core.access.table import Operation
from escrowmq.core.topology.exchanges.partitioned import DEFAULT_PARTITIONS, MESSAGE_TYPES
from escrowmq.wire.rocketmq.remoting.administration.topics import TYPE_ATTRIBUTE
from escrowmq.wire.rocketmq.remoting.codes import ResultCode
from escrowmq.wire.rocketmq.remoting.errors import RequestFault
from escrowmq.wire.rocketmq.remoting.fields import number, text
from escrowmq.wire.rocketmq.remoting.reply import HandlerReply, success
from escrowmq.wire.rocketmq.remoting.routing import READ_WRITE
from escrowmq.wire.rocketmq.topics import MIXED

if TYPE_CHECKING:
    from escrowmq.core.topology.topics import Topic
    from escrowmq.wire.rocketmq.remoting.connection import RemotingConnection
    from escrowmq.wire.rocketmq.remoting.frames import Command


def update_topic(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Create a topic, or let it grow. A request for any other change is refused, since it would have no effect."""
    fields = request.fields
    name = text(fields, "topic")
    known = connection.catalogue.find(name)
    connection.login.door.check(Operation.DECLARE_TOPIC, exchange=name)  # refusals reveal facts about the topic
    if number(fields, "perm", READ_WRITE) != READ_WRITE:
        raise RequestFault(
            ResultCode.NOT_SUPPORTED,
            f"permissions of a topic are not supported: topic {name} can be read and written (perm {READ_WRITE}); "
            "restrict users with `escrowmq permission`",
        )
    message_type = _message_type(fields.get("attributes", ""), MIXED if known is None else known.message_type)
    connection.catalogue.create(name, _queues(fields, name, known), message_type)
    return success(after=connection.engine.log.end_lsn)


def _queues(fields: Mapping[str, str], name: str, known: Topic | None) -> int:
    """Return the number of queues that a request asks for. Raises RequestFault if a topic cannot have it."""
    existing = 0 if known is None else len(known.streams)
    reading = number(fields, "readQueueNums", existing or DEFAULT_PARTITIONS)
    writing = number(fields, "writeQueueNums", existing or DEFAULT_PARTITIONS)
    if reading != writing:
        raise RequestFault(
            ResultCode.INVALID_PARAMETER,
            f"topic {name} cannot have {reading} queues to read and {writing} to write: the numbers must be equal",
        )
    if reading < existing:
        raise RequestFault(
            ResultCode.INVALID_PARAMETER,
            f"topic {name} has {existing} queues and cannot shrink to {reading}: ask for {existing} or more, or "
            "delete it first",
        )
    return reading


def _message_type(attributes: str, current: str) -> str:
    """Return the type that attributes ask for, such as `+message.type=FIFO`. Raises RequestFault for other ones."""
    found = current
    for each in filter(None, attributes.split(",")):
        name, between, value = each.partition("=")
        if name.lstrip("+") != TYPE_ATTRIBUTE or not between:
            raise RequestFault(
                ResultCode.NOT_SUPPORTED, f"the attribute {each} is not supported; only +{TYPE_ATTRIBUTE}=TYPE is"
            )
        found = value.lower()
        if found not in MESSAGE_TYPES:
            types = ", ".join(MESSAGE_TYPES).upper()
            raise RequestFault(
                ResultCode.INVALID_PARAMETER, f"{TYPE_ATTRIBUTE}={value} is not a type of topics: choose one of {types}"
            )
    return found
