"""The asyncio face of the client: one event loop per connection, any number of tasks.

`from escrowmq.amqp10 import aio`, then `async with await aio.connect(url) as connection: …`. Names and arguments are
those of the blocking face.
"""

from escrowmq.amqp10.aio.connection import AsyncConnection, AsyncSession, connect
from escrowmq.amqp10.aio.links import AsyncReceiver, AsyncSender

__all__ = ["AsyncConnection", "AsyncReceiver", "AsyncSender", "AsyncSession", "connect"]
