"""All brokers are connected to one NATS server, which is cut off from the other two: they go on with one of these."""

from __future__ import annotations

from pathlib import Path

import pika
import pytest
from pika.exceptions import AMQPError

from escrowmq.replica.engines import open_log
from tests.broker import wait_until
from tests.engines.nats_nodes import SeparableNatsNodes
from tests.replicas import ReplicaBrokers

pytestmark = pytest.mark.skipif(SeparableNatsNodes.missing() is not None, reason=str(SeparableNatsNodes.missing()))


@pytest.mark.rule("REPL-2")
def test_clients_are_served_again_while_the_server_is_cut_off(tmp_path: Path) -> None:
    with SeparableNatsNodes(tmp_path / "nats") as servers:
        open_log(servers.url("journal")).close()
        lonely = servers.leader("journal")
        url = f"nats://127.0.0.1:{servers.ports[lonely]}/journal?replicas=3"  # the brokers are told of the other two
        with ReplicaBrokers(tmp_path, url) as brokers:
            brokers.leader()
            assert confirmed(brokers, b"before")
            brokers.followed()
            servers.routes.cut_off(lonely)
            wait_until(lambda: confirmed(brokers, b"after"), 90, "a confirm without the server")
            assert messages(brokers)[0] == b"before"


def confirmed(brokers: ReplicaBrokers, body: bytes) -> bool:
    """Publish a message, and return whether a node has confirmed it within some seconds."""
    try:
        connection = pika.BlockingConnection(brokers.parameters())
        connection.call_later(5, connection.close)  # the leader may be cut off, and not know it yet
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", "q", body, pika.BasicProperties(delivery_mode=2))
        connection.close()
    except AMQPError:
        return False
    return True


def messages(brokers: ReplicaBrokers) -> list[bytes]:
    with pika.BlockingConnection(brokers.parameters()) as connection:
        channel = connection.channel()
        found: list[bytes] = []
        while (body := channel.basic_get("q", auto_ack=True)[2]) is not None:
            found.append(body)
        return found
