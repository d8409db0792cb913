"""Clients of RocketMQ and AMQP and an XA branch share a topic, through kill -9 of the broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

import escrowmq.client
from escrowmq.client import Properties
from escrowmq.client.escrow import Escrow
from tests.broker import BrokerProcess
from tests.interop.rocketmq.brokers import RocketmqPorts, ServedBroker
from tests.interop.rocketmq.test_grpc_python import run

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ServedBroker]:
    """A broker of this test alone, with one topic."""
    ports = RocketmqPorts()
    with ports.broker(tmp_path) as process:
        served = ServedBroker(process, ports)
        served.declare({"normal": "normal"})
        yield served


def prepare(process: BrokerProcess) -> None:
    """Publish to the topic in a branch, and prepare it."""
    with escrowmq.client.connect(process.url) as connection:
        xid = connection.xid(1, b"across", b"1")
        connection.tpc_begin(xid)
        channel = connection.channel()
        for name in ("one", "two"):
            properties = Properties(message_id=f"id-{name}", headers={"shop": "south"}, delivery_mode=2)
            channel.basic_publish("normal", "xa", name.encode(), properties)
        connection.tpc_prepare()


@pytest.mark.rule("MSG-1", "DTX-8")
def test_a_consumer_of_rocketmq_gets_the_messages_of_a_branch_when_it_is_committed(broker: ServedBroker) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.process.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for name in ("three", "four"):
            properties = pika.BasicProperties(message_id=f"id-{name}", headers={"shop": "east"}, delivery_mode=2)
            channel.basic_publish("normal", "plain", name.encode(), properties)
    prepare(broker.process)
    broker.process.kill()
    broker.process.start()
    with escrowmq.client.connect(broker.process.url) as connection:
        (xid,) = connection.tpc_recover()
        connection.tpc_commit(xid)
    assert run(broker, "reads") == [
        ["four", "id-four", "plain", "east"],
        ["one", "id-one", "xa", "south"],
        ["three", "id-three", "plain", "east"],
        ["two", "id-two", "xa", "south"],
    ]


@pytest.mark.rule("MSG-1")
def test_messages_of_a_rocketmq_client_are_read_over_amqp_after_a_kill(broker: ServedBroker) -> None:
    assert run(broker, "sends") == 20
    broker.process.kill()
    broker.process.start()
    bodies = set()
    with escrowmq.client.connect(broker.process.url) as connection:
        reader = Escrow(connection)
        for stream in reader.streams("normal"):
            for block in reader.blocks(stream, "", 1, reader.describe(stream)[0].next):
                for message in block.bulk.messages():
                    headers = Properties.decode(message.properties).headers
                    assert headers == {"shop": "north", "x-opt-keys": f"key-{message.body.decode()}"}
                    assert message.routing_key == b"a"
                    bodies.add(message.body)
    assert bodies == {b"body-%d" % i for i in range(20)}
