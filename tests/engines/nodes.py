"""Nodes of an engine for tests: real processes on free ports of 127.0.0.1, with their data in one folder.

Each node can be killed, stopped, suspended and started again by its number.
"""

from __future__ import annotations

import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from tests.ports import reserve_port

PATIENCE = 90.0


def wait_until(condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Return when the condition holds. Fails after `patience` seconds."""
    give_up = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < give_up, f"{what}: not after {patience:g} s"
        time.sleep(0.05)


def _is_stopped(task: Path) -> bool:
    """Return whether a thread is suspended, or has ended. Its state follows its name, which is in parentheses."""
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0] in "TtZX"
    except OSError:
        return True


class EngineNodes(ABC):
    """The nodes of one engine. `count` is 1 or 3."""

    engine: ClassVar[str]
    scheme: ClassVar[str]

    def __init__(self, folder: Path, count: int, host: str = "127.0.0.1") -> None:
        self.folder = folder
        self.host = host
        """The address on which clients are served."""
        self.count = count
        self.ports = [reserve_port(self) for _ in range(count)]
        self.peer_ports = [reserve_port(self) for _ in range(count)]
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * count
        folder.mkdir(parents=True, exist_ok=True)

    @classmethod
    @abstractmethod
    def missing(cls) -> str | None:
        """Return why the engine cannot be started here, or None if it can."""

    @abstractmethod
    def _command(self, node: int) -> list[str]:
        """Write the configuration of a node, and return its command."""

    @abstractmethod
    def ready(self) -> bool:
        """Return whether all nodes are there, and know each other."""

    @abstractmethod
    def leader(self, name: str) -> int:
        """Return the number of the node that leads a topic or stream."""

    def url(self, name: str = "journal", options: str = "") -> str:
        """Return the URL of a log."""
        hosts = ",".join(f"{self.host}:{port}" for port in self.ports)
        return f"{self.scheme}://{hosts}/{name}?replicas={self.count}{options}"

    def start(self) -> None:
        """Start the nodes that do not run, and wait until they are ready."""
        for node in range(self.count):
            if not self.running(node):
                self.launch(node)
        wait_until(self._check_ready, f"{self.engine} is ready")

    def _check_ready(self) -> bool:
        for node, process in enumerate(self._processes):
            assert process is None or process.poll() is None, f"{self.engine} {node} ended:\n{self.log(node)[-2000:]}"
        return self.ready()

    def launch(self, node: int) -> None:
        """Start a node, without waiting for it."""
        command = self._command(node)
        with (self.folder / f"{node}.log").open("ab") as log:
            self._processes[node] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
            )

    def log(self, node: int) -> str:
        """Return what a node has written."""
        return (self.folder / f"{node}.log").read_text(errors="replace")

    def running(self, node: int) -> bool:
        """Return whether there is a process of the node."""
        process = self._processes[node]
        return process is not None and process.poll() is None

    def pid(self, node: int) -> int:
        """Return the process of a node that runs."""
        process = self._processes[node]
        assert process is not None
        return process.pid

    def kill(self, node: int) -> None:
        """Send SIGKILL, and wait for the end."""
        self._end(node, signal.SIGKILL)

    def stop(self, node: int) -> None:
        """Send SIGTERM, and wait for the end."""
        self._end(node, signal.SIGTERM)

    def _end(self, node: int, number: signal.Signals) -> None:
        process = self._processes[node]
        if process is not None and process.poll() is None:
            process.send_signal(number)
            process.wait(PATIENCE)

    def freeze(self, node: int) -> None:
        """Suspend a node: its connections stay, and nothing is answered.

        Where the machine is busy, threads of the node may run on for a moment after the signal.
        """
        self._signal(node, signal.SIGSTOP)
        if not self.running(node):
            return
        tasks = Path(f"/proc/{self.pid(node)}/task")
        wait_until(lambda: all(_is_stopped(task) for task in tasks.iterdir()), f"{self.engine} {node} is suspended")

    def thaw(self, node: int) -> None:
        """Resume a suspended node."""
        self._signal(node, signal.SIGCONT)

    def _signal(self, node: int, number: signal.Signals) -> None:
        process = self._processes[node]
        assert process is not None
        process.send_signal(number)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for node in range(self.count):
            self.kill(node)
