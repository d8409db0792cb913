"""A cluster of three nodes of Debian's `rabbitmq-server`, for queues of type quorum. Limits have their defaults."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from bench.brokers import RABBITMQ, BrokerError, RabbitMQ, free_port
from bench.cluster import NODES, Cluster, answers

RABBITMQ_CLUSTER = "RabbitMQ cluster"
_BIN = Path("/usr/lib/rabbitmq/bin")
_NAMES = tuple(f"bench{number}@localhost" for number in range(NODES))


class RabbitMQCluster(Cluster):
    """Nodes that find each other by a list of their names. Clients use the first one that runs."""

    name = RABBITMQ_CLUSTER
    load_options = ("--argument", "x-queue-type=quorum")
    installed = staticmethod(RabbitMQ.installed)

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._ports = [free_port() for _ in range(NODES)]
        self._distribution = [free_port() for _ in range(NODES)]
        self._epmd_port = free_port()
        self.port = self._ports[0]

    @property
    def ports(self) -> list[int]:
        return self._ports

    def start(self) -> None:
        # Start an epmd in the foreground, because one that a node starts as a daemon would outlive it.
        with (self.directory / "epmd.log").open("ab") as log:
            self._extra.append(
                subprocess.Popen(
                    ["epmd", "-port", str(self._epmd_port), "-address", "127.0.0.1"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
        super().start()

    def _environment(self, node: int) -> dict[str, str]:
        folder = self.directory / str(node)
        return {
            **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
            "HOME": str(self.directory),  # the cookie is there
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": _NAMES[node],
            "RABBITMQ_DIST_PORT": str(self._distribution[node]),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "no-env.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_MNESIA_DIR": str(folder / "mnesia" / "node"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
        }

    def _begin(self, node: int) -> subprocess.Popen[bytes]:
        folder = self.directory / str(node)
        folder.mkdir(exist_ok=True)
        settings = [
            f"listeners.tcp.1 = 127.0.0.1:{self._ports[node]}",
            "cluster_formation.peer_discovery_backend = rabbit_peer_discovery_classic_config",
            *(f"cluster_formation.classic_config.nodes.{number + 1} = {name}" for number, name in enumerate(_NAMES)),
        ]
        (folder / "rabbitmq.conf").write_text("\n".join([*settings, ""]))
        (folder / "enabled_plugins").write_text("[].\n")
        with (folder / "output.log").open("ab") as log:
            return subprocess.Popen(
                [str(_BIN / "rabbitmq-server")],
                env=self._environment(node),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def repair(self) -> None:
        super().repair()
        tool = shutil.which("rabbitmqctl", path=str(_BIN)) or str(_BIN / "rabbitmqctl")
        done = subprocess.run(
            [tool, "--node", _NAMES[0], "await_online_nodes", str(NODES), "--timeout", "60"],
            env=self._environment(0),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise BrokerError(f"the nodes of RabbitMQ do not form a cluster: {done.stderr.strip()[-200:]}")

    def _whole(self) -> bool:
        return all(map(answers, self._ports))

    def version(self) -> str:
        return RabbitMQ.version(self).replace(RABBITMQ, self.name)  # type: ignore[arg-type]
