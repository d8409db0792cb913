"""A real broker process for tests: `with running_broker(tmp_path) as broker: …`."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.ports import reserve_port

START_SECONDS = 60.0
STOP_SECONDS = 60.0
POLL_SECONDS = 0.02


class BrokerProcess:
    """`escrowmq serve` on `host`, on a free port that it keeps across restarts.

    Its log goes to `log_file`. `args` are added after the options `--listen`, `--data-dir` and `--log-level`.
    """

    host = "127.0.0.1"

    def __init__(self, folder: Path, *args: str) -> None:
        self.data_dir = folder / "data"
        self.log_file = folder / "broker.log"
        self.args = args
        self.port = reserve_port(self)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{self.host}:{self.port}/"

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The running process, or the last one that ran."""
        assert self._process is not None, "the broker was never started"
        return self._process

    @property
    def command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "escrowmq", "serve"),
            *("--data-dir", str(self.data_dir), "--listen", f"{self.host}:{self.port}", "--log-level", "debug"),
            *self.args,
        ]

    def log(self) -> str:
        """Return the stderr of this process and of its predecessors in this folder."""
        return self.log_file.read_text(encoding="utf-8", errors="replace") if self.log_file.exists() else ""

    def start(self, timeout: float = START_SECONDS) -> BrokerProcess:
        """Start the broker, and return when it reports that it is ready."""
        assert self._process is None or self._process.poll() is not None, "the broker is running"
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env={**os.environ}
            )
        assert self._process.stdout is not None
        line = _first_line(self._process.stdout, timeout)
        if not line.startswith("ready amqp://"):
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()
            raise AssertionError(f"the broker did not start: {line!r}\n{self.log()}")
        return self

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, timeout: float = STOP_SECONDS) -> int:
        """Wait until the broker has ended, and return its exit status."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the broker did not end in {timeout} s\n{self.log()}") from None
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end."""
        if self.process.poll() is None:
            self.process.kill()
        self.wait()

    def terminate(self, timeout: float = STOP_SECONDS) -> int:
        """Send SIGTERM, and return the exit status, which is 0 after a clean stop."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.wait(timeout)

    def restart(self, timeout: float = START_SECONDS) -> BrokerProcess:
        """Terminate the broker if it is running, and start it again on the same data and port."""
        if self.process.poll() is None:
            code = self.terminate()
            assert code == 0, f"exit status {code}\n{self.log()}"
        return self.start(timeout)

    def __enter__(self) -> Self:
        if self._process is None:
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.kill()


def running_broker(folder: Path, *args: str) -> BrokerProcess:
    """Start a broker with its data and log in `folder`. As a context manager, it kills the broker at the end."""
    return BrokerProcess(folder, *args).start()


def _first_line(stream: IO[bytes], timeout: float) -> str:
    deadline = time.monotonic() + timeout
    data = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while b"\n" not in data:
            left = deadline - time.monotonic()
            if left <= 0:
                return f"no complete line within {timeout} s, only {data!r}"
            if selector.select(left):
                chunk = os.read(stream.fileno(), 4096)
                if not chunk:
                    break
                data += chunk
    return data.partition(b"\n")[0].decode()


def low_on_disk() -> str:
    """A configuration with which the disk alarm is on, and clients may still declare queues."""
    free = shutil.disk_usage(tempfile.gettempdir()).free
    return f"[disk]\nfree_limit = {free * 3 // 2}\n"


def wait_until(condition: Callable[[], object], timeout: float = 30.0, what: str = "the condition") -> None:
    """Poll `condition` until it is true, for conditions that another process has to bring about.

    Raises:
        AssertionError: the condition was still false after `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"timed out after {timeout} s waiting for {what}"
        time.sleep(POLL_SECONDS)
