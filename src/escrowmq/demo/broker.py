"""Runs the broker as a user does: `escrowmq serve`, in a separate process."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Final

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 30.0
CONFIG: Final = """\
[journal]
retain_bytes = "4GiB"   # for the audit, keep the history that the broker no longer needs
detail = "deliveries"   # and record each delivery
"""


class BrokerFailed(Exception):  # noqa: N818 - named after the event
    """The broker did not start, or exited unexpectedly; the text has the end of its log."""


class Broker:
    """A broker process that can be started, killed and restarted on the same data directory and port."""

    def __init__(self, data_dir: Path, log_file: Path, config: Path) -> None:
        self.data_dir = data_dir
        self.log_file = log_file
        self._config = config
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._down = True

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> str:
        """Start the broker. Returns the line that says that it is ready. Raises BrokerFailed."""
        command = [
            *(sys.executable, "-m", "escrowmq", "serve", "--data-dir", str(self.data_dir)),
            *("--listen", f"127.0.0.1:{self.port}", "--log-level", "warning", "--config", str(self._config)),
        ]
        self._config.write_text(CONFIG, encoding="utf-8")
        with self.log_file.open("ab") as log:
            # A separate session keeps Ctrl-C away from the broker; this process then stops it cleanly.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        assert self._process.stdout is not None
        line = _first_line(self._process.stdout)
        if not line.startswith("ready amqp://"):
            self.kill()
            raise BrokerFailed(f"the broker did not start: {self.log_end() or line or 'no output'}")
        self.port = int(line.split()[1].rpartition(":")[2])
        self._down = False
        return line

    def kill(self) -> None:
        """Kill the broker with SIGKILL, which it cannot handle."""
        self._down = True
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()

    def stop(self) -> int:
        """Send SIGTERM, and SIGKILL if the broker does not stop in time. Returns the exit code."""
        if self._process is None:
            return 0
        self._process.terminate()
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def check(self) -> None:
        """Raise BrokerFailed if the broker has exited unexpectedly."""
        if self._process is not None and not self._down and self._process.poll() is not None:
            raise BrokerFailed(f"the broker exited with code {self._process.returncode}: {self.log_end()}")

    def log_end(self) -> str:
        """Return the last lines of its log."""
        if not self.log_file.exists():
            return ""
        return "\n".join(self.log_file.read_text(encoding="utf-8", errors="replace").splitlines()[-20:])


def _first_line(stream: IO[bytes]) -> str:
    deadline = time.monotonic() + START_SECONDS
    data = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while b"\n" not in data and selector.select(max(0.0, deadline - time.monotonic())):
            chunk = os.read(stream.fileno(), 4096)
            if not chunk:
                break
            data += chunk
    return data.partition(b"\n")[0].decode(errors="replace")
