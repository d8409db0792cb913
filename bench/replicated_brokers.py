"""Three brokers of this repository with one journal, on three nodes of an engine that `make engines` fetches."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.brokers import BrokerError, EscrowMQ
from bench.cluster import NODES, PATIENCE, Cluster, answers, wait_until
from escrowmq.admin.socket.client import AdminError, ask
from tests.engines.kafka_nodes import LastingKafkaNodes
from tests.engines.nats_nodes import NatsNodes
from tests.engines.nodes import EngineNodes
from tests.ports import reserve_port

_SETTLING_SECONDS = 1.5
"""The time in which a standby that was suspended may still find the leader silent, and take over."""

_WARMING = "warming"
_APPENDS, _SIZE = 20_000, 700


class ReplicatedEscrowMQ(Cluster, EscrowMQ):
    """Brokers with the default settings. The engine runs for as long as this object is started."""

    engine: type[EngineNodes]
    options: tuple[str, ...] = ()
    """Further options of each broker."""
    warm_up_seconds = 1.5
    """For how long a rate is measured without being counted, before the first measurement."""
    warm_up_thaws = 0
    """How often it is measured after that without a rise of the rate, each time after the brokers were suspended. These
    measurements do not count.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._ports = [reserve_port(self) for _ in range(NODES)]
        self.nodes = self.engine(directory / "engine", NODES)
        self._leader = 0

    @property
    def ports(self) -> list[int]:
        return self._ports

    @property
    def data_dir(self) -> Path:
        return self.data_dirs[self._leader]

    @property
    def data_dirs(self) -> list[Path]:
        """The directories of the journals."""
        return [self.directory / f"data-{number}" for number in range(NODES)]

    def start(self) -> None:
        self._begin_engine()
        super().start()

    def _begin_engine(self) -> None:
        self.nodes.start()

    def _begin(self, node: int) -> subprocess.Popen[bytes]:
        listen = f"127.0.0.1:{self._ports[node]}"
        where = ("--data-dir", str(self.data_dirs[node]), "--listen", listen)
        command = [
            *(sys.executable, "-m", *self.program, "serve"),
            *where,
            "--replicate",
            self.nodes.url(),
            *self.options,
        ]
        environment = {**os.environ, "ESCROWMQ_REPLICATION_NODE": f"n{node}"}
        with (self.directory / f"broker-{node}.log").open("ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=environment
            )

    def _whole(self) -> bool:
        try:
            standings = [ask(path, "replica.status") for path in self.data_dirs]
        except AdminError:
            return False
        leaders = [number for number, standing in enumerate(standings) if standing["role"] == "leader"]
        epochs = {standing["epoch"] for standing in standings}
        if len(leaders) != 1 or len(epochs) != 1 or not answers(self._ports[leaders[0]]):
            return False
        self._leader = leaders[0]
        self.port = self._ports[self._leader]
        return True

    def kill(self) -> None:
        super().kill()
        for node in range(NODES):
            self.nodes.kill(node)

    def thaw(self) -> None:
        """Let the engine go on first, then the leader, so that it is heard before the others look for it."""
        for node in range(NODES):
            self.nodes.thaw(node)
        self._signal_node(self._leader, signal.SIGCONT)
        before = ask(self.data_dir, "replica.status")["appends"]
        wait_until(lambda: ask(self.data_dir, "replica.status")["appends"] > before + 1, "the leader appends again")
        super().thaw()
        time.sleep(_SETTLING_SECONDS)
        wait_until(self._whole, f"{self.name} goes on")

    def freeze(self) -> None:
        super().freeze()
        for node in range(NODES):
            self.nodes.freeze(node)

    def pids(self) -> list[int]:
        return [*super().pids(), *(self.nodes.pid(node) for node in range(NODES) if self.nodes.running(node))]


class OnKafka(ReplicatedEscrowMQ):
    """On Kafka, whose topic has Kafka's defaults for syncing; the leader syncs its own copy."""

    engine = LastingKafkaNodes
    warm_up_seconds = 45.0
    """The broker's ways through Java are not all those of `warm`. Without pauses, the rate of transactions of one
    message on 64 channels rose threefold in 34 s.
    """
    warm_up_thaws = 4
    """After Kafka was suspended, it does things for the first time, for which Java drops what it has compiled. The rate
    falls by a quarter then, and is again as before after four measurements, or more on a slow machine.
    """

    def _begin_engine(self) -> None:
        super()._begin_engine()
        warm(self.nodes)


class OnNats(ReplicatedEscrowMQ):
    """On NATS JetStream with its default interval of syncs; the leader syncs its own copy."""

    engine = NatsNodes


def warm(nodes: EngineNodes) -> None:
    """Append to another topic, until Java has compiled what runs often. Kafka in production did that long ago."""
    servers = ",".join(f"127.0.0.1:{port}" for port in nodes.ports)
    topic = NewTopic(_WARMING, num_partitions=1, replication_factor=NODES)
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([topic])[_WARMING].result(PATIENCE)
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 0, "batch.num.messages": 1})
    for _ in range(_APPENDS):
        producer.produce(_WARMING, bytes(_SIZE))
        producer.poll(0)
    if producer.flush(PATIENCE):
        raise BrokerError("Kafka did not store the entries that warm it up")
