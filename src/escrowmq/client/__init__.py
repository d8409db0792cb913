"""A blocking AMQP 0-9-1 client: two-phase commit as in PEP 249, publishing and consuming with pika's method names."""

from typing import Final

from escrowmq.client.channel import Channel
from escrowmq.client.connection import Connection, connect
from escrowmq.client.deliveries import Batch, Consumer, Message
from escrowmq.client.errors import (
    AccessRefused,
    AuthenticationError,
    BrokerFailed,
    ChannelClosed,
    Closed,
    CommandInvalid,
    ConnectionClosed,
    ConsumerCancelled,
    ContentTooLarge,
    DatabaseError,
    DataError,
    Error,
    HeuristicOutcome,
    IntegrityError,
    InterfaceError,
    InternalError,
    NackError,
    NotAllowed,
    NotFound,
    NotImplementedByBroker,
    NotSupportedError,
    OperationalError,
    PreconditionFailed,
    ProgrammingError,
    ResourceExhausted,
    ResourceLocked,
    Returned,
    RolledBack,
    Timeout,
    UnroutableError,
    Warning,  # noqa: A004 - PEP 249's name
)
from escrowmq.client.parameters import Parameters, parse_url
from escrowmq.client.requests import Answer, Content
from escrowmq.client.xids import make_xid as xid
from escrowmq.core.branches.xid import Xid
from escrowmq.wire.amqp091.properties import Properties

BasicProperties = Properties
"""The name that pika uses for `Properties`."""
threadsafety: Final = 1
"""PEP 249: threads may share the module, but not connections."""

__all__ = [
    "AccessRefused",
    "Answer",
    "AuthenticationError",
    "BasicProperties",
    "Batch",
    "BrokerFailed",
    "Channel",
    "ChannelClosed",
    "Closed",
    "CommandInvalid",
    "Connection",
    "ConnectionClosed",
    "Consumer",
    "ConsumerCancelled",
    "Content",
    "ContentTooLarge",
    "DataError",
    "DatabaseError",
    "Error",
    "HeuristicOutcome",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "Message",
    "NackError",
    "NotAllowed",
    "NotFound",
    "NotImplementedByBroker",
    "NotSupportedError",
    "OperationalError",
    "Parameters",
    "PreconditionFailed",
    "ProgrammingError",
    "Properties",
    "ResourceExhausted",
    "ResourceLocked",
    "Returned",
    "RolledBack",
    "Timeout",
    "UnroutableError",
    "Warning",
    "Xid",
    "connect",
    "parse_url",
    "threadsafety",
    "xid",
]
