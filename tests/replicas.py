"""Brokers that share a journal on a replicated log, for tests: real processes on one machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pika
import pytest
from pika.adapters.utils.connection_workflow import AMQPConnectorException

from escrowmq.admin.socket.client import AdminError, ask
from tests.broker import BrokerProcess, wait_until
from tests.engines.nats_nodes import NatsNodes

LEASE = "1.5"


class ReplicaBroker(BrokerProcess):
    """A node. It is started without waiting, and becomes a standby or the leader."""

    def __init__(self, folder: Path, node: str, url: str, *args: str) -> None:
        super().__init__(folder, "--replicate", url, *args)
        self.node = node
        self.environment: dict[str, str] = {}
        """Further variables."""

    def begin(self) -> None:
        """Start the process, which prints into the log of the test."""
        environment = {
            **os.environ,
            "ESCROWMQ_REPLICATION_NODE": self.node,
            "ESCROWMQ_REPLICATION_LEASE_SECONDS": LEASE,
            "ESCROWMQ_REPLICATION_SILENCE_SECONDS": "1",
            "ESCROWMQ_REPLICATION_HEARTBEAT_SECONDS": "0.2",
            **self.environment,
        }
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )

    def standing(self) -> dict[str, Any]:
        """Return what the node says of itself; nothing if it does not answer."""
        with contextlib.suppress(AdminError):
            found: dict[str, Any] = ask(self.data_dir, "replica.status")
            return found
        return {}


class ReplicaBrokers:
    """Three nodes, or another number."""

    def __init__(self, folder: Path, url: str, count: int = 3, *args: str, name: str = "n") -> None:
        self.nodes: list[ReplicaBroker] = []
        for i in range(count):
            (folder / f"n{i}").mkdir(parents=True, exist_ok=True)
            self.nodes.append(ReplicaBroker(folder / f"n{i}", f"{name}{i}", url, *args))

    def __enter__(self) -> Self:
        for node in self.nodes:
            node.begin()
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            if node._process is not None:
                node.kill()

    def leader(self, *, but: ReplicaBroker | None = None) -> ReplicaBroker:
        """Wait until a node serves clients, and return it."""
        found: list[ReplicaBroker] = []

        def leads() -> bool:
            found[:] = [n for n in self.nodes if n is not but and n.process.poll() is None and serves(n)]
            return bool(found)

        try:
            wait_until(leads, 90, "a leader")
        except AssertionError as error:
            error.add_note("\n".join(node.log()[-2000:] for node in self.nodes))
            raise
        return found[0]

    def followed(self) -> None:
        """Wait until all nodes have the same end of the journal."""

        def same() -> bool:
            ends = {node.standing().get("lsn") for node in self.nodes if node.process.poll() is None}
            return len(ends) == 1 and None not in ends

        wait_until(same, 90, "all nodes to have the same journal")

    def parameters(self) -> list[pika.ConnectionParameters]:
        """Return the addresses of all nodes for a client."""
        return [
            pika.ConnectionParameters("127.0.0.1", node.port, socket_timeout=5, blocked_connection_timeout=60)
            for node in self.nodes
        ]


def serves(node: ReplicaBroker) -> bool:
    """Return whether a client can connect to a node."""
    if node.standing().get("role") != "leader":
        return False
    try:
        pika.BlockingConnection(pika.ConnectionParameters(node.host, node.port, socket_timeout=5)).close()
    except (pika.exceptions.AMQPError, AMQPConnectorException, OSError):
        return False
    return True


def synced(node: ReplicaBroker) -> int:
    """Return what a node has on its disk, as a backup asks for it; 0 until it has read the log to its end."""
    with contextlib.suppress(AdminError):
        lsn: int = ask(node.data_dir, "journal.synced")
        return lsn
    return 0


@contextlib.contextmanager
def replicas_on_nats(folder: Path, name: str) -> Iterator[ReplicaBrokers]:
    """Yield three nodes, one of which leads, on one server of NATS. Skip the test without `make engines`."""
    if (why := NatsNodes.missing()) is not None:
        pytest.skip(why)
    with NatsNodes(folder / "engine", 1) as nodes, ReplicaBrokers(folder, nodes.url(name), 3) as found:
        found.leader()
        yield found


def standby_of(brokers: ReplicaBrokers) -> ReplicaBroker:
    """Return a node that does not lead, once it has read the log to its end."""
    leader = brokers.leader()
    found = next(node for node in brokers.nodes if node is not leader)
    wait_until(lambda: synced(found), 60, "the standby to follow")
    return found


def journal_files(data_dir: Path) -> dict[str, bytes]:
    """Return each segment's bytes by name, without preallocated space."""
    return {path.name: path.read_bytes().rstrip(b"\0") for path in sorted(data_dir.glob("*.log"))}
