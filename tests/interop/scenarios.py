"""Runs scenarios of clients in other languages, each client in a process of its own."""

from __future__ import annotations

import os
import subprocess
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.broker import BrokerProcess

PATIENCE = 60


class Scenarios:
    """A process that reads lines `NAME PORT ARGUMENT…`, whose parts are separated by tabs.

    It answers each with `NAME ok`, which a text in base 64 may follow, or with a line that says what has failed.
    """

    def __init__(self, command: Sequence[str], errors: Path, environment: Mapping[str, str] | None = None) -> None:
        self._errors = errors
        with errors.open("wb") as stderr:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env={**os.environ, **(environment or {})},
            )

    def run(self, name: str, broker: BrokerProcess, port: int | None = None) -> None:
        """Run one scenario on the broker's port, or on another one. Raises AssertionError with its stack trace if it
        fails.
        """
        self.call(name, broker.port if port is None else port)

    def call(self, name: str, port: int, *arguments: str) -> str:
        """Run one scenario with arguments, and return the text that it returns. Raises AssertionError as `run` does."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        before = self._errors.stat().st_size
        self._process.stdin.write("\t".join((name, str(port), *arguments)) + "\n")
        self._process.stdin.flush()
        result = self._process.stdout.readline()
        assert result.startswith(f"{name} ok"), f"{result}{self._errors.read_bytes()[before:].decode()}"
        return b64decode(result.removeprefix(f"{name} ok")).decode()

    def close(self) -> None:
        """End the process by the end of its input."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(PATIENCE)
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()


@contextmanager
def running(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[Scenarios]:
    """Run scenarios by `command`, which gets `environment` besides its own, and may write to `folder`."""
    process = Scenarios(command, folder / "stderr", environment)
    try:
        yield process
    finally:
        process.close()
