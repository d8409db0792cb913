"""A broker for RabbitMQ's tools for the command line, which change it through the HTTP interface."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pika

from tests.broker import BrokerProcess, running_broker, wait_until
from tests.ports import reserve_port


class Admin:
    """Runs `program` against a broker with the queues `orders`, which has a message, and `a/b`."""

    url = ""

    def __init__(self, folder: Path, program: Sequence[str]) -> None:
        self.port = reserve_port(self)
        self.program = tuple(program)
        self.broker: BrokerProcess = running_broker(folder, "--http", f"127.0.0.1:{self.port}")

    def run(self, *args: str, password: str = "guest") -> subprocess.CompletedProcess[str]:
        login = ("--host", "127.0.0.1", "--port", str(self.port), "--username", "guest", "--password", password)
        command = [*self.program, *login, *args]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def done(self, *args: str) -> subprocess.CompletedProcess[str]:
        done = self.run(*args)
        assert done.returncode == 0, (args, done.stdout + done.stderr)
        return done

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Declare the queues, and keep a connection open."""
        with self.broker as broker, pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            for name in ("orders", "a/b"):
                channel.queue_declare(name, durable=True)
            channel.queue_bind("orders", "amq.topic", "k")
            channel.basic_publish("", "orders", b"x", pika.BasicProperties(delivery_mode=2))
            wait_until(lambda: self.run("show", "overview").returncode == 0)
            self.url = broker.url
            yield
