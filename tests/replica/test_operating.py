"""What operators do with nodes: hand over, reload settings, and go on without the log."""

from __future__ import annotations

import signal
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from escrowmq.cli.replica import replica
from escrowmq.client import connect
from tests.broker import running_broker, wait_until
from tests.certificates import Authority
from tests.engines.nats_nodes import NatsNodes
from tests.ports import reserve_port
from tests.replicas import ReplicaBroker, ReplicaBrokers

pytestmark = pytest.mark.skipif(NatsNodes.missing() is not None, reason=str(NatsNodes.missing()))

PERSISTENT = b"\x10\x00\x02"


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsNodes]:
    with NatsNodes(tmp_path_factory.mktemp("nats"), 1) as nodes:
        yield nodes


def command(name: str, node: ReplicaBroker) -> Result:
    return CliRunner().invoke(replica, [name, "--data-dir", str(node.data_dir)])


def other(brokers: ReplicaBrokers, node: ReplicaBroker) -> ReplicaBroker:
    """Return the other node of two, once the first one knows that it follows."""
    wait_until(
        lambda: any(row["role"] == "standby" and not row["behind_seconds"] for row in node.standing().get("nodes", ())),
        60,
        "the report of a standby",
    )
    return next(each for each in brokers.nodes if each is not node)


def put(broker: ReplicaBroker, count: int) -> None:
    with connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        channel.publish_many("", "q", [b"m"] * count, PERSISTENT)


def test_a_hand_over_tells_who_leads(nats: NatsNodes, tmp_path: Path) -> None:
    with ReplicaBrokers(tmp_path, nats.url("told"), 2) as brokers:
        first = brokers.leader()
        second = other(brokers, first)
        result = command("handover", first)
        assert result.exit_code == 0, result.output
        assert result.output.startswith(f"handed over to {second.node} amqp://127.0.0.1:{second.port}, after ")
        assert brokers.leader() is second


def test_a_hand_over_to_a_node_that_has_just_ended_fails(nats: NatsNodes, tmp_path: Path) -> None:
    with ReplicaBrokers(tmp_path, nats.url("ended"), 2) as brokers:
        first = brokers.leader()
        other(brokers, first).kill()
        result = command("handover", first)
        assert result.exit_code == 1
        assert "no other node took over, so this one leads again" in result.output
        assert brokers.leader() is first


def test_a_node_does_not_hand_over_with_settings_with_which_it_could_not_begin_again(
    nats: NatsNodes, tmp_path: Path
) -> None:
    config = tmp_path / "broker.toml"
    config.write_text("")
    with ReplicaBrokers(tmp_path, nats.url("settings"), 2, "--config", str(config)) as brokers:
        first = brokers.leader()
        second = other(brokers, first)
        config.write_text("[limits]\nmessage_sze = 1\n")
        result = command("handover", first)
        assert result.exit_code == 1
        assert "could not begin again as a standby, because of its settings" in result.output
        assert "message_sze" in result.output
        second.signal(signal.SIGHUP)
        wait_until(lambda: "was not reloaded, because it has a fault" in second.log(), 60, "the fault in the log")
        config.write_text("")
        assert command("handover", first).exit_code == 0
        assert brokers.leader() is second


def presented(port: int) -> bytes:
    """Return the certificate that a node presents, as in the file."""
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=30).encode()


def test_a_standby_presents_a_renewed_certificate_before_and_after_it_takes_over(
    nats: NatsNodes, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    with ReplicaBrokers(tmp_path, nats.url("renewed"), 1) as brokers:
        first = brokers.leader()
        certificate, key = authority.issue("server")
        port = reserve_port(brokers)
        config = tmp_path / "broker.toml"
        config.write_text(
            f"[listen]\ntls_address = '127.0.0.1:{port}'\n[tls]\ncertificate = '{certificate}'\nkey = '{key}'\n"
        )
        (tmp_path / "second").mkdir()
        second = ReplicaBroker(tmp_path / "second", "second", nats.url("renewed"), "--config", str(config))
        brokers.nodes.append(second)
        second.begin()
        other(brokers, first)
        old = presented(port)
        assert old == certificate.read_bytes()
        authority.issue("server")
        second.signal(signal.SIGHUP)
        wait_until(lambda: presented(port) == certificate.read_bytes() != old, 60, "the certificate")
        first.kill()
        assert brokers.leader() is second
        assert presented(port) == certificate.read_bytes()


def test_a_signal_ends_a_node_that_is_just_taking_over(nats: NatsNodes, tmp_path: Path) -> None:
    with ReplicaBrokers(tmp_path, nats.url("signalled"), 2) as brokers:
        for delay in (0.0, 0.004, 0.008, 0.012, 0.02, 0.04):  # seconds after which the signal comes
            first = brokers.leader()
            second = other(brokers, first)
            first.terminate()
            time.sleep(delay)
            second.signal(signal.SIGTERM)
            second.wait()
            first.begin()
            second.begin()


def test_a_node_that_was_detached_by_mistake_follows_again(nats: NatsNodes, tmp_path: Path) -> None:
    with ReplicaBrokers(tmp_path, nats.url("mistake"), 2) as brokers:
        first = brokers.leader()
        second = other(brokers, first)
        put(first, 2)
        brokers.followed()
        second.terminate()
        assert command("detach", second).exit_code == 0
        put(first, 1)
        second.begin()
        brokers.followed()
        first.terminate()
        assert brokers.leader() is second
        with connect(second.url) as connection:
            assert connection.channel().queue_declare("q", passive=True).method.message_count == 3


def test_a_node_goes_on_alone_only_if_it_was_detached(nats: NatsNodes, tmp_path: Path) -> None:
    with ReplicaBrokers(tmp_path, nats.url("alone"), 1) as brokers:
        node = brokers.leader()
        put(node, 3)
        node.terminate()
        started = subprocess.run(
            [arg for arg in node.command if arg not in ("--replicate", nats.url("alone"))],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert started.returncode == 1
        assert "belongs to a node of a replicated log" in started.stderr
        assert f"escrowmq serve --data-dir {node.data_dir} --replicate" in command("handover", node).output
        node.begin()
        brokers.leader()
        refused = command("detach", node)
        assert refused.exit_code == 1
        assert "is in use" in refused.output
        node.terminate()
        assert command("detach", node).exit_code == 0
        assert "belongs to no node" in command("detach", node).output
        with running_broker(node.data_dir.parent) as broker, connect(broker.url) as connection:
            assert connection.channel().queue_declare("q", passive=True).method.message_count == 3
