"""SCRAM on a real broker: logins of the client, users of older journals, and the durable keys."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from escrowmq.amqp10 import LoginRefused, connect
from tests.broker import BrokerProcess, running_broker

BOTH = 'security.mechanisms = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]'
PLAIN_ONLY = 'security.mechanisms = ["PLAIN"]'


def logs_in(broker: BrokerProcess, mechanism: str, password: str = "guest", user: str = "guest") -> bool:
    """Return whether a login succeeds. The connection is closed again."""
    try:
        with connect(
            f"amqp://127.0.0.1:{broker.port}", user=user, password=password, mechanism=mechanism, reconnect=False
        ):
            return True
    except LoginRefused:
        return False


def escrowmq(*arguments: str) -> str:
    """Return the output of a command."""
    command = [sys.executable, "-m", "escrowmq", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def configured(tmp_path: Path) -> Callable[[str], BrokerProcess]:
    """A function that returns a broker with this configuration, on the same data each time; it is not started."""
    file = tmp_path / "broker.toml"

    def make(config: str) -> BrokerProcess:
        file.write_text(config, encoding="utf-8")
        return BrokerProcess(tmp_path, "--config", str(file))

    return make


def test_the_client_logs_in_by_scram_and_wrong_passwords_are_refused(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", ""):
            assert logs_in(broker, mechanism)
            assert not logs_in(broker, mechanism, "wrong")
            assert not logs_in(broker, mechanism, user="nobody")


def test_users_of_older_journals_get_their_keys_at_a_login_with_a_password(
    configured: Callable[[str], BrokerProcess],
) -> None:
    with configured(PLAIN_ONLY).start() as broker:
        assert not logs_in(broker, "SCRAM-SHA-256")
    with configured(BOTH).start() as broker:
        assert "SCRAM-SHA-256 is not offered yet, because these users have no keys for it: 'guest'" in broker.log()
        assert not logs_in(broker, "SCRAM-SHA-256")
        assert logs_in(broker, "")
        assert logs_in(broker, "SCRAM-SHA-256")
        escrowmq("user", "tags", "guest", "administrator", "--data-dir", str(broker.data_dir))  # everything is synced
        broker.kill()
    with configured(BOTH).start() as broker:
        assert logs_in(broker, "SCRAM-SHA-512")
        shown = escrowmq("inspect", "--records", str(broker.data_dir))
        assert "USER_SET" in shown
        assert "SCRAM-SHA" not in shown
        assert "SCRAM-SHA-256$" not in broker.log()
