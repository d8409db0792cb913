"""Apache RocketMQ, which `make peers` fetches: name server, broker and gRPC proxy, with synchronous flushing.

Its broker and its proxy run in one Java virtual machine, the name server in another. Apart from ports, folders and
flushing, everything has its default.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from bench.brokers import EscrowMQ, free_port
from bench.peers import JavaBroker
from escrowmq.perf.errors import PerfError
from escrowmq.perf.rocketmq.remoting.caller import RemotingCaller

ROCKETMQ = "RocketMQ"
_NAME_SERVER_HEAP = "-Xmx256m"
_OPENED = (
    *("--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/java.util=ALL-UNNAMED"),
    *("--add-exports=java.base/sun.nio.ch=ALL-UNNAMED", "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED"),
)
"""Packages that RocketMQ uses and Java 17 hides."""
_CLUSTER_INFO = 106


class RocketMQ(JavaBroker):
    """RocketMQ with one broker. `port` is that of the name server."""

    name = ROCKETMQ
    jars = Path(sys.prefix) / "rocketmq-broker"
    main = "org.apache.rocketmq.proxy.ProxyStartup"
    jar = "rocketmq-broker"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._broker_port = _free_ports()
        self._grpc_port, self._proxy_port = free_port(), free_port()
        self._name_server: subprocess.Popen[str] | None = None

    @property
    def rocketmq_url(self) -> str:
        """The URL of the name server."""
        return f"rocketmq://127.0.0.1:{self.port}"

    @property
    def grpc_url(self) -> str:
        """The URL of the proxy."""
        return f"rocketmq+grpc://127.0.0.1:{self._grpc_port}"

    def _configure(self) -> list[str]:
        store = self.directory / "store"
        name_server = f"127.0.0.1:{self.port}"
        settings = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "bench",
            "brokerId": "0",
            "brokerIP1": "127.0.0.1",
            "listenPort": str(self._broker_port),
            "namesrvAddr": name_server,
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
            "flushDiskType": "SYNC_FLUSH",
        }
        (self.directory / "broker.conf").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        proxy = {
            "rocketMQClusterName": "DefaultCluster",
            "proxyMode": "LOCAL",
            "namesrvAddr": name_server,
            "grpcServerPort": self._grpc_port,
            "remotingListenPort": self._proxy_port,
        }
        (self.directory / "conf").mkdir(exist_ok=True)
        (self.directory / "conf" / "rmq-proxy.json").write_text(json.dumps(proxy))
        (self.directory / "namesrv.conf").write_text(
            f"listenPort={self.port}\nkvConfigPath={store / 'kv.json'}\n"
            f"configStorePath={store / 'namesrv.properties'}\n"
        )
        return [
            *("-pm", "local", "-n", name_server, "-bc", str(self.directory / "broker.conf")),
            *("-pc", str(self.directory / "conf" / "rmq-proxy.json")),
        ]

    def _launch(self, log: IO[str]) -> None:
        arguments = self._configure()
        start = ["-c", str(self.directory / "namesrv.conf")]
        self._name_server = self._java(log, _NAME_SERVER_HEAP, "org.apache.rocketmq.namesrv.NamesrvStartup", start)
        self._process = self._java(log, "-Xmx4G", self.main, arguments)

    def _java(self, log: IO[str], heap: str, main: str, arguments: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["java", heap, *_OPENED, f"-Duser.home={self.directory}", "-cp", f"{self.jars}/*", main, *arguments],
            cwd=self.directory,
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.directory), "ROCKETMQ_HOME": str(self.directory)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            text=True,
            start_new_session=True,
        )

    def _answers(self) -> bool:
        """Whether the broker has registered with the name server, and the proxy listens."""
        try:
            caller = RemotingCaller("127.0.0.1", self.port, 5.0)
        except PerfError:
            time.sleep(0.1)
            return False
        try:
            known = b"bench" in caller.call(_CLUSTER_INFO, {}).body
            RemotingCaller("127.0.0.1", self._grpc_port, 5.0).close()
        except PerfError:
            known = False
        finally:
            caller.close()
        if not known:
            time.sleep(0.1)
        return known

    def _ended(self) -> None:
        super()._ended()
        if self._name_server is not None:
            self._name_server.kill()
            self._name_server.wait()
            self._name_server = None


def _free_ports() -> int:
    """Return a free port for a broker, which also listens two ports below it and one above."""
    while True:
        port = free_port()
        try:
            for other in (port - 2, port + 1):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", other))
        except OSError:
            continue
        return port


class RocketmqEscrowMQ(EscrowMQ):
    """EscrowMQ with listeners for clients of RocketMQ."""

    settings = ""
    """Further sections of the configuration."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._name_port, self._grpc_port = free_port(), free_port()

    @property
    def rocketmq_url(self) -> str:
        """The URL of the name server."""
        return f"rocketmq://127.0.0.1:{self._name_port}"

    @property
    def grpc_url(self) -> str:
        """The URL of the endpoint for gRPC."""
        return f"rocketmq+grpc://127.0.0.1:{self._grpc_port}"

    def _arguments(self) -> tuple[str, ...]:
        file = self.directory / "broker.toml"
        file.write_text(
            "[rocketmq]\nenabled = true\n"
            f'name_server_address = "127.0.0.1:{self._name_port}"\n'
            f'broker_address = "127.0.0.1:{free_port()}"\n'
            f'grpc_address = "127.0.0.1:{self._grpc_port}"\n{self.settings}'
        )
        return (*super()._arguments(), "--config", str(file))
