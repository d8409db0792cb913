"""A cluster of three nodes of Debian's `rabbitmq-server`, for queues of type quorum. Limits have their defaults."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from bench.brokers import RABBITMQ, BrokerError, RabbitMQ, free_port
from bench.cluster import NODES, Cluster, answers
from bench.erlang import RABBITMQ_BIN, ErlangNode, start_epmd

RABBITMQ_CLUSTER = "RabbitMQ cluster"
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
        # An epmd that a node starts as a daemon would outlive it.
        with (self.directory / "epmd.log").open("ab") as log:
            self._extra.append(start_epmd(self._epmd_port, log))
        super().start()

    def _environment(self, node: int) -> dict[str, str]:
        erlang = ErlangNode(_NAMES[node], self._epmd_port, self._distribution[node], home=self.directory)
        return erlang.environment(self.directory / str(node))

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
                [str(RABBITMQ_BIN / "rabbitmq-server")],
                env=self._environment(node),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def repair(self) -> None:
        super().repair()
        tool = shutil.which("rabbitmqctl", path=str(RABBITMQ_BIN)) or str(RABBITMQ_BIN / "rabbitmqctl")
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
