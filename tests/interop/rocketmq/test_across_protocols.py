"""Clients of RocketMQ and AMQP and an XA branch share a topic, through kill -9 of the broker."""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pytest

import escrowmq.client
from escrowmq.client import Properties
from escrowmq.client.escrow import Escrow
from tests.interop.rocketmq.brokers import RocketmqPorts, ServedBroker
from tests.interop.rocketmq.test_grpc_python import run

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    """Return a broker that was killed after clients of RocketMQ and AMQP had published to a topic, and while a branch
    was prepared, which has been committed since.
    """
    ports = RocketmqPorts()
    with ports.broker(tmp_path_factory.mktemp("broker")) as process:
        served = ServedBroker(process, ports)
        served.declare({"normal": "normal"})
        assert run(served, "sends") == 20
        with pika.BlockingConnection(pika.URLParameters(process.url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for name in ("three", "four"):
                properties = pika.BasicProperties(message_id=f"id-{name}", headers={"shop": "east"}, delivery_mode=2)
                channel.basic_publish("normal", "plain", name.encode(), properties)
        prepare(process.url)
        process.kill()
        process.start()
        with escrowmq.client.connect(process.url) as connection:
            (xid,) = connection.tpc_recover()
            connection.tpc_commit(xid)
        yield served


def prepare(url: str) -> None:
    """Publish to the topic in a branch, and prepare it."""
    with escrowmq.client.connect(url) as connection:
        connection.tpc_begin(connection.xid(1, b"across", b"1"))
        channel = connection.channel()
        for name in ("one", "two"):
            properties = Properties(message_id=f"id-{name}", headers={"shop": "south"}, delivery_mode=2)
            channel.basic_publish("normal", "xa", name.encode(), properties)
        connection.tpc_prepare()


@pytest.mark.rule("MSG-1", "DTX-8")
def test_a_consumer_of_rocketmq_gets_the_messages_of_amqp_and_of_a_branch(killed: ServedBroker) -> None:
    assert run(killed, "reads") == [
        ["four", "id-four", "plain", "east"],
        ["one", "id-one", "xa", "south"],
        ["three", "id-three", "plain", "east"],
        ["two", "id-two", "xa", "south"],
    ]


@pytest.mark.rule("MSG-1")
def test_messages_of_a_rocketmq_client_are_read_over_amqp(killed: ServedBroker) -> None:
    bodies = set()
    with escrowmq.client.connect(killed.process.url) as connection:
        reader = Escrow(connection)
        for stream in reader.streams("normal"):
            for block in reader.blocks(stream, "", 1, reader.describe(stream)[0].next):
                for message in block.bulk.messages():
                    if message.routing_key == b"a":
                        headers = Properties.decode(message.properties).headers
                        assert headers == {"shop": "north", "x-opt-keys": f"key-{message.body.decode()}"}
                        bodies.add(message.body)
    assert bodies == {b"body-%d" % i for i in range(20)}
