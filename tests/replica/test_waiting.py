"""A broker that starts or stops while the engine of the replicated log does not answer: it waits, and says why."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pika
import pytest
from click.testing import CliRunner
from pika.exceptions import AMQPError

from escrowmq.cli.replica import replica
from escrowmq.server.fatal import EXIT_CODE
from tests.broker import wait_until
from tests.engines.nats_nodes import NatsNodes
from tests.integration.test_server_http import HttpBroker
from tests.ports import reserve_port
from tests.replicas import ReplicaBroker, ReplicaBrokers, serves, standby_of

pytestmark = pytest.mark.skipif(NatsNodes.missing() is not None, reason=str(NatsNodes.missing()))


def test_a_broker_waits_for_its_engine_as_a_standby_that_says_why(tmp_path: Path) -> None:
    engine = NatsNodes(tmp_path / "nats", 1)
    port = reserve_port(engine)
    node = ReplicaBroker(tmp_path, "n1", engine.url("late"), "--http", f"127.0.0.1:{port}")
    node.environment["ESCROWMQ_HTTP_OPEN_METRICS"] = "true"
    http = HttpBroker(node, port)
    try:
        node.begin()
        wait_until(lambda: node.standing().get("fault"), 60, "a node that says why it waits")
        shown = CliRunner().invoke(replica, ["status", "--data-dir", str(node.data_dir)]).output
        assert "cannot be reached" in shown
        assert "reading    this node still reads the replicated log" in shown
        assert "settings   not checked yet" in shown
        assert f"this node opens the replicated log nats://127.0.0.1:{engine.ports[0]}/late" in node.log()
        wait_until(http.answers, 60, "its HTTP process")
        assert [http.get(path)[0] for path in ("/health", "/health/leader", "/metrics", "/")] == [200, 503, 200, 503]
        assert json.loads(http.get("/api/escrow/replica")[1])["role"] == "standby"
        with pytest.raises(AMQPError, match="this node is a standby, and knows of no leader"):
            pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port))
        with engine:
            wait_until(lambda: serves(node), 60, "a leader")
            assert node.terminate() == 0
    finally:
        node.kill()


def test_a_broker_that_waits_for_its_engine_stops_in_order(tmp_path: Path) -> None:
    node = ReplicaBroker(tmp_path, "n1", NatsNodes(tmp_path / "nats", 1).url("never"))
    try:
        node.begin()
        wait_until(lambda: node.standing().get("fault"), 60, "a node that waits")
        assert node.terminate() == 0
    finally:
        node.kill()


def test_a_second_signal_ends_a_leader_that_waits_for_its_engine(tmp_path: Path) -> None:
    with NatsNodes(tmp_path / "nats", 1) as engine:
        node = ReplicaBroker(tmp_path, "n1", engine.url("lost"))
        try:
            node.begin()
            wait_until(lambda: serves(node), 60, "a leader")
            engine.kill(0)
            node.signal(signal.SIGTERM)
            wait_until(lambda: "SIGTERM: stopping" in node.log(), 60, "the first signal")
            node.signal(signal.SIGTERM)  # before the leader counts as silent
            assert node.wait(8) == EXIT_CODE
        finally:
            node.kill()
    assert "stops without an answer of the replicated log" in node.log()


def waits(standby: ReplicaBroker) -> bool:
    """Return whether a standby has not read the log to its end for a while."""
    nodes = standby.standing().get("nodes", [])
    return bool(nodes and nodes[0]["behind_seconds"])


def test_a_second_signal_ends_a_standby_that_waits_for_its_engine(tmp_path: Path) -> None:
    with NatsNodes(tmp_path / "nats", 1) as engine, ReplicaBrokers(tmp_path, engine.url("frozen"), 2) as brokers:
        standby = standby_of(brokers)
        engine.freeze(0)
        try:
            wait_until(lambda: waits(standby), 60, "a standby that waits for the engine")
            standby.signal(signal.SIGTERM)
            wait_until(lambda: "SIGTERM: stopping" in standby.log(), 60, "the first signal")
            standby.signal(signal.SIGTERM)
            assert standby.wait(8) == EXIT_CODE
        finally:
            engine.thaw(0)
    assert "this standby stops without an answer of the replicated log" in standby.log()
