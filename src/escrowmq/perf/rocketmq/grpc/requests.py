"""The requests of the load, as messages of protocol buffers."""

from __future__ import annotations

import time
from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from escrowmq.perf.errors import PerfError
from escrowmq.perf.messages import LoadMessage
from escrowmq.perf.rocketmq.properties import TAG, user_properties
from escrowmq.wire.rocketmq.proto.definition_pb2 import (
    ClientType,
    Code,
    Encoding,
    FilterExpression,
    FilterType,
    Message,
    MessageQueue,
    MessageType,
    Publishing,
    Resource,
    Settings,
    Status,
    Subscription,
    SubscriptionEntry,
    SystemProperties,
    TransactionResolution,
    TransactionSource,
)
from escrowmq.wire.rocketmq.proto.service_pb2 import (
    AckMessageEntry,
    AckMessageRequest,
    EndTransactionRequest,
    HeartbeatRequest,
    ReceiveMessageRequest,
    SendMessageRequest,
    TelemetryCommand,
)

INVISIBLE_SECONDS: Final = 60
POLL_SECONDS: Final = 15


def check(status: Status, label: str) -> None:
    """Raise PerfError unless a request was carried out."""
    if status.code != Code.OK:
        raise PerfError(f"the broker refused a request ({label}): {status.code} {status.message}")


def send_request(message: LoadMessage, topic: str, ident: str, *, transactional: bool) -> bytes:
    """Return a send of one message."""
    system = SystemProperties(
        tag=TAG,
        keys=[message.message_id or ""],
        message_id=ident,
        body_encoding=Encoding.IDENTITY,
        message_type=MessageType.TRANSACTION if transactional else MessageType.NORMAL,
        born_timestamp=Timestamp(seconds=int(time.time())),
        born_host="127.0.0.1",
    )
    found = Message(
        topic=Resource(name=topic),
        user_properties=user_properties(message),
        system_properties=system,
        body=message.body,
    )
    return SendMessageRequest(messages=[found]).SerializeToString()


def end_request(topic: str, ident: str, transaction_id: str, *, from_check: bool) -> bytes:
    """Return the commit of a transaction."""
    return EndTransactionRequest(
        topic=Resource(name=topic),
        message_id=ident,
        transaction_id=transaction_id,
        resolution=TransactionResolution.COMMIT,
        source=TransactionSource.SOURCE_SERVER_CHECK if from_check else TransactionSource.SOURCE_CLIENT,
    ).SerializeToString()


def receive_request(topic: str, group: str, queue: int, most: int) -> bytes:
    """Return a request for messages, as simple consumers send it."""
    return ReceiveMessageRequest(
        group=Resource(name=group),
        message_queue=MessageQueue(topic=Resource(name=topic), id=queue),
        filter_expression=FilterExpression(type=FilterType.TAG, expression="*"),
        batch_size=most,
        invisible_duration=Duration(seconds=INVISIBLE_SECONDS),
        long_polling_timeout=Duration(seconds=POLL_SECONDS),
    ).SerializeToString()


def ack_request(topic: str, group: str, ident: str, receipt: str) -> bytes:
    """Return the acknowledgement of one message."""
    return AckMessageRequest(
        group=Resource(name=group),
        topic=Resource(name=topic),
        entries=[AckMessageEntry(message_id=ident, receipt_handle=receipt)],
    ).SerializeToString()


def heartbeat_request(group: str) -> bytes:
    """Return a heartbeat. Producers have no group."""
    kind = ClientType.SIMPLE_CONSUMER if group else ClientType.PRODUCER
    return HeartbeatRequest(group=Resource(name=group) if group else None, client_type=kind).SerializeToString()


def settings_request(topic: str, group: str) -> bytes:
    """Return the settings of a producer, or of a consumer if there is a group."""
    if not group:
        found = Settings(
            client_type=ClientType.PRODUCER,
            request_timeout=Duration(seconds=3),
            publishing=Publishing(topics=[Resource(name=topic)], validate_message_type=True),
        )
    else:
        entry = SubscriptionEntry(
            topic=Resource(name=topic), expression=FilterExpression(type=FilterType.TAG, expression="*")
        )
        found = Settings(
            client_type=ClientType.SIMPLE_CONSUMER,
            request_timeout=Duration(seconds=3),
            subscription=Subscription(
                group=Resource(name=group),
                subscriptions=[entry],
                long_polling_timeout=Duration(seconds=POLL_SECONDS),
            ),
        )
    return TelemetryCommand(settings=found).SerializeToString()
