"""Measures the client's bulk throughput: `python -m escrowmq.client.measure amqp://127.0.0.1/`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from escrowmq.client.connection import Connection, connect
from escrowmq.client.errors import Error
from escrowmq.wire.amqp091.properties import PERSISTENT, Properties

_QUEUE = "escrowmq.client.measure"


class Rate(NamedTuple):
    """A number of messages and the time they took, in seconds."""

    messages: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds


def publish_in_branches(
    url: str, *, branches: int = 10, messages: int = 100_000, size: int = 100, make: Callable[[list[bytes]], Any] = list
) -> Rate:
    """Publish persistent messages to a durable queue in a number of branches, each begun, prepared and committed.

    `messages` is the number in one branch, `size` the length of a body in bytes. `make` converts the list of bodies
    into the argument of `publish_many`. The queue is purged between the branches; the rate does not include that.
    """
    bodies = make([bytes([i % 251]) * size for i in range(messages)])
    seconds = 0.0
    with connect(url) as connection:
        channel = connection.channel()
        channel.queue_declare(_QUEUE, durable=True)
        properties = Properties(delivery_mode=PERSISTENT)
        for number in range(branches):
            start = time.perf_counter()
            connection.tpc_begin(connection.xid(1, _QUEUE, str(number)))
            channel.publish_many("", _QUEUE, bodies, properties)
            connection.tpc_prepare()
            connection.tpc_commit()
            seconds += time.perf_counter() - start
            channel.queue_purge(_QUEUE)
        channel.queue_delete(_QUEUE)
    return Rate(branches * messages, seconds)


def consume(url: str, *, messages: int = 500_000, size: int = 100) -> Rate:
    """Fetch `messages` messages with bodies of `size` bytes into lists of tags and bodies, acknowledging in batches."""
    with connect(url) as connection:
        channel = connection.channel()
        channel.queue_declare(_QUEUE, durable=True)
        channel.publish_many("", _QUEUE, [bytes(size)] * messages, Properties(delivery_mode=PERSISTENT))
        _wait_for(connection, messages)
        channel.basic_qos(prefetch_count=20_000)
        start = time.perf_counter()
        consumer = channel.subscribe(_QUEUE)
        tags: list[int] = []
        bodies: list[bytes] = []
        while len(tags) < messages:
            batch = consumer.fetch()
            tags += batch.tags
            bodies += batch.bodies
            channel.basic_ack(batch.tags[-1], multiple=True)
        channel.basic_qos()  # its answer shows that the acknowledgements have been processed
        seconds = time.perf_counter() - start
        channel.queue_delete(_QUEUE)
    return Rate(messages, seconds)


def _wait_for(connection: Connection, messages: int) -> None:
    """Wait until the queue holds all messages, because publishing is asynchronous."""
    with connection.channel() as channel:
        while channel.message_count(_QUEUE) < messages:
            connection.sleep(0.01)


def main(arguments: list[str]) -> int:
    """Measure against the broker at the URL and print the result.

    Returns the exit code: 1, with a line on stderr, if the broker fails.
    """
    parser = argparse.ArgumentParser(
        prog="python -m escrowmq.client.measure",
        description="Measure how fast the client publishes in branches and consumes, against a running broker. "
        f"The queue {_QUEUE} is declared for the measurement and deleted afterwards.",
        epilog="example: python -m escrowmq.client.measure amqp://127.0.0.1/",
    )
    parser.add_argument("url", help="the broker's URL: amqp://user:password@host:port/vhost")
    url = parser.parse_args(arguments).url
    try:
        published = publish_in_branches(url)
        sys.stdout.write(f"published in branches of 100,000: {published.per_second:,.0f} messages/s of 100 bytes\n")
        consumed = consume(url)
        sys.stdout.write(f"consumed and acknowledged:        {consumed.per_second:,.0f} messages/s of 100 bytes\n")
    except Error as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
