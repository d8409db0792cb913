"""The Python client of RocketMQ 5 works with the broker unmodified."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.interop.rocketmq.brokers import ServedBroker

SCENARIOS = Path(__file__).parent / "python_scenarios.py"
TOPICS = {
    "normal": "normal",
    "fifo": "fifo",
    "delay": "delay",
    "pushed": "normal",
    "tx": "transaction",
    "survivors": "transaction",
}

pytestmark = [pytest.mark.interop, pytest.mark.slow]


def started(broker: ServedBroker, name: str, *keys: str) -> subprocess.Popen[str]:
    whole = [sys.executable, str(SCENARIOS), str(broker.ports.grpc), name, *keys]
    return subprocess.Popen(whole, stdout=subprocess.PIPE, text=True)


def run(broker: ServedBroker, name: str, *keys: str) -> Any:
    """Run a scenario, and return its result."""
    process = started(broker, name, *keys)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, broker.process.log()[-3000:]
    return json.loads(out.splitlines()[-1])


@pytest.fixture(scope="session")
def broker(grpc_broker: ServedBroker) -> ServedBroker:
    """The broker, with the topics of the scenarios."""
    grpc_broker.declare(TOPICS)
    return grpc_broker


def test_messages_arrive_with_everything_that_was_sent(broker: ServedBroker) -> None:
    assert run(broker, "sends") == 20


@pytest.mark.rule("GRP-3")
def test_messages_of_one_group_arrive_in_order(broker: ServedBroker) -> None:
    assert run(broker, "order") == [str(i) for i in range(10)]


@pytest.mark.rule("DLY-1")
def test_a_delayed_message_arrives_at_its_time(broker: ServedBroker) -> None:
    assert run(broker, "delay") is True


@pytest.mark.rule("GRP-4")
def test_a_push_consumer_tries_again(broker: ServedBroker) -> None:
    assert run(broker, "push") == {"0": 2, "1": 1, "2": 1, "3": 1, "4": 1}


@pytest.mark.rule("HALF-2", "HALF-4", "HALF-5")
def test_transactions_are_decided_by_their_producer_or_its_checker(broker: ServedBroker) -> None:
    found, checks = run(broker, "transactions")
    assert found == ["at once", "commit", "later"]
    assert checks["commit"] == checks["rollback"] == 1
    assert checks["later"] == 2


@pytest.mark.rule("HALF-2", "HALF-3", "HALF-4")
def test_transactions_outlive_the_death_of_broker_and_producer(broker: ServedBroker) -> None:
    process = started(broker, "before_a_kill")
    assert process.stdout is not None
    assert process.stdout.readline() == "[]\n"
    broker.process.kill()
    process.kill()
    process.communicate()
    broker.process.start()
    found, checks = run(broker, "after_a_kill")
    assert found == sorted(f"{name}-{i}" for name in ("commit", "commit-by-check") for i in range(10))
    assert checks == {f"commit-by-check-{i}": 1 for i in range(10)}
    assert run(broker, "nothing_more") == []


@pytest.mark.rule("SEC-1")
def test_a_client_with_an_access_key_has_the_rights_of_its_user(broker: ServedBroker) -> None:
    broker.command("user", "add", "alice", "--no-password")
    rights = ("--configure", "^readers$", "--write", "^normal$", "--read", ".*")
    broker.command("permission", "set", "alice", "/", *rights)
    access_key, secret_key = broker.add_key("alice")
    assert run(broker, "sends", access_key, secret_key) == 20
    assert run(broker, "is_refused", access_key, "wrong") is True
