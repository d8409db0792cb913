"""The asyncio face of the client: one event loop per connection, any number of tasks.

`from escrowmq.amqp10 import aio`, then `async with await aio.connect(url) as connection: …`. Names and arguments are
those of the blocking face.
"""

from escrowmq.amqp10.aio.connection import AsyncConnection, AsyncSession, connect
from escrowmq.amqp10.aio.exactly_once import (
    AsyncExactlyOnceReceiver,
    AsyncExactlyOnceSender,
    exactly_once_receiver,
    exactly_once_sender,
)
from escrowmq.amqp10.aio.links import AsyncReceiver, AsyncSender

__all__ = [
    "AsyncConnection",
    "AsyncExactlyOnceReceiver",
    "AsyncExactlyOnceSender",
    "AsyncReceiver",
    "AsyncSender",
    "AsyncSession",
    "connect",
    "exactly_once_receiver",
    "exactly_once_sender",
]
