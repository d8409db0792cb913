"""Definitions as RabbitMQ exports them: users, permissions, limits, a policy, queues, exchanges and bindings.

`python -m tests.interop.differential.definitions` records them again with the installed rabbitmq-server.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pika

from bench.brokers import RabbitMQ
from tests.interop.differential import records

FILE: Final = records.FOLDER / "definitions.json"
USER: Final = "alice"
PASSWORD: Final = "old pässword"
VHOST: Final = "shop/north"
_COMMANDS: Final = (
    ("add_vhost", VHOST),
    ("set_vhost_limits", "-p", VHOST, '{"max-queues": 20, "max-connections": 30}'),
    ("add_user", USER, PASSWORD),
    ("set_user_tags", USER, "management", "policymaker"),
    ("set_user_limits", USER, '{"max-channels": 40}'),
    ("set_permissions", "-p", VHOST, USER, "^orders", "^(orders|amq[.]default)", ".*"),
    ("set_topic_permissions", "-p", VHOST, USER, "events", "^a[.]", "^b[.]"),
    ("set_permissions", "-p", VHOST, "guest", ".*", ".*", ".*"),
    ("set_policy", "-p", VHOST, "short", "^tmp", '{"max-length": 5}', "--apply-to", "queues"),
)


def command(server: RabbitMQ, *arguments: str) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(server.directory),
        "ERL_EPMD_PORT": str(server._epmd_port),
        "LANG": "C.UTF-8",
    }
    tool = ["/usr/lib/rabbitmq/bin/rabbitmqctl", "--node", "bench@localhost", *arguments]
    subprocess.run(tool, env=environment, check=True, timeout=60, stdout=subprocess.DEVNULL)


@contextmanager
def declared(port: int) -> Iterator[None]:
    """Declare queues, exchanges and bindings of many kinds. An exclusive queue exists until the end."""
    login = pika.PlainCredentials("guest", "guest")
    parameters = pika.ConnectionParameters("127.0.0.1", port, VHOST, login)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.exchange_declare("events", "topic", durable=True)
        channel.exchange_declare("hidden", "headers", durable=True, internal=True)
        channel.exchange_declare("left over", "fanout", durable=True, auto_delete=True)
        channel.exchange_declare("first", "direct", durable=True, arguments={"alternate-exchange": "left over"})
        dead = {"x-dead-letter-exchange": "left over", "x-dead-letter-routing-key": "dead"}
        channel.queue_declare("orders", durable=True, arguments={"x-max-length": 1000, "x-message-ttl": 60_000, **dead})
        channel.queue_declare("orders/ü", durable=True, arguments={"x-max-priority": 5, "x-overflow": "reject-publish"})
        channel.queue_declare("quorum", durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": 3})
        channel.queue_declare("stream", durable=True, arguments={"x-queue-type": "stream", "x-max-age": "7D"})
        channel.queue_bind("orders", "events", "a.*.#")
        channel.queue_bind("orders/ü", "hidden", "", {"x-match": "any", "n": 1, "text": "t", "flag": True})
        channel.queue_bind("quorum", "first", "k")
        channel.exchange_bind("hidden", "events", "b.#")
        channel.exchange_bind("left over", "events", "#")
        channel.queue_declare("reply", exclusive=True)
        channel.queue_bind("reply", "events", "c")
        yield


def exported(folder: Path) -> str:
    """Return the definitions that the installed rabbitmq-server exports, as text."""
    with records.rabbitmq() as server:
        for arguments in _COMMANDS:
            command(server, *arguments)
        with declared(server.port):
            command(server, "export_definitions", str(folder / "exported.json"))
    return (folder / "exported.json").read_text(encoding="utf-8")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        document = json.loads(exported(Path(folder)))
    FILE.write_text(json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
