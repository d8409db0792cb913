"""go-amqp, an AMQP 1.0 client in Go, works with the broker unmodified. `make goamqp` compiles its scenarios."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker import BrokerProcess

PROGRAM = Path(sys.prefix, "goamqp")
SOURCE = Path(__file__).parent / "go" / "main.go"
PATIENCE = 60
SCENARIOS = re.findall(r'^\t"(\w+)": +\w+,$', SOURCE.read_text(encoding="utf-8"), re.MULTILINE)

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not PROGRAM.exists(), reason="needs make goamqp, which needs Go"),
]


@pytest.mark.parametrize("scenario", [*SCENARIOS, "wrongPassword"])
def test_a_scenario_of_go_amqp_succeeds(scenario: str, broker: BrokerProcess) -> None:
    command = [str(PROGRAM), scenario, str(broker.port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
