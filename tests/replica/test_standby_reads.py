"""A standby's data directory is read while it follows: backup, restore, inspection, and the audit by Spark."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from escrowmq.admin.socket.client import ask
from escrowmq.client import connect
from escrowmq.client.escrow import Escrow
from tests.broker import running_broker, wait_until
from tests.engines.conftest import ENGINES
from tests.replica_kill.clients import ConfirmedProducer
from tests.replicas import ReplicaBroker, ReplicaBrokers, synced
from tests.soak.load import audit

HISTORY = (b"one", b"two", b"three")


class PacedProducer(ConfirmedProducer):
    """Leaves the processors to those who read the journal."""

    def work(self, channel: BlockingChannel) -> None:
        super().work(channel)
        self.stopped.wait(0.02)


@pytest.fixture(scope="module", params=ENGINES)
def brokers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaBrokers]:
    """Two brokers on an engine of one node, and a client that publishes all the time."""
    kind = ENGINES[request.param]
    if (why := kind.missing()) is not None:
        pytest.skip(f"{kind.engine}: {why}")
    folder = tmp_path_factory.mktemp("reads")
    with kind(folder / "engine", 1) as nodes, ReplicaBrokers(folder, nodes.url("reads"), 2) as found:
        leader = found.leader()
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", leader.port))
        stream = {"x-queue-type": "stream"}
        channel = connection.channel()
        channel.queue_declare("history", durable=True, arguments=stream)
        channel.confirm_delivery()
        for body in HISTORY:
            channel.basic_publish("", "history", body)
        connection.close()
        with PacedProducer(found, "p") as producer:
            wait_until(lambda: len(producer.confirmed) > 50, 60, "confirms")
            confirmed = leader.standing()["lsn"]
            (standby,) = (node for node in found.nodes if node is not leader)
            wait_until(lambda: synced(standby) >= confirmed, 60, "the standby to follow")
            yield found


@pytest.fixture
def standby(brokers: ReplicaBrokers) -> ReplicaBroker:
    leader = brokers.leader()
    (found,) = (node for node in brokers.nodes if node is not leader)
    return found


def escrowmq(*arguments: str | Path) -> str:
    command = [sys.executable, "-m", "escrowmq", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_backup_of_a_standby_has_everything_that_was_confirmed_before(
    brokers: ReplicaBrokers, standby: ReplicaBroker
) -> None:
    for _ in range(3):
        confirmed = ask(brokers.leader().data_dir, "journal.synced")
        assert ask(standby.data_dir, "journal.synced") >= confirmed


def test_a_standby_is_backed_up_and_the_backup_is_whole(standby: ReplicaBroker, tmp_path: Path) -> None:
    escrowmq("backup", tmp_path / "backup", "--data-dir", standby.data_dir)
    escrowmq("restore", tmp_path / "backup", "--check")
    escrowmq("restore", tmp_path / "backup", "--data-dir", tmp_path / "restored")
    assert "history" in escrowmq("inspect", tmp_path / "restored", "--records")


def test_a_stream_is_read_from_a_broker_on_a_copy_of_a_standby(standby: ReplicaBroker, tmp_path: Path) -> None:
    escrowmq("backup", tmp_path / "copy", "--data-dir", standby.data_dir)
    escrowmq("restore", tmp_path / "copy", "--data-dir", tmp_path / "data")
    with running_broker(tmp_path) as broker, connect(broker.url) as connection:
        (state,) = Escrow(connection).describe("history")
        assert (state.kind, state.first, state.next) == ("stream", 1, 1 + len(HISTORY))


def test_the_journal_of_a_standby_is_inspected(standby: ReplicaBroker) -> None:
    before = standby.standing()["lsn"]
    assert "history" in escrowmq("inspect", standby.data_dir, "--records")
    wait_until(lambda: standby.standing()["lsn"] > before, 60, "the standby to follow on")


@pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="needs Spark")
@pytest.mark.slow
@pytest.mark.parametrize("brokers", ["nats"], indirect=True)
def test_a_standby_is_audited(standby: ReplicaBroker, tmp_path: Path) -> None:
    """The journal on disk is the same with each engine, and inspected with each above."""
    audit(standby.data_dir, tmp_path / "audit")
    before = standby.standing()["lsn"]
    wait_until(lambda: standby.standing()["lsn"] > before, 60, "the standby to follow on")
