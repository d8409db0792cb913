"""Runs the JavaScript clients in node/ against a broker. `npm ci` in that folder installs them."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from functools import cache
from pathlib import Path

import pytest

from tests.broker import BrokerProcess, wait_until

NODE = Path(__file__).parent / "node"
PATIENCE = 60
WEBSOCKET = "--experimental-websocket"


def needs(package: str) -> pytest.MarkDecorator:
    """Skip the tests unless node and this package are installed."""
    return pytest.mark.skipif(
        shutil.which("node") is None or not (NODE / "node_modules" / package).exists(),
        reason=f"needs node, and {package} by `npm ci` in tests/interop/node",
    )


@cache
def has_websockets() -> bool:
    """Return whether node has WebSockets: since version 20.10, and without the option since version 22."""
    return subprocess.run(["node", WEBSOCKET, "-e", "WebSocket"], capture_output=True, check=False).returncode == 0


def scenarios(script: str) -> list[str]:
    """Return the names of the scenarios that a script contains."""
    text = (NODE / script).read_text(encoding="utf-8")
    return re.findall(r"^  (\w+): (?:async )?\(\) =>", text, re.MULTILINE)


def run_scenario(script: str, scenario: str, broker: BrokerProcess, name: str) -> None:
    """Run one scenario, whose queues have names that begin with `name`. Raises AssertionError if it fails."""
    command = ["node", *([WEBSOCKET] if has_websockets() else []), script, scenario, str(broker.port), name]
    done = subprocess.run(command, cwd=NODE, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr


def run_through_kills(script: str, broker: BrokerProcess, name: str) -> None:
    """Kill and start the broker twice under a script that publishes and consumes until its stdin is closed.

    Raises:
        AssertionError: the script did not go on after a kill, or a confirmed message did not arrive.
    """
    numbers: dict[str, list[int]] = {"sent": [], "got": [], "connections": []}
    sent, got = numbers["sent"], numbers["got"]
    process = subprocess.Popen(
        ["node", script, str(broker.port), name], cwd=NODE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdin is not None
    output = process.stdout

    def read() -> None:
        for line in output:
            event, number = line.split()
            numbers[event].append(int(number))

    def progress() -> None:
        before = len(sent), len(got)
        wait_until(lambda: len(sent) > before[0] + 50 and len(got) > before[1] + 50, PATIENCE, "50 both ways")

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(2):
            progress()
            broker.kill()
            broker.start()
        progress()
        process.stdin.close()
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        reader.join(PATIENCE)
        output.close()
        process.stdin.close()
    assert set(sent) <= set(got)
    assert numbers["connections"][0] >= 3
