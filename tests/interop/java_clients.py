"""Runs the Java clients in java/ against a broker. `make jms` installs them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.broker import BrokerProcess

JAVA = Path(__file__).parent / "java"
PATIENCE = 60


def jars(folder: str) -> Path:
    """Return the folder with the jars of a client."""
    return Path(sys.prefix, folder)


def needs(client: str, folder: str) -> pytest.MarkDecorator:
    """Skip the tests unless Java and the jars of `client` are installed in `folder`."""
    return pytest.mark.skipif(
        shutil.which("javac") is None or not list(jars(folder).glob(f"{client}-*.jar")),
        reason="needs a Java development kit of version 17 or newer, and make jms",
    )


def names(source: str) -> list[str]:
    """Return the names of the scenarios that need nothing but a running broker."""
    return re.findall(r"@Scenario\n    static void (\w+)\(", (JAVA / source).read_text(encoding="utf-8"))


class Scenarios:
    """One Java virtual machine, which compiles the scenarios once and runs those that it is asked for (Runner.java)."""

    def __init__(self, source: str, folder: str, errors: Path) -> None:
        self._errors = errors
        with errors.open("wb") as stderr:
            self._process = subprocess.Popen(
                ["java", "-cp", str(jars(folder) / "*"), str(JAVA / "Runner.java"), str(JAVA / source)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
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
def scenarios_of(source: str, folder: str, factory: pytest.TempPathFactory) -> Iterator[Scenarios]:
    """Run the scenarios of `source` with the client in `folder`."""
    machine = Scenarios(source, folder, factory.mktemp(folder) / "stderr")
    yield machine
    machine.close()
