"""Transactional messages of classic clients: the half message, its decision, and the checks that producers get."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.core.access.table import Operation
from escrowmq.core.conditions import BrokerError
from escrowmq.wire.rocketmq import ids, properties
from escrowmq.wire.rocketmq.content import TRANSACTION_COMMITTED, MessageContent, envelope_of
from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode
from escrowmq.wire.rocketmq.remoting.errors import RequestFault
from escrowmq.wire.rocketmq.remoting.fields import number
from escrowmq.wire.rocketmq.remoting.messages import (
    LONGEST_PROPERTIES,
    StoredAt,
    content_for,
    encode_stored,
    without_transaction,
)
from escrowmq.wire.rocketmq.remoting.reply import HandlerReply, success

if TYPE_CHECKING:
    from collections.abc import Mapping

    from escrowmq.core.half.message import HalfMessage
    from escrowmq.core.topology.topics import Topic
    from escrowmq.wire.rocketmq.remoting.connection import RemotingConnection
    from escrowmq.wire.rocketmq.remoting.frames import Command

COMMIT: Final = 0x8
ROLL_BACK: Final = 0xC
UNKNOWN: Final = 0
LONGEST_GROUP: Final = 255
_LONGEST_IMMUNITY_SECONDS: Final = 3600


class RemotingProducer:
    """A connection as the broker's checks see it (`core.half.producers.Producer`)."""

    def __init__(self, connection: RemotingConnection) -> None:
        self._connection: RemotingConnection | None = connection
        self._half = connection.broker.half
        self.groups: dict[str, None] = {}
        self.client_id = self.language = ""
        self.version = self.seen_ms = 0

    @property
    def user(self) -> str:
        """The user of the connection."""
        return self._connection.login.user if self._connection is not None else ""

    @property
    def address(self) -> str:
        """The address of the client."""
        return str(self._connection.peer) if self._connection is not None else ""

    @property
    def label(self) -> str:
        """The client, for logs."""
        return self._connection.label if self._connection is not None else ""

    def join(self, group: str) -> None:
        """Take checks of messages that any producer of `group` has sent."""
        connection = self._connection
        if connection is None or group in self.groups:
            return
        if len(self.groups) >= connection.options.producers:
            raise RequestFault(
                ResultCode.SYSTEM_BUSY, f"the client has {len(self.groups)} producer groups, which is the limit"
            )
        if len(group) > LONGEST_GROUP:
            raise RequestFault(
                ResultCode.INVALID_PARAMETER,
                f"the producer group has {len(group)} characters; at most {LONGEST_GROUP} are allowed",
            )
        connection.login.door.check(Operation.JOIN_PRODUCERS)
        self.groups[group] = None
        self._half.producers.join(connection.login.vhost_name, group, self)

    def part(self, group: str) -> None:
        """Take no more checks for `group`."""
        if self._connection is not None and self.groups.pop(group, self) is None:
            self._half.producers.part(self._connection.login.vhost_name, group, self)

    def close(self) -> None:
        """Take no more checks, because the connection is gone."""
        self._half.producers.leave(self)
        self._connection = None

    def check(self, half: HalfMessage) -> bool:
        """Ask the client for the outcome. Return whether the request was written to a live client (HALF-5)."""
        connection = self._connection
        if connection is None or not connection.writable:
            return False
        content = without_transaction(content_for(half.envelope, half.content))
        found = properties.parse(content.properties)
        found[properties.CHECKS] = str(half.checks)
        rendered = properties.render(found)
        if len(rendered) <= LONGEST_PROPERTIES:  # clients cannot read more
            content = content._replace(properties=rendered)
        offset = ids.half_offset(half.number)
        queue = max(content.queue, 0)
        host, port = connection.address
        stored = StoredAt(half.topic, queue, half.number, offset, half.born, host, port)
        fields = {
            "topic": half.topic,
            "tranStateTableOffset": str(half.number),
            "commitLogOffset": str(offset),
            "msgId": half.message_id,
            "transactionId": half.message_id,
            "offsetMsgId": ids.message_id(host, port, offset),
            "bname": connection.options.broker_name,
        }
        connection.request(Code.CHECK_TRANSACTION, fields, encode_stored(content, stored))
        return True


