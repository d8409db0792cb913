"""go-amqp, an AMQP 1.0 client in Go, works with the broker unmodified. `make go` compiles its scenarios."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker import BrokerProcess
from tests.interop.queues import declare_full

PROGRAM = Path(sys.prefix, "goamqp")
SOURCE = Path(__file__).parent / "go" / "goamqp" / "main.go"
PATIENCE = 60
SCENARIOS = re.findall(r'^\t"(\w+)": +\w+,$', SOURCE.read_text(encoding="utf-8").split("var prepared")[0], re.MULTILINE)

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not PROGRAM.exists(), reason="needs make go"),
]


def run(scenario: str, broker: BrokerProcess) -> None:
    command = [str(PROGRAM), scenario, str(broker.port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("scenario", [*SCENARIOS, "wrongPassword"])
def test_a_scenario_of_go_amqp_succeeds(scenario: str, broker: BrokerProcess) -> None:
    run(scenario, broker)


def test_a_full_queue_rejects(broker: BrokerProcess) -> None:
    declare_full(broker, "go.full")
    run("fullQueue", broker)


def test_go_amqp_goes_on_after_a_kill(own_broker: Callable[[str], BrokerProcess]) -> None:
    broker = own_broker("")
    with subprocess.Popen(
        [str(PROGRAM), "goOnAfterKill", str(broker.port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        if process.stdout.readline() == "sent\n":
            broker.kill()
            broker.start()
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
