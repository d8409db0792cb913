"""All brokers are connected to one NATS server, which is cut off from the other two: they go on with one of these."""

from __future__ import annotations

import time
from pathlib import Path

import pika
import pytest
from pika.exceptions import AMQPError

from escrowmq.replica.engines import open_log
from tests.broker import wait_until
from tests.engines.nats_nodes import NatsNodes, SeparableNatsNodes
from tests.replicas import ReplicaBrokers

pytestmark = pytest.mark.skipif(SeparableNatsNodes.missing() is not None, reason=str(SeparableNatsNodes.missing()))


SILENT_SECONDS = 12.0


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


@pytest.mark.rule("REPL-2")
def test_a_node_leads_on_while_a_server_of_the_engine_says_nothing(tmp_path: Path) -> None:
    """The server follows the stream, and no broker is connected to it. The other servers ask it in vain for a while."""
    with NatsNodes(tmp_path / "nats", 3) as servers:
        open_log(servers.url("journal")).close()
        silent = (servers.leader("journal") + 1) % 3
        hosts = ",".join(f"127.0.0.1:{port}" for node, port in enumerate(servers.ports) if node != silent)
        with ReplicaBrokers(tmp_path, f"nats://{hosts}/journal?replicas=3") as brokers:
            leader = brokers.leader()
            brokers.followed()
            epoch = leader.standing()["epoch"]
            servers.freeze(silent)
            give_up = time.monotonic() + SILENT_SECONDS
            while time.monotonic() < give_up:
                assert confirmed(brokers, b"m")
            servers.thaw(silent)
            assert leader.standing()["epoch"] == epoch


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
