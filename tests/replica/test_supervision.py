"""A node under a supervisor, such as systemd: it is ready as a standby, alive all the time, and stops when told to."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from escrowmq.admin.socket.client import ask
from escrowmq.cli.replica import replica
from escrowmq.client import connect
from tests.broker import wait_until
from tests.engines.nats_nodes import NatsNodes
from tests.replicas import ReplicaBroker, ReplicaBrokers

pytestmark = pytest.mark.skipif(NatsNodes.missing() is not None, reason=str(NatsNodes.missing()))

SIGN = "WATCHDOG=1"


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsNodes]:
    with NatsNodes(tmp_path_factory.mktemp("nats"), 1) as nodes:
        yield nodes


def reported(leader: ReplicaBroker) -> bool:
    """Return whether a standby has reported to the leader that it follows."""
    return any(row["role"] == "standby" for row in leader.standing().get("nodes", ()))


def test_a_node_is_ready_as_a_standby_and_alive_also_after_a_hand_over(nats: NatsNodes, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("")
        manager.settimeout(60)

        def told() -> str:
            """Return the next state that is not a sign of life."""
            while (state := manager.recv(500).decode()) == f"{SIGN}\n":
                pass
            return state

        brokers = ReplicaBrokers(tmp_path, nats.url("supervised"), 2)
        first, second = brokers.nodes
        address = "@" + manager.getsockname()[1:].decode()
        first.environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "300000"}
        standby = ["STATUS=Reading the replicated log\n", "READY=1\nSTATUS=Standby, follows the replicated log\n"]
        try:
            first.begin()
            assert [told(), told()] == standby
            assert told() == f"READY=1\nSTATUS=Serving amqp://127.0.0.1:{first.port}\n"
            second.begin()
            wait_until(lambda: reported(first), 60, "the report of the standby")
            result = CliRunner().invoke(replica, ["handover", "--data-dir", str(first.data_dir)])
            assert result.exit_code == 0, result.output
            assert told() == "STATUS=Closing connections, so that another node leads\n"
            assert [told(), told()] == standby
            assert brokers.leader(but=first) is second
            assert {manager.recv(500) for _ in range(3)} == {f"{SIGN}\n".encode()}
        finally:
            for node in brokers.nodes:
                if node._process is not None:
                    node.kill()


def test_a_node_that_is_told_to_stop_while_it_hands_over_does_not_begin_again(nats: NatsNodes, tmp_path: Path) -> None:
    with ReplicaBrokers(tmp_path, nats.url("stopped"), 2) as brokers:
        leader = brokers.leader()
        with connect(leader.url), socket.create_connection(("127.0.0.1", leader.port)) as mute:
            mute.sendall(b"AMQP\0\0\x09\x01")  # the leader waits for this client, which answers nothing
            time.sleep(0.2)
            wait_until(lambda: reported(leader), 60, "the report of the standby")
            ask(leader.data_dir, "replica.handover")
            leader.signal(signal.SIGTERM)
            assert leader.wait() == 0
        assert "begins again" not in leader.log()
        assert brokers.leader(but=leader) is not leader
