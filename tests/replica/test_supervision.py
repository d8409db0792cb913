"""A node under a supervisor, such as systemd: it is ready as a standby, alive all the time, and stops when told to."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest
from click.testing import CliRunner

from escrowmq.admin.socket.client import ask
from escrowmq.cli.replica import replica
from escrowmq.client import connect
from tests.broker import wait_until
from tests.engines.nats_nodes import NatsNodes
from tests.replicas import ReplicaBroker, ReplicaBrokers

pytestmark = pytest.mark.skipif(NatsNodes.missing() is not None, reason=str(NatsNodes.missing()))

END = "end"


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsNodes]:
    with NatsNodes(tmp_path_factory.mktemp("nats"), 1) as nodes:
        yield nodes


def reported(leader: ReplicaBroker) -> bool:
    """Return whether a standby has reported to the leader that it follows."""
    return any(row["role"] == "standby" for row in leader.standing().get("nodes", ()))


class Manager:
    """Receives what a broker tells its supervisor. The kernel keeps few messages, so a thread takes them."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("")  # Linux picks an abstract address
        self.environment = {"NOTIFY_SOCKET": "@" + self._socket.getsockname()[1:].decode(), "WATCHDOG_USEC": "300000"}
        self._states: SimpleQueue[str] = SimpleQueue()
        self.signs = 0
        """The signs of life so far."""
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while (state := self._socket.recv(500).decode()) != END:
            if state == "WATCHDOG=1\n":
                self.signs += 1
            else:
                self._states.put(state)
        self._socket.close()

    def told(self) -> str:
        """Return the next state that is no sign of life."""
        return self._states.get(timeout=60)

    def stop(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(END.encode(), self._socket.getsockname())


def test_a_node_is_ready_as_a_standby_and_alive_also_after_a_hand_over(nats: NatsNodes, tmp_path: Path) -> None:
    manager = Manager()
    told = manager.told
    brokers = ReplicaBrokers(tmp_path, nats.url("supervised"), 2)
    first, second = brokers.nodes
    first.environment = manager.environment
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
        before = manager.signs
        wait_until(lambda: manager.signs > before + 2, 60, "signs of life of the standby")
    finally:
        for node in brokers.nodes:
            if node._process is not None:
                node.kill()
        manager.stop()


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
