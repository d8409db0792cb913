"""Real Kafka brokers (KRaft), whose jars `make engines` fetches. Each node is broker and controller."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.engines.nodes import PATIENCE, EngineNodes

JARS = Path(sys.prefix, "kafka")
CLUSTER = "tests-tests-tests-teAA"  # a cluster's id has 22 characters
_JAVA = ("-Xms64m", "-Xmx400m", "-XX:+UseSerialGC", "-Xshare:auto")
_SETTINGS = """\
process.roles=broker,controller
node.id={id}
controller.quorum.voters={voters}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={folder}
offsets.topic.replication.factor={count}
offsets.topic.num.partitions=1
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
replica.lag.time.max.ms=5000
log.flush.offset.checkpoint.interval.ms=5000
num.io.threads=4
num.network.threads=2
log.cleaner.enable=false
{more}
"""


class KafkaNodes(EngineNodes):
    """One broker, or a cluster of three. `settings` are further lines of the configuration."""

    engine = "Kafka"
    scheme = "kafka"
    java: ClassVar[tuple[str, ...]] = (*_JAVA, "-XX:TieredStopAtLevel=1")
    """Options of Java. Nodes that live for a minute cost less without the compiler for long runs."""

    def __init__(self, folder: Path, count: int, host: str = "127.0.0.1", *, settings: str = "") -> None:
        super().__init__(folder, count, host)
        self._settings = settings
        servers = ",".join(f"{host}:{port}" for port in self.ports)
        self.admin = AdminClient({"bootstrap.servers": servers, "log_level": 0, "reconnect.backoff.max.ms": 200})

    @classmethod
    def missing(cls) -> str | None:
        if shutil.which("java") is None:
            return "there is no Java"
        return None if (JARS / ".fetched").exists() else "needs make engines"

    def _command(self, node: int) -> list[str]:
        data = self.folder / str(node)
        file = self.folder / f"{node}.properties"
        voters = ",".join(f"{each + 1}@127.0.0.1:{port}" for each, port in enumerate(self.peer_ports))
        file.write_text(
            _SETTINGS.format(
                id=node + 1,
                voters=voters,
                host=self.host,
                port=self.ports[node],
                controller=self.peer_ports[node],
                folder=data,
                count=self.count,
                more=self._settings,
            )
        )
        if not data.exists():
            self._format(node, data, file)
        return ["java", *self.java, "-cp", f"{JARS}/*", "kafka.Kafka", str(file)]

    def _format(self, node: int, data: Path, file: Path) -> None:
        """Format a folder. It is a copy, since Kafka's tool needs seconds, of one that stays beside the jars."""
        first = JARS / f"formatted-{next(JARS.glob('kafka_*.jar')).stem}"
        if not first.exists():
            self._format_first(data, file)
            fresh = first.with_name(f"{first.name}.{os.getpid()}")
            shutil.move(data, fresh)
            try:
                fresh.rename(first)
            except OSError:  # another process of the tests was faster
                shutil.rmtree(fresh)
        shutil.copytree(first, data)
        properties = data / "meta.properties"
        lines = properties.read_text().splitlines()
        kept = [line for line in lines if not line.startswith(("node.id=", "directory.id="))]
        # An identity has 22 characters, which are 16 bytes in base64.
        properties.write_text("\n".join([*kept, f"node.id={node + 1}", f"directory.id=directory-of-node-00{node}A"]))

    def _format_first(self, data: Path, file: Path) -> None:
        tool = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/*", "kafka.tools.StorageTool"]
        form = [*tool, "format", "-t", CLUSTER, "-c", str(file)]
        done = subprocess.run(form, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0, done.stderr

    def ready(self) -> bool:
        try:
            return len(self.admin.list_topics(timeout=2).brokers) == self.count
        except KafkaException:
            return False

    def leader(self, name: str) -> int:
        return int(self.admin.list_topics(name, timeout=10).topics[name].partitions[0].leader) - 1


class LastingKafkaNodes(KafkaNodes):
    """Nodes that live for long, as in production: Java compiles in full what runs often, and at once. In the
    background, it takes minutes on a machine that is busy.
    """

    java = (*_JAVA, "-XX:-BackgroundCompilation")
