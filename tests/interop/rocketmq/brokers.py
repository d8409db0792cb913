"""Brokers that serve clients of RocketMQ."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pika

from tests.broker import BrokerProcess, running_broker
from tests.ports import reserve_port


class RocketmqPorts:
    """Free ports for the three listeners. They are kept as long as this object lives."""

    def __init__(self) -> None:
        self.name_server = reserve_port(self)
        self.broker_port = reserve_port(self)
        self.grpc = reserve_port(self)

    @property
    def config(self) -> str:
        """The section of the configuration."""
        return (
            "[rocketmq]\nenabled = true\n"
            f'name_server_address = "127.0.0.1:{self.name_server}"\n'
            f'broker_address = "127.0.0.1:{self.broker_port}"\n'
            f'grpc_address = "127.0.0.1:{self.grpc}"\n'
        )

    def broker(self, folder: Path, further: str = "") -> BrokerProcess:
        """Start a broker in a folder, with further sections of the configuration."""
        file = folder / "broker.toml"
        file.write_text(self.config + further, encoding="utf-8")
        return running_broker(folder, "--config", str(file))


class ServedBroker(NamedTuple):
    """A broker, and its ports for clients of RocketMQ."""

    process: BrokerProcess
    ports: RocketmqPorts

    def declare(self, topics: Mapping[str, str]) -> None:
        """Declare topics with four queues. The values are their types."""
        with pika.BlockingConnection(pika.URLParameters(self.process.url)) as connection:
            channel = connection.channel()
            for name, kind in topics.items():
                arguments = {"x-partitions": 4, "x-message-type": kind}
                channel.exchange_declare(name, "x-partitioned", durable=True, arguments=arguments)

    def declare_for(self, client: str) -> None:
        """Declare the topics of a client's scenarios, whose names begin with the client's."""
        kinds = ("normal", "normal"), ("fifo", "fifo"), ("delay", "delay"), ("pushed", "normal")
        transactional = ("tx", "transaction"), ("survivors", "transaction")
        self.declare({f"{client}-{name}": kind for name, kind in (*kinds, *transactional)})

    def command(self, *words: str) -> str:
        """Run a command of `escrowmq` about the broker, and return its output."""
        whole = [sys.executable, "-m", "escrowmq", *words, "--data-dir", str(self.process.data_dir)]
        return subprocess.run(whole, check=True, capture_output=True, text=True, timeout=60).stdout

    def add_key(self, user: str) -> tuple[str, str]:
        """Give a user an access key. Return it with its secret key."""
        shown = json.loads(self.command("user", "add-key", user, "--json"))
        keys = shown[0] if isinstance(shown, list) else shown
        return keys["access_key"], keys["secret_key"]
