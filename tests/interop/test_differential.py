"""The same scripts, executed by pika, get the same answers from EscrowMQ and RabbitMQ, apart from listed differences.

RabbitMQ's answers are recorded, so RabbitMQ need not be installed; where it is, the records are checked.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.brokers import RabbitMQ
from tests.broker import BrokerProcess
from tests.interop.differential import access, records
from tests.interop.differential.differences import DIFFERENCES, expected

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def prepared(broker: BrokerProcess) -> BrokerProcess:
    """The shared broker, with the user of `access`."""
    user = access.USER
    rights = ("--configure", access.CONFIGURE, "--write", access.WRITE, "--read", access.READ)
    topic = ("--write", access.TOPIC_WRITE, "--read", access.TOPIC_READ)
    for arguments in (
        ("user", "add", user, "--password-stdin"),
        ("permission", "set", user, "/", *rights),
        ("permission", "topic", "set", user, "/", "amq.topic", *topic),
    ):
        command = [sys.executable, "-m", "escrowmq", *arguments, "--data-dir", str(broker.data_dir)]
        subprocess.run(command, input=f"{user}\n", text=True, check=True, timeout=60)
    return broker


@pytest.mark.parametrize("name", records.SCENARIOS)
def test_the_broker_answers_like_rabbitmq(name: str, prepared: BrokerProcess) -> None:
    lines = records.run(name, prepared.port)
    recorded = records.recorded(name)
    padded = [*lines, *[""] * len(recorded)]
    wanted = [expected(name, line, here) for line, here in zip(recorded, padded, strict=False)]
    assert "\n".join(lines) == "\n".join(wanted)


def test_every_listed_difference_is_in_the_records() -> None:
    for name, differences in DIFFERENCES.items():
        assert not differences.keys() - set(records.recorded(name)), name


@pytest.mark.slow
@pytest.mark.skipif(not RabbitMQ.installed(), reason="rabbitmq-server is not installed")
def test_the_installed_rabbitmq_answers_as_recorded() -> None:
    with records.rabbitmq() as server:
        if records.FOLDER.name.rpartition("-")[2] not in server.version():
            pytest.skip(f"the records are from another version of RabbitMQ than {server.version()}")
        for name in records.SCENARIOS:
            assert records.run(name, server.port) == records.recorded(name), name
