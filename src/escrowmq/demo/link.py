"""Connections of a plain AMQP 0-9-1 client (pika), and the exchange and queues for the events."""

from __future__ import annotations

import logging
import time
from typing import Any, Final

import pika
from pika.exceptions import AMQPError

EXCHANGE: Final = "flights"
QUEUE: Final = "flights"
"""The queue of the consumer."""
STREAMING: Final = "flights.spark"
"""The queue that Spark reads. The exchange routes each flight to both queues."""
LATE: Final = "flights.late"
"""The queue that Spark writes."""
PATIENCE: Final = 60.0
"""Seconds for which connection attempts are repeated while the broker is away."""
IDLE: Final = 10.0
"""Seconds without a delivery after which no more are expected."""

# pika logs the errors that it raises, and lost connections are expected here.
logging.getLogger("pika").setLevel(logging.CRITICAL)


def connect(url: str) -> Any:
    """Open a transactional channel as soon as the broker can be reached. Raises AMQPError after PATIENCE seconds."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
            channel.tx_select()
        except AMQPError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return channel


def declare(url: str) -> int:
    """Declare exchange and queues. Returns the number of messages that the queues already contain."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        channel = connection.channel()
        channel.exchange_declare(EXCHANGE, "fanout", durable=True)
        there = sum(
            channel.queue_declare(queue, durable=True).method.message_count for queue in (QUEUE, STREAMING, LATE)
        )
        for queue in (QUEUE, STREAMING):
            channel.queue_bind(queue, EXCHANGE)
        return int(there)
    finally:
        connection.close()


def waiting(url: str, queue: str = QUEUE) -> int:
    """Return the number of ready messages in a queue."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        return int(connection.channel().queue_declare(queue, durable=True).method.message_count)
    finally:
        connection.close()


def look(url: str, queue: str) -> list[bytes]:
    """Return the bodies of all messages in a queue, in order. They are not acknowledged, so they stay there."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        channel = connection.channel()
        count = int(channel.queue_declare(queue, durable=True).method.message_count)
        bodies: list[bytes] = []
        if count:
            for method, _, body in channel.consume(queue, inactivity_timeout=IDLE):
                if method is None:
                    break
                bodies.append(body)
                if len(bodies) == count:
                    break
        return bodies
    finally:
        connection.close()
