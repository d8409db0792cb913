"""pika spreads messages over queues through an exchange of type `x-consistent-hash`, before and after a kill."""

from __future__ import annotations

from pathlib import Path

import pika
import pytest

from tests.broker import BrokerProcess, running_broker

pytestmark = pytest.mark.interop

KEYS = [f"customer-{i}" for i in range(200)]
WEIGHTS = {"one": "1", "two": "2", "three": "3"}


def spread(broker: BrokerProcess) -> dict[str, list[str]]:
    """Declare exchange, queues and bindings, publish a message with each key, return the keys that each queue got."""
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare("by-customer", "x-consistent-hash", durable=True)
        for queue, weight in WEIGHTS.items():
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, "by-customer", weight)
        for key in KEYS:
            channel.basic_publish("by-customer", key, b"", mandatory=True)
        found: dict[str, list[str]] = {queue: [] for queue in WEIGHTS}
        for queue, keys in found.items():
            while (method := channel.basic_get(queue, auto_ack=True)[0]) is not None:
                keys.append(method.routing_key)
        return found


def test_each_key_keeps_its_queue_after_a_kill(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        before = spread(broker)
        assert sorted(key for keys in before.values() for key in keys) == sorted(KEYS)
        assert all(before.values())
        broker.kill()
        broker.restart()
        assert spread(broker) == before
