"""Definitions of a real broker: the command, the file of its start, and a login with a hash from RabbitMQ."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pika
import pytest

from tests.broker import running_broker
from tests.unit.admin.test_definitions import RABBITMQ


def command(folder: Path, *args: str, code: int = 0) -> str:
    given = [sys.executable, "-m", "escrowmq", "definitions", *args, "--data-dir", str(folder)]
    done = subprocess.run(given, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


@pytest.mark.rule("SEC-1")
def test_definitions_are_imported_at_the_start_and_a_password_is_rehashed(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    config = tmp_path / "escrowmq.toml"
    config.write_text(f"load_definitions = {json.dumps(str(RABBITMQ))}\n")
    with running_broker(tmp_path / "first", "--config", str(config)) as broker:
        assert "1 policies are not supported and were left out" in broker.log()
        url = broker.url.replace("guest:guest", "alice:test12").rstrip("/") + "/shop"
        for _ in range(2):
            with pika.BlockingConnection(pika.URLParameters(url)) as connection:
                assert connection.channel().queue_declare("orders", passive=True).method.message_count == 0
        document = json.loads(command(broker.data_dir, "export"))
        (alice,) = [user for user in document["users"] if user["name"] == "alice"]
        assert alice["hashing_algorithm"] == "escrowmq_argon2"
    file = tmp_path / "exported.json"
    file.write_text(json.dumps(document))
    with running_broker(tmp_path / "second") as broker:
        assert "queues: 2" in command(broker.data_dir, "import", str(file))
        assert json.loads(command(broker.data_dir, "export")) == document
        assert "no file of definitions" in command(broker.data_dir, "import", str(config), code=1)
