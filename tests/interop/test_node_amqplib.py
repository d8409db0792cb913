"""amqplib for Node.js and amqp-connection-manager work with the broker. `npm ci` in node/ installs them."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker import BrokerProcess, wait_until

NODE = Path(__file__).parent / "node"
PATIENCE = 60

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(
        shutil.which("node") is None or not (NODE / "node_modules").exists(),
        reason="needs node, and `npm ci` in tests/interop/node",
    ),
]

SCENARIOS = re.findall(
    r"^  (\w+): (?:async )?\(\) =>", (NODE / "scenarios.js").read_text(encoding="utf-8"), re.MULTILINE
)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_of_amqplib_succeeds(scenario: str, broker: BrokerProcess) -> None:
    command = ["node", "scenarios.js", scenario, str(broker.port), f"node.{scenario}"]
    done = subprocess.run(command, cwd=NODE, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr


def test_amqp_connection_manager_survives_kills(own_broker: Callable[[str], BrokerProcess], name: str) -> None:
    broker = own_broker("")
    sent: list[int] = []
    got: list[int] = []
    process = subprocess.Popen(
        ["node", "survivor.js", str(broker.port), name],
        cwd=NODE,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    output = process.stdout
    connections: list[int] = []

    def read() -> None:
        for line in output:
            what, number = line.split()
            {"sent": sent, "got": got, "connections": connections}[what].append(int(number))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(2):
            before = len(sent), len(got)
            wait_until(lambda b=before: len(sent) > b[0] + 50 and len(got) > b[1] + 50, PATIENCE, "50 both ways")  # type: ignore[misc]
            broker.kill()
            broker.start()
        before = len(sent), len(got)
        wait_until(lambda: len(sent) > before[0] + 50 and len(got) > before[1] + 50, PATIENCE, "50 both ways")
        process.stdin.close()
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        reader.join(PATIENCE)
        output.close()
        process.stdin.close()
    assert set(sent) <= set(got)
    assert connections[0] >= 3
