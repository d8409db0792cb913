"""The clients in the guide to replication find the leader among several addresses, and the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.broker import wait_until
from tests.docs.pages import blocks
from tests.engines.nats_nodes import NatsNodes
from tests.interop.rocketmq.brokers import RocketmqPorts
from tests.replicas import ReplicaBroker, serves
from tests.unit.sources import ROOT

aio_pika: Any = pytest.importorskip("aio_pika")
proton: Any = pytest.importorskip("proton")
rocketmq: Any = pytest.importorskip("rocketmq")
pytestmark = pytest.mark.skipif(NatsNodes.missing() is not None, reason=str(NatsNodes.missing()))
GUIDE = ROOT / "docs" / "guides" / "replication.md"
QUEUE, TOPIC = "orders", "sales"


class Node(ReplicaBroker):
    """A node that also serves clients of RocketMQ."""

    def __init__(self, folder: Path, node: str, url: str) -> None:
        folder.mkdir()
        self.ports = RocketmqPorts()
        config = folder / "broker.toml"
        config.write_text(self.ports.config, encoding="utf-8")
        super().__init__(folder, node, url, "--config", str(config))


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, Node]]:
    """A standby, and the leader."""
    folder = tmp_path_factory.mktemp("clients")
    with NatsNodes(folder / "nats", 1) as engine:
        leader, standby = (Node(folder / name, name, engine.url("clients")) for name in ("n1", "n2"))
        try:
            leader.begin()
            wait_until(lambda: serves(leader), 60, "the leader")
            standby.begin()
            wait_until(lambda: standby.standing().get("leader") == "n1", 60, "the standby")
            yield standby, leader
        finally:
            leader.kill()
            standby.kill()


def page(nodes: tuple[Node, Node]) -> dict[str, Any]:
    """Run the blocks of the page, and return their names. The first address of three is that of the standby.

    The block for Spark is left out: `tests/spark/test_standby.py` reads from a standby.
    """
    text = "\n".join(block.text for block in blocks(GUIDE, "py") if "spark.read" not in block.text)
    text = text.replace("app:secret@", "guest:guest@")
    for number, node in zip(range(1, 4), cycle(nodes), strict=False):
        text = text.replace(f"broker-{number}.example:5672", f"127.0.0.1:{node.port}")
        text = text.replace(f"broker-{number}.example:8081", f"127.0.0.1:{node.ports.grpc}")
    assert ".example" not in text
    names: dict[str, Any] = {}
    exec(compile(text, "replication.md", "exec", dont_inherit=True), names)
    return names


async def published(names: dict[str, Any]) -> None:
    async with await names["connected"]() as connection:
        channel = await connection.channel()
        await channel.default_exchange.publish(aio_pika.Message(b"two"), QUEUE)


def test_clients_of_each_protocol_find_the_leader_and_the_next_one(nodes: tuple[Node, Node]) -> None:
    standby, leader = nodes
    names = page(nodes)
    channel = names["connection"].channel()
    channel.queue_declare(QUEUE, durable=True)
    topic = {"x-partitions": 2, "x-message-type": "normal"}
    channel.exchange_declare(TOPIC, "x-partitioned", durable=True, arguments=topic)
    channel.confirm_delivery()
    channel.basic_publish("", QUEUE, b"one")
    asyncio.run(published(names))
    connection = names["connect"]()
    connection.create_sender(f"/queues/{QUEUE}").send(proton.Message(body="three"))
    connection.close()
    assert channel.queue_declare(QUEUE, passive=True).method.message_count == 3
    producer = rocketmq.Producer(names["cluster"], [TOPIC])
    producer.startup()
    message = rocketmq.Message()
    message.topic, message.body = TOPIC, b"one"
    producer.send(message)
    leader.kill()
    wait_until(lambda: serves(standby), 60, "the next leader")
    wait_until(lambda: sent(producer, message), 60, "the next leader to get a message")
    producer.shutdown()
    names = page(nodes)
    names["connection"].close()
    asyncio.run(published(names))
    names["connect"]().close()


def sent(producer: Any, message: Any) -> bool:
    """Return whether a message was sent. The client has no class for its errors."""
    try:
        producer.send(message)
    except Exception:  # noqa: BLE001
        return False
    return True
