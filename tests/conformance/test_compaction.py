"""Compaction changes neither unacknowledged nor waiting messages (ORD-5)."""

from __future__ import annotations

import random

import pytest

from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.amqp091 import spec
from tests.harness.client import TRANSIENT, SimClient
from tests.harness.server import Options, SimServer


@pytest.mark.rule("ORD-5")
def test_compaction_of_the_first_segment_ignores_transient_messages() -> None:
    storage = MemoryStorage(random.Random(1))
    server = SimServer(storage, Options(segment_bytes=1000))
    client = SimClient(server)
    client.open_channel(1)
    client.declare(1, "q")
    client.publish(1, "q", b"first", b"x" * 2000, b"third")
    client.publish(1, "q", b"in memory alone", header=TRANSIENT)
    held = [client.get(1, "q") for _ in range(2)]
    client.send(1, spec.BasicAck(2))
    server.tidy()
    client.send(1, spec.BasicNack(1, requeue=True))
    again = [client.get(1, "q", no_ack=True) for _ in range(4)]
    assert [message and message.body for message in held] == [b"first", b"x" * 2000]
    assert [message and message.body for message in again] == [b"first", b"third", b"in memory alone", None]


def test_a_delivery_that_outlives_its_queue_does_not_retain_a_segment() -> None:
    server = SimServer(MemoryStorage(random.Random(1)), Options(segment_bytes=1000))
    client = SimClient(server)
    client.open_channel(1)
    client.declare(1, "q")
    client.publish(1, "q", b"x" * 900)
    assert client.get(1, "q") is not None
    client.call(1, spec.QueueDelete("q"), spec.QueueDeleteOk)
    client.declare(1, "other")
    server.tidy()
    assert not server.journal.sparse_segments(1.0)
    client.send(1, spec.BasicAck(1))
    assert client.count(1, "other") == 0
