"""Qpid JMS, the AMQP 1.0 client of the Java world, works with the broker unmodified. `make jms` installs it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.broker import BrokerProcess
from tests.interop.queues import declare_full

JARS = Path(sys.prefix, "jms")
SOURCE = Path(__file__).parent / "java" / "Scenarios.java"
PATIENCE = 60
SCENARIOS = re.findall(r"@Scenario\n    static void (\w+)\(", SOURCE.read_text(encoding="utf-8"))

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(
        shutil.which("javac") is None or not list(JARS.glob("qpid-jms-client-*.jar")),
        reason="needs a Java development kit of version 17 or newer, and make jms",
    ),
]


class Scenarios:
    """One Java virtual machine, which compiles the scenarios once and runs those that it is asked for."""

    def __init__(self, errors: Path) -> None:
        self._errors = errors
        with errors.open("wb") as stderr:
            self._process = subprocess.Popen(
                ["java", "-cp", str(JARS / "*"), str(SOURCE)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )

    def run(self, name: str, broker: BrokerProcess) -> None:
        """Run one scenario. Raises AssertionError with its stack trace if it fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        before = self._errors.stat().st_size
        self._process.stdin.write(f"{name} {broker.port}\n")
        self._process.stdin.flush()
        result = self._process.stdout.readline()
        assert result == f"{name} ok\n", f"{result}{self._errors.read_bytes()[before:].decode()}"

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


@pytest.fixture(scope="session")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenarios]:
    machine = Scenarios(tmp_path_factory.mktemp("jms") / "stderr")
    yield machine
    machine.close()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_of_qpid_jms_succeeds(scenarios: Scenarios, broker: BrokerProcess, scenario: str) -> None:
    scenarios.run(scenario, broker)


def test_a_full_queue_rejects(scenarios: Scenarios, broker: BrokerProcess) -> None:
    declare_full(broker, "jms.full")
    scenarios.run("sendToAFullQueue", broker)


def test_qpid_jms_fails_over_after_a_kill(scenarios: Scenarios, own_broker: Callable[[str], BrokerProcess]) -> None:
    broker = own_broker("")
    scenarios.run("sendBeforeAKill", broker)
    broker.kill()
    broker.start()
    scenarios.run("goOnAfterAKill", broker)
