"""Start and stop the measured brokers, on free ports and with separate data directories."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Container
from pathlib import Path
from struct import unpack_from
from typing import IO, Any

from bench.erlang import RABBITMQ_BIN, ErlangNode, start_epmd
from bench.turns import LongestTurn
from escrowmq.perf.amqp091 import frames
from escrowmq.perf.amqp091.connection import Connection
from escrowmq.perf.errors import PerfError
from escrowmq.perf.url import Target

START_TIMEOUT = 90.0
STOP_TIMEOUT = 120.0
_POLL = 0.005
_COUNTERS = ("syncs", "records", "batches", "bytes")
RABBITMQ = "RabbitMQ"


class BrokerError(Exception):
    """A broker does not start or stop."""


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that is free at present."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def group_pids(groups: Container[int]) -> list[int]:
    """Return the processes in these process groups."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(ProcessLookupError):
                if os.getpgid(int(entry.name)) in groups:
                    found.append(int(entry.name))
    return found


class Broker(ABC):
    """A broker whose files are all below one directory."""

    name: str

    def __init__(self, directory: Path) -> None:
        """All files of the broker go below `directory`, which is created if necessary."""
        self.directory = directory
        self.port = 0
        self.started_in = 0.0
        """Seconds from the start of the process until a client had opened a connection."""
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        """The URL for its guest user."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    @abstractmethod
    def start(self) -> None:
        """Start on the existing data, and wait until a client can open a connection. Raises BrokerError."""

    @abstractmethod
    def stop(self) -> None:
        """Stop the broker cleanly. Does nothing if it is not running."""

    @abstractmethod
    def kill(self) -> None:
        """Kill its processes."""

    @abstractmethod
    def freeze(self) -> None:
        """Suspend an idle broker, so that it does not disturb the measurement of the other."""

    @abstractmethod
    def thaw(self) -> None:
        """Resume a frozen broker."""

    @abstractmethod
    def pids(self) -> list[int]:
        """Return the processes of the broker."""

    def settle(self, quiet: float = 0.3, patience: float = 20.0) -> None:
        """Wait until the broker has been idle for `quiet` seconds, at most `patience` seconds."""
        give_up = time.monotonic() + patience
        before = self.cpu_seconds()
        while time.monotonic() < give_up:
            time.sleep(quiet)
            now = self.cpu_seconds()
            if now - before <= 0.1 * quiet:
                return
            before = now

    def depth(self, queue: str) -> int:
        """Return the number of messages in a durable queue. Raises PerfError if there is no such queue."""
        with Connection(Target("127.0.0.1", self.port, "guest", "guest", "/"), "bench", timeout=30.0) as connection:
            connection.call(1, frames.channel_open(1), frames.CHANNEL_OPEN_OK)
            request = frames.queue_declare(1, queue, durable=True, passive=True)
            answer = connection.call(1, request, frames.QUEUE_DECLARE_OK)
        depth: int = unpack_from(">I", answer, 1 + answer[0])[0]
        return depth

    def remove(self) -> None:
        """Delete its data."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def resident_bytes(self) -> int:
        """Return the resident memory of the broker's own process, the largest of its group."""
        return max((_status_bytes(pid, "VmRSS") for pid in self.pids()), default=0)

    def peak_resident_bytes(self) -> int:
        """Return the highest resident memory so far."""
        return max((_status_bytes(pid, "VmHWM") for pid in self.pids()), default=0)

    def cpu_seconds(self) -> float:
        """Return the user and system time of all its processes so far."""
        return sum(_cpu(pid) for pid in self.pids())

    def thread_seconds(self) -> float:
        """Return the CPU time of its current threads so far. Unlike `cpu_seconds`, it is exact for short bursts too."""
        return sum(_thread_seconds(pid) for pid in self.pids())

    def journal_counters(self) -> dict[str, int] | None:
        """Return syncs, records, batches and bytes of the journal since the start, if the broker reports them."""
        return None

    @abstractmethod
    def version(self) -> str:
        """Return the name and version of the measured program, for the report."""


def _status_bytes(pid: int, field: str) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    match = re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)
    return int(match.group(1)) * 1024 if match else 0


