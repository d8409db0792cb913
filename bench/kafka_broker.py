"""Apache Kafka, which `make peers` fetches: one process that is broker and controller (KRaft), topics of one partition.

Apart from ports, folders, partitions and syncing, everything has its default. By default Kafka leaves it to the system
when appended data is written to the disk, and relies on copies on other machines. The synced variant syncs each append
before it is acknowledged, as EscrowMQ does.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

from bench.brokers import BrokerError, free_port
from bench.peers import JavaBroker

CONNECTOR = Path(sys.prefix) / "spark-kafka"
"""The folder with the jars of Spark's connector."""
KAFKA, KAFKA_SYNCED = "Kafka", "Kafka synced"
_FORMAT_SECONDS = 60
_CLUSTER = "bench-bench-bench-bcAA"  # a cluster id has 22 characters


class Kafka(JavaBroker):
    """Kafka as it is by default. `port` is that of its listener."""

    name = KAFKA
    jars = Path(sys.prefix) / "kafka"
    main = "kafka.Kafka"
    jar = "kafka-server"
    settings = ""
    """Further settings."""

    @classmethod
    def missing(cls) -> str | None:
        return super().missing() or (None if CONNECTOR.is_dir() else "`make peers` has not fetched Spark's connector")

    @property
    def url(self) -> str:
        return f"kafka://127.0.0.1:{self.port}"

    def _configure(self) -> list[str]:
        controller, logs = free_port(), self.directory / "logs"
        file = self.directory / "server.properties"
        file.write_text(
            "process.roles=broker,controller\nnode.id=1\n"
            f"controller.quorum.voters=1@127.0.0.1:{controller}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}\n"
            "controller.listener.names=CONTROLLER\n"
            f"log.dirs={logs}\nnum.partitions=1\noffsets.topic.replication.factor=1\n"
            "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
            f"{self.settings}"
        )
        if not logs.exists():
            tool = ["java", "-cp", f"{self.jars}/*", "kafka.tools.StorageTool"]
            form = [*tool, "format", "-t", _CLUSTER, "-c", str(file)]
            done = subprocess.run(form, capture_output=True, text=True, timeout=_FORMAT_SECONDS, check=False)
            if done.returncode:
                raise BrokerError(f"Kafka's folder could not be formatted: {done.stderr.strip().splitlines()[-1]}")
        return [str(file)]

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 5.0).close()
        except OSError:
            time.sleep(0.1)
            return False
        return True


class KafkaSynced(Kafka):
    """Kafka that syncs each append."""

    name = KAFKA_SYNCED
    settings = "log.flush.interval.messages=1\n"
