"""An AMQP 1.0 client that can do exactly once: a blocking and an asyncio face over one pure endpoint."""

from escrowmq.amqp10.blocking.connection import Connection, Session, connect
from escrowmq.amqp10.blocking.links import Receiver, Sender
from escrowmq.amqp10.endpoint.deliveries import IncomingDelivery, OutgoingDelivery
from escrowmq.amqp10.endpoint.transactions import Transaction
from escrowmq.amqp10.errors import (
    AccessDenied,
    AmqpError,
    ConnectionLost,
    ConnectionRefused,
    DeliveryLost,
    LinkFailed,
    LinkStolen,
    LoginRefused,
    MessageModified,
    MessageRejected,
    MessageReleased,
    NodeNotFound,
    NotAccepted,
    NotGranted,
    OperationTimeout,
    ProtocolViolation,
    SessionFailed,
    TransactionFailed,
    TransactionInDoubt,
    UsageError,
)
from escrowmq.amqp10.exactly_once import Database, ExactlyOnceReceiver, ExactlyOnceSender
from escrowmq.amqp10.message import AmqpSequence, AmqpValue, Message, moment
from escrowmq.amqp10.nodes import DURABLE, Terminus, exchange, no_local, queue, selector, stream_offset
from escrowmq.amqp10.parameters import Backoff, Parameters

__all__ = [
    "DURABLE",
    "AccessDenied",
    "AmqpError",
    "AmqpSequence",
    "AmqpValue",
    "Backoff",
    "Connection",
    "ConnectionLost",
    "ConnectionRefused",
    "Database",
    "DeliveryLost",
    "ExactlyOnceReceiver",
    "ExactlyOnceSender",
    "IncomingDelivery",
    "LinkFailed",
    "LinkStolen",
    "LoginRefused",
    "Message",
    "MessageModified",
    "MessageRejected",
    "MessageReleased",
    "NodeNotFound",
    "NotAccepted",
    "NotGranted",
    "OperationTimeout",
    "OutgoingDelivery",
    "Parameters",
    "ProtocolViolation",
    "Receiver",
    "Sender",
    "Session",
    "SessionFailed",
    "Terminus",
    "Transaction",
    "TransactionFailed",
    "TransactionInDoubt",
    "UsageError",
    "connect",
    "exchange",
    "moment",
    "no_local",
    "queue",
    "selector",
    "stream_offset",
]
