"""The process that serves reads is started, or the client is told that it cannot be."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from escrowmq.config.config import Config
from escrowmq.server.replica.reading_broker import SECTIONS, introduced, introduction
from escrowmq.server.replica.reading_process import ReadingError, ReadingProcess
from escrowmq.wire.endpoint import Peer


def test_a_process_that_finds_no_standby_ends(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = Config(data_dir=tmp_path)
    with pytest.raises(ReadingError, match="the log of this node says why"):
        asyncio.run(asyncio.wait_for(ReadingProcess.start(config), 60))
    assert "the copy for reads cannot be made: no broker runs on" in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_process_that_cannot_be_started_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "missing"))
    with pytest.raises(ReadingError, match="cannot be served"):
        asyncio.run(ReadingProcess.start(Config(data_dir=tmp_path)))


def test_a_process_that_takes_too_long_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("escrowmq.server.replica.reading_process.START_SECONDS", 0.01)
    with pytest.raises(ReadingError):
        asyncio.run(asyncio.wait_for(ReadingProcess.start(Config(data_dir=tmp_path)), 60))


def test_a_process_that_takes_no_clients_does_not_hold_up_the_standby() -> None:
    control, theirs = socket.socketpair()
    control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    process: Any = None
    hanging = ReadingProcess(process, control, 0.0)
    found: list[socket.socket] = []

    def pass_clients() -> None:
        with contextlib.suppress(ReadingError):
            for _ in range(1000):
                found.append(hanging.connect(Peer("127.0.0.1", 5)))

    passing = threading.Thread(target=pass_clients, daemon=True)
    passing.start()
    passing.join(10)
    assert not passing.is_alive()
    assert len(found) < 1000
    for sock in (control, theirs, *found):
        sock.close()


@pytest.mark.parametrize(
    "peer",
    [Peer("127.0.0.1", 5), Peer("::1", 6, loopback=True, tls=True, certificate_user="Zoë", local_host="::1")],
)
def test_the_client_is_introduced_before_its_bytes(peer: Peer) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(introduction(peer) + b"AMQP")
        assert introduced(theirs) == peer
        assert theirs.recv(10) == b"AMQP"


def test_the_process_gets_the_settings_that_it_needs_and_no_secret() -> None:
    config = Config.model_validate(
        {
            "data_dir": "/data",
            "limits": {"unauthenticated_seconds": "3s", "held_memory_per_user": 0.25},
            "memory": {"high_watermark": "1GiB"},
            "security": {"default_password": "secret"},
            "replication": {"url": "nats://user:secret@host/log"},
            "tokens": {"issuer": "https://issuer", "audience": "escrowmq", "keys_file": "/keys"},
        }
    )
    text = config.model_dump_json(include=set(SECTIONS))
    assert "secret" not in text.replace("secret-", "")
    found = Config.model_validate_json(text)
    for name in SECTIONS - {"security"}:
        assert getattr(found, name) == getattr(config, name)
    assert found.security.mechanisms == config.security.mechanisms
