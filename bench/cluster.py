"""A broker of several nodes on this machine. Clients connect to the node that leads."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path

from bench.brokers import Broker, BrokerError, group_pids
from escrowmq.perf.amqp091.connection import Connection
from escrowmq.perf.errors import PerfError
from escrowmq.perf.url import Target

NODES = 3
PATIENCE = 120.0
_PAUSE = 0.05


def wait_until(condition: Callable[[], bool], text: str, patience: float = PATIENCE) -> None:
    """Return when the condition holds. Raises BrokerError, with the text, after `patience` seconds."""
    give_up = time.monotonic() + patience
    while not condition():
        if time.monotonic() > give_up:
            raise BrokerError(f"{text}: not after {patience:g} s")
        time.sleep(_PAUSE)


class Cluster(Broker):
    """Nodes are numbered from 0. `load_options` are what the load tool needs for queues that are on all nodes."""

    load_options: tuple[str, ...] = ()

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._nodes: list[subprocess.Popen[bytes] | None] = [None] * NODES
        self._extra: list[subprocess.Popen[bytes]] = []
        """Further processes, which are not frozen."""

    @property
    @abstractmethod
    def ports(self) -> list[int]:
        """The ports of the nodes for clients."""

    @abstractmethod
    def _begin(self, node: int) -> subprocess.Popen[bytes]:
        """Start a node, without waiting for it. Its process begins a session."""

    @abstractmethod
    def _whole(self) -> bool:
        """Return whether all nodes are there, and one of them leads."""

    def start(self) -> None:
        begin = time.monotonic()
        self.repair()
        self.started_in = time.monotonic() - begin

    def repair(self) -> None:
        """Start or resume the nodes that do not run, and wait until the cluster is whole."""
        self._signal(signal.SIGCONT)
        for number, process in enumerate(self._nodes):
            if process is None or process.poll() is not None:
                self._nodes[number] = self._begin(number)
        wait_until(self._whole, f"{self.name} is whole")

    def stop_node(self, node: int) -> None:
        """Send SIGKILL to a node."""
        self._kill(node)

    def start_node(self, node: int) -> None:
        """Start a node that does not run, without waiting for it."""
        self._nodes[node] = self._begin(node)

    def kill_leader(self) -> None:
        """Send SIGKILL to the node that clients use."""
        self._kill(self.ports.index(self.port))

    def freeze_leader(self) -> None:
        """Send SIGSTOP to the node that clients use. `repair` lets it go on."""
        self._signal_node(self.ports.index(self.port), signal.SIGSTOP)

    def _kill(self, node: int) -> None:
        self._signal_node(node, signal.SIGKILL)
        process = self._nodes[node]
        if process is not None:
            process.wait()

    def stop(self) -> None:
        self.kill()

    def kill(self) -> None:
        for number in range(NODES):
            self._kill(number)
        for process in self._extra:
            _signal(process, signal.SIGKILL)
            process.wait()
        self._extra.clear()

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)
        wait_until(self._whole, f"{self.name} goes on")

    def _signal(self, number: signal.Signals) -> None:
        for node in range(NODES):
            self._signal_node(node, number)

    def _signal_node(self, node: int, number: signal.Signals) -> None:
        process = self._nodes[node]
        if process is not None:
            _signal(process, number)

    def pids(self) -> list[int]:
        return group_pids({process.pid for process in self._nodes if process is not None and process.poll() is None})


def answers(port: int) -> bool:
    """Return whether a node lets clients in."""
    try:
        Connection(Target("127.0.0.1", port, "guest", "guest", "/"), "bench", timeout=5.0).close()
    except PerfError:
        return False
    return True


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    if process.poll() is None:
        os.killpg(process.pid, number)
