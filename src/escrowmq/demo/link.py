"""A connection of a plain AMQP 0-9-1 client (pika), and the queue that the events go through."""

from __future__ import annotations

import logging
import time
from typing import Any, Final

import pika
from pika.exceptions import AMQPError

QUEUE: Final = "flights"
PATIENCE: Final = 60.0
"""Seconds to go on trying while the broker is away."""

# pika logs what it also raises; here a lost connection is part of the programme.
logging.getLogger("pika").setLevel(logging.CRITICAL)


def connect(url: str) -> Any:
    """A transactional channel, as soon as the broker can be reached. Raises AMQPError when that takes too long."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
            channel.queue_declare(QUEUE, durable=True)
            channel.tx_select()
        except AMQPError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return channel


def waiting(url: str) -> int:
    """How many messages wait in the queue now."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        return int(connection.channel().queue_declare(QUEUE, durable=True).method.message_count)
    finally:
        connection.close()
