"""A connection of a plain AMQP 0-9-1 client (pika), and the exchange and queues that the events go through."""

from __future__ import annotations

import logging
import time
from typing import Any, Final

import pika
from pika.exceptions import AMQPError

EXCHANGE: Final = "flights"
QUEUE: Final = "flights"
"""What the consumer reads."""
STREAMING: Final = "flights.spark"
"""What Spark reads: the exchange gives each flight to both."""
LATE: Final = "flights.late"
"""What Spark writes."""
PATIENCE: Final = 60.0
"""Seconds to go on trying while the broker is away."""
IDLE: Final = 10.0
"""Seconds without a delivery after which nothing more is expected to come."""

# pika logs what it also raises; here a lost connection is part of the programme.
logging.getLogger("pika").setLevel(logging.CRITICAL)


def connect(url: str) -> Any:
    """A transactional channel, as soon as the broker can be reached. Raises AMQPError when that takes too long."""
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
    """Declare exchange and queues; how many messages are in these already."""
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
    """How many messages wait in a queue now."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        return int(connection.channel().queue_declare(queue, durable=True).method.message_count)
    finally:
        connection.close()


def look(url: str, queue: str) -> list[bytes]:
    """The bodies of all messages of a queue in their order. They are not acknowledged, so they stay there."""
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