def store_half(
    connection: RemotingConnection,
    group: str,
    topic: Topic,
    tag: str,
    content: MessageContent,
    found: Mapping[str, str],
) -> HandlerReply:
    """Store a half message, and answer when it is on disk (HALF-1). A delay that it asks for is dropped (HALF-8)."""
    key = found.get(properties.UNIQUE_KEY, "")
    if not key:
        raise RequestFault(ResultCode.MESSAGE_ILLEGAL, "a transactional message has no property UNIQ_KEY")
    group = found.get(properties.PRODUCER_GROUP, "") or group
    kept = {name: value for name, value in found.items() if name not in properties.DELAYS}
    kept[properties.PRODUCER_GROUP] = group
    kept[properties.TRANSACTION_ID] = key
    rendered = properties.render(kept)
    if len(rendered) > LONGEST_PROPERTIES:
        raise RequestFault(
            ResultCode.MESSAGE_ILLEGAL,
            f"the properties have {len(rendered)} octets with those of the transaction; at most {LONGEST_PROPERTIES} "
            "are allowed",
        )
    content = content._replace(properties=rendered, system_flag=content.system_flag | TRANSACTION_COMMITTED)
    immunity = min(max(properties.whole(found.get(properties.CHECK_IMMUNITY)) or 0, 0), _LONGEST_IMMUNITY_SECONDS)
    login = connection.login
    login.door.check(Operation.STORE_HALF, exchange=topic.name, key=tag)
    connection.producer.join(group)
    stored = connection.broker.half.store(
        login.vhost_name,
        topic.name,
        key,
        envelope_of(topic.name, tag),
        content.pack(),
        topic.streams[content.queue],
        group=group,
        user=login.user,
        producer=connection.producer,
        immunity_ms=immunity * 1000,
    )
    fields = {
        "msgId": ids.message_id(*connection.address, ids.half_offset(stored.number)),
        "queueId": str(content.queue),
        "queueOffset": str(stored.number),
        "transactionId": key,
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    return success(fields, after=stored.lsn)


def end_transaction(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Decide a half message. Clients send this one way; a fault is then only logged."""
    fields = request.fields
    half_number = ids.half_of(number(fields, "commitLogOffset"))
    if half_number is None or half_number != number(fields, "tranStateTableOffset"):
        raise RequestFault(ResultCode.SYSTEM_ERROR, "the offsets of the decision belong to no half message")
    halves, login = connection.broker.half, connection.login
    try:
        half = halves.at(login.vhost_name, half_number)
        login.door.check(Operation.DECIDE_HALF, half=half)
        if half is not None and fields.get("producerGroup", half.group) != half.group:
            raise RequestFault(ResultCode.SYSTEM_ERROR, "The producer group wrong")
        decide = {COMMIT: halves.commit, ROLL_BACK: halves.roll_back, UNKNOWN: halves.unknown}.get(
            number(fields, "commitOrRollback", UNKNOWN)
        )
        if decide is None:
            raise RequestFault(ResultCode.INVALID_PARAMETER, "commitOrRollback is neither 8, 12 nor 0")
        return success(after=decide(login.vhost_name, half_number, message_id=fields.get("msgId", "")))
    except BrokerError as error:
        refused(connection, half_number, error)
        raise


def refused(connection: RemotingConnection, half_number: int, error: BrokerError) -> None:
    """Log that a decision was refused: the client, which sends it one way, does not hear of it."""
    connection.failed(error.condition.value, f"END_TRANSACTION of half message {half_number}: {error.text}")
