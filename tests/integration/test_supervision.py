"""The broker under a supervisor: its notifications, and the unit for systemd."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker import running_broker
from tests.unit.sources import ROOT

UNITS = ("escrowmq.service", "escrowmq-follow.service")


def test_the_supervisor_learns_when_the_broker_is_ready_alive_and_stopping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("")
        manager.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + manager.getsockname()[1:].decode())
        monkeypatch.setenv("WATCHDOG_USEC", "300000")
        with running_broker(tmp_path) as broker:
            assert manager.recv(500).decode() == f"READY=1\nSTATUS=Serving amqp://127.0.0.1:{broker.port}\n"
            assert {manager.recv(500) for _ in range(3)} == {b"WATCHDOG=1\n"}
            assert broker.terminate() == 0
        states = {manager.recv(500).splitlines()[0]}
        while b"STOPPING=1" not in states:
            states.add(manager.recv(500).splitlines()[0])
        assert states <= {b"WATCHDOG=1", b"STOPPING=1"}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("name", UNITS)
def test_systemd_accepts_the_units(tmp_path: Path, name: str) -> None:
    text = (ROOT / "deploy" / name).read_text(encoding="utf-8")
    for key in ("User", "Group"):
        text = text.replace(f"{key}=escrowmq", f"{key}=root")  # those that exist everywhere
    unit = tmp_path / name
    unit.write_text(text.replace("/opt/escrowmq/bin/escrowmq", sys.executable), encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
