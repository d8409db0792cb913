"""Brokers that serve clients of RocketMQ."""

from __future__ import annotations

from pathlib import Path

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

    def broker(self, folder: Path) -> BrokerProcess:
        """Start a broker in a folder."""
        file = folder / "broker.toml"
        file.write_text(self.config, encoding="utf-8")
        return running_broker(folder, "--config", str(file))
