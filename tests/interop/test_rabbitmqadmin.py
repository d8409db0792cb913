"""RabbitMQ's own command-line tool for the management API, `rabbitmqadmin` of Debian's package, unmodified."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.broker import BrokerProcess, running_broker, wait_until
from tests.ports import reserve_port
from tests.unit.sources import ROOT

FETCHED = ROOT / ".venv" / "rabbitmqadmin"
"""Where `.ci/run` puts the tool, because installing the package would start a server."""
TOOL = str(FETCHED) if FETCHED.exists() else shutil.which("rabbitmqadmin")

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(TOOL is None, reason="rabbitmqadmin is missing; .ci/run fetches it"),
]


class Admin:
    """Runs the tool against a broker with the queues `orders` and `a/b`."""

    def __init__(self, folder: Path) -> None:
        self.port = reserve_port(self)
        self.broker: BrokerProcess = running_broker(folder, "--http", f"127.0.0.1:{self.port}")

    def run(self, *args: str, password: str = "guest") -> subprocess.CompletedProcess[str]:
        assert TOOL is not None
        login = ("--host", "127.0.0.1", "--port", str(self.port), "--username", "guest", "--password", password)
        command = [sys.executable, TOOL, *login, *args]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def rows(self, *args: str) -> Any:
        done = self.run("--format", "raw_json", *args)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    found = Admin(tmp_path_factory.mktemp("rabbitmqadmin"))
    with found.broker as broker, pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        for name in ("orders", "a/b"):
            channel.queue_declare(name, durable=True)
        channel.queue_bind("orders", "amq.topic", "k")
        channel.basic_publish("", "orders", b"x", pika.BasicProperties(delivery_mode=2))
        wait_until(lambda: found.run("show", "overview").returncode == 0)
        yield found


def test_it_lists_queues_with_chosen_columns(admin: Admin) -> None:
    found = admin.rows("list", "queues", "name", "messages")
    assert {row["name"]: row["messages"] for row in found} == {"orders": 1, "a/b": 0}
    done = admin.run("--vhost", "/", "list", "queues", "name", "messages")
    assert "| orders | 1        |" in done.stdout


@pytest.mark.parametrize(
    ("what", "key", "value"),
    [
        ("exchanges", "name", "amq.topic"),
        ("bindings", "routing_key", "k"),
        ("vhosts", "name", "/"),
        ("users", "name", "guest"),
        ("permissions", "user", "guest"),
        ("connections", "user", "guest"),
        ("nodes", "running", True),
    ],
)
def test_it_lists_what_there_is(admin: Admin, what: str, key: str, value: object) -> None:
    assert value in [row[key] for row in admin.rows("list", what)]


@pytest.mark.parametrize("what", ["policies", "operator_policies", "parameters"])
def test_it_lists_what_the_broker_does_not_have_as_empty(admin: Admin, what: str) -> None:
    assert admin.rows("list", what) == []


def test_it_prints_why_it_cannot_change_anything(admin: Admin) -> None:
    done = admin.run("declare", "queue", "name=more")
    assert done.returncode != 0
    assert "use the command `escrowmq`" in done.stdout + done.stderr


def test_it_shows_the_overview(admin: Admin) -> None:
    assert "escrowmq@" in admin.run("show", "overview").stdout


def test_a_wrong_password_is_an_error(admin: Admin) -> None:
    done = admin.run("list", "queues", password="wrong")
    assert done.returncode != 0
    assert "Access refused" in done.stdout + done.stderr
