"""Consuming: the number of subscriptions, the acknowledgements, and the replies."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from struct import pack
from types import SimpleNamespace
from typing import cast

import pytest

from escrowmq.perf.amqp091 import frames
from escrowmq.perf.amqp091.connection import Connection
from escrowmq.perf.amqp091.consumer import CountingConsumer, Reply
from escrowmq.perf.amqp091.content import body_frames, properties
from escrowmq.perf.errors import PerfError
from escrowmq.perf.messages import LoadMessage
from escrowmq.perf.sampling import PublishedContents
from escrowmq.perf.totals import Totals

BODY = pack(">Q", 1000)
ACCEPTED = frames.method(1, frames.BASIC_CONSUME_OK, frames.shortstr("perf-0000"))


def delivered(tag: int, body: bytes = BODY) -> bytes:
    arguments = frames.shortstr("perf-0000") + pack(">QB", tag, 0) + frames.shortstr("") + frames.shortstr("q")
    header = pack(">HHQ", 60, 0, len(body)) + properties(LoadMessage(b"", message_id="id"), 1)
    return (
        frames.method(1, frames.BASIC_DELIVER, arguments)
        + frames.frame(frames.HEADER, 1, header)
        + body_frames(1, body, 0)
    )


class Consuming:
    """A consumer, and the broker's end of its socket."""

    def __init__(self, stack: ExitStack) -> None:
        ours, theirs = socket.socketpair()
        self.ours, self.broker = stack.enter_context(ours), stack.enter_context(theirs)
        self.ours.setblocking(False)
        self.broker.setblocking(False)
        self.totals = Totals()
        self.contents = PublishedContents()
        self.contents.add("id", None, BODY)

    def consumer(self, ack_every: int, stamped: bool = False, reply: Reply | None = None) -> CountingConsumer:
        connection = cast("Connection", SimpleNamespace(socket=self.ours))
        queues = ["q", "q"]
        return CountingConsumer(
            connection, self.totals, "c", queues, self.contents, ack_every, 0, stamped=stamped, reply=reply
        )

    def answer(self, consumer: CountingConsumer, data: bytes) -> bytes:
        self.broker.sendall(data)
        consumer.on_readable(5000)
        return self.sent()

    def sent(self) -> bytes:
        try:
            return self.broker.recv(65536)
        except BlockingIOError:
            return b""


@pytest.fixture
def consuming() -> Iterator[Consuming]:
    with ExitStack() as stack:
        yield Consuming(stack)


def test_a_consumer_is_subscribed_once_the_broker_has_accepted_every_subscription(consuming: Consuming) -> None:
    consumer = consuming.consumer(ack_every=0)
    consumer.start(0)
    wanted = [frames.basic_consume(1, "q", f"perf-{number:04d}", auto_ack=True) for number in range(2)]
    assert consuming.sent() == b"".join(wanted)
    found = []
    for _ in range(2):
        consuming.answer(consumer, ACCEPTED)
        found.append(consumer.subscribed)
    assert found == [False, True]


def test_no_acceptance_between_deliveries_is_overlooked(consuming: Consuming) -> None:
    consumer = consuming.consumer(ack_every=0)
    consuming.answer(consumer, ACCEPTED + delivered(1))
    consuming.answer(consumer, delivered(2) + ACCEPTED + delivered(3))
    assert consumer.subscribed
    assert consumer.counter.count == 3


def test_each_delivery_is_acknowledged_on_its_own(consuming: Consuming) -> None:
    consumer = consuming.consumer(ack_every=1)
    assert consuming.answer(consumer, delivered(1) + delivered(2)) == frames.single_acks(1, 1, 2)


def test_several_are_acknowledged_together_and_the_rest_at_the_end(consuming: Consuming) -> None:
    consumer = consuming.consumer(ack_every=2)
    assert consuming.answer(consumer, delivered(1) + delivered(2) + delivered(3)) == frames.basic_ack(1, 2, True)
    consumer.finish(9)
    assert consuming.sent() == frames.basic_ack(1, 3, multiple=True)
    assert consuming.totals.consumed == 3


def test_without_acknowledgements_none_is_sent(consuming: Consuming) -> None:
    consumer = consuming.consumer(ack_every=0)
    assert consuming.answer(consumer, delivered(1)) == b""
    consumer.finish(9)
    assert consuming.sent() == b""


def test_the_time_in_a_body_gives_its_latency(consuming: Consuming) -> None:
    consuming.answer(consuming.consumer(ack_every=0, stamped=True), delivered(1))
    assert consuming.totals.delivery.maximum == 4000


def test_an_answer_is_sent_for_each_message(consuming: Consuming) -> None:
    consumer = consuming.consumer(ack_every=0, reply=lambda ids: f"<{ids.message_id}>".encode())
    assert consuming.answer(consumer, delivered(1) + delivered(2)) == b"<id><id>"


def test_a_message_that_was_not_published_ends_the_run(consuming: Consuming) -> None:
    with pytest.raises(PerfError, match="was not published"):
        consuming.answer(consuming.consumer(ack_every=0), delivered(1, body=b"something else"))