def _cpu(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _thread_seconds(pid: int) -> float:
    total = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total += int(path.read_text().split()[0])
        except OSError:  # the thread has ended
            continue
    return total / 1e9


class ProcessBroker(Broker):
    """A broker that is one process, with its children in the same process group."""

    def __init__(self, directory: Path) -> None:
        """See `Broker`."""
        super().__init__(directory)
        self._process: subprocess.Popen[str] | None = None
        self._log: IO[str] | None = None

    def start(self) -> None:
        """Start on the existing data, and wait until a client can open a connection.

        Raises BrokerError if the process ends or is not ready in `START_TIMEOUT`.
        """
        self._log = (self.directory / "output.log").open("a")
        begin = time.monotonic()
        self._launch(self._log)
        give_up = begin + START_TIMEOUT
        while not self._answers():
            if self._process is None or self._process.poll() is not None:
                raise BrokerError(f"{self.name} ended while starting: {self._last_words()}")
            if time.monotonic() > give_up:
                self.kill()
                raise BrokerError(f"{self.name} is not ready after {START_TIMEOUT:g} s: {self._last_words()}")
            time.sleep(_POLL)
        self.started_in = time.monotonic() - begin

    @abstractmethod
    def _launch(self, log: IO[str]) -> None:
        """Start the process, and set the port unless it is known already."""

    def _answers(self) -> bool:
        if not self.port:
            return False
        try:
            Connection(Target("127.0.0.1", self.port, "guest", "guest", "/"), "bench", timeout=5.0).close()
        except PerfError:
            return False
        return True

    def _last_words(self) -> str:
        lines = (self.directory / "output.log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it wrote nothing"

    def stop(self) -> None:
        """Stop the broker cleanly, or kill it if that fails. Does nothing if it is not running."""
        if self._process is None:
            return
        self.thaw()
        self._signal_stop()
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerError(f"{self.name} did not stop in {STOP_TIMEOUT:g} s") from None
        self._ended()

    def kill(self) -> None:
        """Kill the process group."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait()
            self._ended()

    def _ended(self) -> None:
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None
        if self._log is not None:
            self._log.close()

    def _signal_stop(self) -> None:
        self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def freeze(self) -> None:
        """See `Broker.freeze`."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """See `Broker.thaw`."""
        self._signal(signal.SIGCONT)

    def pids(self) -> list[int]:
        """Return the processes in the broker's process group."""
        return [] if self._process is None else group_pids({self._process.pid})


class EscrowMQ(ProcessBroker):
    """The broker of this repository, run by the interpreter that runs the benchmark."""

    name = "EscrowMQ"

    @property
    def data_dir(self) -> Path:
        """The directory of its journal."""
        return self.directory / "data"

    program: tuple[str, ...] = ("escrowmq",)
    """The module to run, and the arguments before the command."""

    def _arguments(self) -> tuple[str, ...]:
        """Return the command and its options."""
        return ("serve", "--data-dir", str(self.data_dir), "--listen", "127.0.0.1:0")

    def _launch(self, log: IO[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", *self.program, *self._arguments()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        self.port = self._read_port(self._process)

    def _read_port(self, process: subprocess.Popen[str]) -> int:
        """Return the port from the line `ready amqp://HOST:PORT data=DIR`, or 0 if the process ends first."""
        if process.stdout is None:
            raise BrokerError("no standard output to read")
        for line in process.stdout:
            match = re.match(r"ready amqp://.*:(\d+) ", line)
            if match:
                return int(match.group(1))
        process.wait()
        return 0

    def journal_counters(self) -> dict[str, int] | None:
        command = [sys.executable, "-m", "escrowmq", "status", "--data-dir", str(self.data_dir), "--json"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        if answer.returncode:
            return None
        status: dict[str, Any] = json.loads(answer.stdout)
        # Only counters: the other values of the status cannot be subtracted.
        return {name: status["journal"][name] for name in _COUNTERS}

    def version(self) -> str:
        from escrowmq import __version__

        return f"EscrowMQ {__version__}, Python {sys.version.split()[0]}"


class TimedEscrowMQ(EscrowMQ):
    """EscrowMQ in an event loop that records its longest turn."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        path = directory / "longest-turn"
        self.longest = LongestTurn(path)
        self.program = ("bench.turns", str(path))


class RabbitMQ(ProcessBroker):
    """Debian's `rabbitmq-server` with its default queue type and limits; only ports, paths and plugins are set."""

    name = RABBITMQ

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._epmd: subprocess.Popen[bytes] | None = None
        self.port, self._epmd_port, self._distribution_port = free_port(), free_port(), free_port()

    @staticmethod
    def installed() -> bool:
        """Return whether it can be started here."""
        return (RABBITMQ_BIN / "rabbitmq-server").exists() and shutil.which("epmd") is not None

    def _launch(self, log: IO[str]) -> None:
        directory = self.directory
        (directory / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{self.port}\n")
        (directory / "enabled_plugins").write_text("[].\n")
        node = ErlangNode("bench@localhost", self._epmd_port, self._distribution_port, home=directory)
        # An epmd that the node starts as a daemon would outlive it.
        self._epmd = start_epmd(self._epmd_port, log)
        self._process = subprocess.Popen(
            [str(RABBITMQ_BIN / "rabbitmq-server")],
            env=node.environment(directory),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            text=True,
            start_new_session=True,
        )

    def _signal_stop(self) -> None:
        """SIGTERM goes to the Erlang VM, which then stops cleanly; the start script may be its parent process."""
        for pid in self.pids():
            if Path(f"/proc/{pid}/comm").read_text().startswith("beam"):
                os.kill(pid, signal.SIGTERM)

    def _ended(self) -> None:
        super()._ended()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
            self._epmd = None

    def version(self) -> str:
        answer = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server"], capture_output=True, text=True, check=False
        )
        return f"RabbitMQ {answer.stdout or 'of unknown version'}"
