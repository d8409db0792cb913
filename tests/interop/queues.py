"""Queues that clients cannot declare by AMQP 1.0."""

from __future__ import annotations

from escrowmq.client import connect
from tests.broker import BrokerProcess


def declare_full(broker: BrokerProcess, name: str) -> None:
    """Declare a queue that contains one message and rejects all others."""
    with connect(broker.url) as connection, connection.channel() as channel:
        channel.queue_declare(name, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        channel.confirm_delivery()
        channel.basic_publish("", name, b"fits")
