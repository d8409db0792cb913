"""Three brokers on a replicated log of real NATS: kills, a stopped leader, a hand-over, refusals, equal journals."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pika
import pytest
from click.testing import CliRunner
from pika.exceptions import AMQPError

from escrowmq.admin.socket.client import AdminError, ask
from escrowmq.cli.replica import replica
from escrowmq.client import BasicProperties, connect
from escrowmq.server.fatal import EXIT_CODE
from escrowmq.wire.amqp091.table import FieldValue
from tests.broker import wait_until
from tests.engines.nats_nodes import NatsNodes
from tests.harness.relay import relayed
from tests.harness.rocketmq_calls import COMMIT, SEND, TOPIC, Asked, Calls, GrpcCalls, RemotingCalls
from tests.interop.rocketmq.brokers import RocketmqPorts
from tests.replicas import ReplicaBroker, ReplicaBrokers, journal_files, serves
from tests.rocketmq_kill.wires import Wire

pytestmark = pytest.mark.skipif(NatsNodes.missing() is not None, reason=str(NatsNodes.missing()))

QUEUE = "work"
PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsNodes]:
    with NatsNodes(tmp_path_factory.mktemp("nats"), 1) as nodes:
        yield nodes


@pytest.fixture
def brokers(nats: NatsNodes, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ReplicaBrokers]:
    name = request.node.name.replace("[", "-").replace("]", "").replace(".", "-")
    url = f"nats://127.0.0.1:{nats.ports[0]}/{name}?replicas=1"
    with ReplicaBrokers(tmp_path, url) as found:
        yield found


class Producer:
    """Publishes numbers with confirms, one after the other, to whoever leads, until it is stopped."""

    def __init__(self, brokers: ReplicaBrokers) -> None:
        self._brokers = brokers
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.confirmed: list[int] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive()

    def more(self, count: int = 20) -> None:
        """Wait until so many more are confirmed."""
        before = len(self.confirmed)
        wait_until(lambda: len(self.confirmed) >= before + count, 90, "more confirms")

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            try:
                connection = pika.BlockingConnection(self._brokers.parameters())
                channel = connection.channel()
                channel.queue_declare(QUEUE, durable=True)
                channel.confirm_delivery()
                while not self._stop.is_set():
                    number += 1
                    channel.basic_publish("", QUEUE, b"%d" % number, PERSISTENT)
                    self.confirmed.append(number)
                connection.close()
            except (AMQPError, OSError):
                self._stop.wait(0.1)


def consumed(brokers: ReplicaBrokers) -> set[int]:
    """Consume everything from the leader."""
    brokers.leader()
    connection = pika.BlockingConnection(brokers.parameters())
    channel = connection.channel()
    found = set()
    while (got := channel.basic_get(QUEUE, auto_ack=True))[0] is not None:
        found.add(int(got[2]))
    connection.close()
    return found


def assert_equal_journals(brokers: ReplicaBrokers) -> None:
    brokers.followed()
    first, *others = (journal_files(node.data_dir) for node in brokers.nodes)
    for other in others:
        assert other == first


def test_a_leader_whose_disk_is_short_of_space_hands_over(nats: NatsNodes, tmp_path: Path) -> None:
    room = 512 << 20  # more than other tests write meanwhile, and less than what is written below
    brokers = ReplicaBrokers(tmp_path, f"nats://127.0.0.1:{nats.ports[0]}/short-disk?replicas=1", 2)
    first, second = brokers.nodes
    brokers.nodes = [first]
    first.environment["ESCROWMQ_DISK_FREE_LIMIT"] = str(shutil.disk_usage(tmp_path).free - room)
    with contextlib.ExitStack() as stack:
        stack.callback(brokers.__exit__)
        first.begin()
        assert brokers.leader() is first
        brokers.nodes.append(second)
        second.begin()
        wait_until(lambda: second.standing().get("nodes"), 60, "the standby")
        with Producer(brokers) as producer, (tmp_path / "ballast").open("wb") as ballast:
            producer.more()
            os.posix_fallocate(ballast.fileno(), 0, 3 * room)
            assert brokers.leader(but=first) is second
            producer.more()
    assert "so this node hands over to one that may have more" in first.log()
    (tmp_path / "ballast").unlink()


@pytest.mark.rule("REPL-2", "REPL-4")
def test_nothing_confirmed_is_lost_when_the_leader_is_killed(brokers: ReplicaBrokers) -> None:
    brokers.leader()
    with Producer(brokers) as producer:
        producer.more()
        leader = brokers.leader()
        leader.kill()
        producer.more()
        leader.begin()
        wait_until(lambda: all(node.standing() for node in brokers.nodes), 60, "all nodes")
    assert set(producer.confirmed) <= consumed(brokers)
    assert_equal_journals(brokers)


@pytest.mark.rule("REPL-1", "REPL-4")
def test_a_leader_that_was_stopped_for_a_while_answers_nothing_and_follows_again(brokers: ReplicaBrokers) -> None:
    leader = brokers.leader()
    with Producer(brokers) as producer:
        producer.more()
        leader.signal(signal.SIGSTOP)
        successor = brokers.leader(but=leader)
        leader.signal(signal.SIGCONT)
        wait_until(lambda: leader.standing().get("role") == "standby", 60, "the deposed leader to follow")
        assert leader.process.poll() is None, "it is still the same process"
        producer.more()
    assert successor.standing()["role"] == "leader"
    assert set(producer.confirmed) <= consumed(brokers)
    assert_equal_journals(brokers)


@pytest.mark.rule("REPL-7")
def test_a_hand_over_takes_less_time_than_the_lease(brokers: ReplicaBrokers) -> None:
    leader = brokers.leader()
    with Producer(brokers) as producer:
        producer.more()
        wait_until(lambda: len(leader.standing().get("nodes", ())) > 1, 60, "the report of a standby")
        result = CliRunner().invoke(replica, ["handover", "--data-dir", str(leader.data_dir)])
        assert result.exit_code == 0, result.output
        brokers.leader(but=leader)
        producer.more()
    wait_until(leader.standing, 60, "the old leader to follow")
    shown = CliRunner().invoke(replica, ["status", "--data-dir", str(leader.data_dir)])
    assert f"node       {leader.node} (standby)" in shown.output
    assert set(producer.confirmed) <= consumed(brokers)
    assert_equal_journals(brokers)


@pytest.mark.rule("REPL-7")
def test_a_leader_that_is_terminated_resigns(brokers: ReplicaBrokers) -> None:
    leader = brokers.leader()
    assert leader.terminate() == 0
    assert brokers.leader(but=leader).standing()["epoch"] == 2


@pytest.mark.rule("REPL-7")
def test_a_leader_that_is_terminated_while_it_hands_over_does_not_begin_again(brokers: ReplicaBrokers) -> None:
    leader = brokers.leader()
    connection = pika.BlockingConnection(brokers.parameters())  # it is waited for, since it does not answer
    wait_until(lambda: len(leader.standing().get("nodes", ())) > 1, 60, "the report of a standby")
    ask(leader.data_dir, "replica.handover")
    assert leader.terminate() == 0
    brokers.leader(but=leader)
    with contextlib.suppress(AMQPError, OSError):
        connection.close()


def test_a_second_signal_ends_a_leader_that_cannot_resign(tmp_path: Path) -> None:
    with NatsNodes(tmp_path / "nats", 1) as nodes, ReplicaBrokers(tmp_path, nodes.url("resigning"), 1) as brokers:
        leader = brokers.leader()
        nodes.freeze(0)
        wait_until(lambda: leader.standing()["silent"], 30, "the leader to notice that the log does not answer")
        leader.signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            leader.process.wait(2)
        leader.signal(signal.SIGTERM)
        assert leader.wait(10) == EXIT_CODE
    assert "this node stops without an answer of the replicated log" in leader.log()


def standby_of(brokers: ReplicaBrokers) -> tuple[ReplicaBroker, ReplicaBroker]:
    leader = brokers.leader()
    standby = next(node for node in brokers.nodes if node is not leader)
    wait_until(lambda: standby.standing().get("leader") == leader.node, 60, "a standby that knows the leader")
    return standby, leader


def test_a_standby_tells_clients_who_leads(brokers: ReplicaBrokers) -> None:
    standby, leader = standby_of(brokers)
    line = f"320.*this node is a standby; the leader is amqp://127.0.0.1:{leader.port}"
    with pytest.raises(AMQPError, match=line):
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", standby.port))
    result = CliRunner().invoke(replica, ["handover", "--data-dir", str(standby.data_dir)])
    assert result.exit_code == 1
    assert "this node is a standby; the leader is" in result.output


@pytest.mark.rule("REPL-3")
def test_a_deposed_leader_does_not_answer_from_memory(brokers: ReplicaBrokers) -> None:
    leader = brokers.leader()
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", leader.port))
    channel = connection.channel()
    channel.queue_declare(QUEUE, durable=True)
    leader.signal(signal.SIGSTOP)
    answers: list[object] = []

    def look() -> None:
        try:
            answers.append(channel.queue_declare(QUEUE, passive=True).method)
        except (AMQPError, OSError) as error:
            answers.append(error)

    asking = threading.Thread(target=look, daemon=True)
    asking.start()
    brokers.leader(but=leader)
    other = pika.BlockingConnection(brokers.parameters()[::-1])
    other.channel().queue_delete(QUEUE)
    other.close()
    assert not answers
    leader.signal(signal.SIGCONT)
    asking.join(60)
    (answer,) = answers
    assert isinstance(answer, AMQPError), "the queue is deleted, so it must not answer that it exists"


def prepared(node: ReplicaBroker) -> None:
    """Leave a branch in doubt."""
    with connect(node.url) as connection, connection.channel() as channel:
        channel.queue_declare(QUEUE, durable=True)
        connection.tpc_begin(connection.xid(1, "in doubt", "branch"))
        channel.basic_publish("", QUEUE, b"one", BasicProperties(delivery_mode=2))
        connection.tpc_prepare()


@pytest.mark.rule("REPL-3")
def test_a_deposed_leader_tells_operators_nothing_from_memory(brokers: ReplicaBrokers) -> None:
    leader = brokers.leader()
    prepared(leader)
    assert [row["state"] for row in ask(leader.data_dir, "tx.list")] == ["prepared"]
    leader.signal(signal.SIGSTOP)
    answers: dict[str, object] = {}

    def look(command: str) -> None:
        try:
            answers[command] = ask(leader.data_dir, command)
        except AdminError as error:
            answers[command] = error

    commands = ("tx.list", "half.list", "progress.list", "hold.list")
    asking = [threading.Thread(target=look, args=(command,), daemon=True) for command in commands]
    for thread in asking:
        thread.start()
    brokers.leader(but=leader)
    assert not answers
    leader.signal(signal.SIGCONT)
    for thread in asking:
        thread.join(60)
    told = {command: answers.get(command, "no answer") for command in commands}
    assert {command: answer for command, answer in told.items() if not isinstance(answer, AdminError)} == {}


@pytest.mark.rule("REPL-3")
@pytest.mark.parametrize("protocol", ["remoting", "grpc"])
def test_a_deposed_leader_refuses_no_decision_about_a_half_message_from_memory(
    protocol: str, nats: NatsNodes, tmp_path: Path
) -> None:
    ports = RocketmqPorts()
    config = tmp_path / "broker.toml"
    config.write_text(ports.config, encoding="utf-8")
    url = f"nats://127.0.0.1:{nats.ports[0]}/half-{protocol}?replicas=1"
    with ReplicaBrokers(tmp_path, url, 1, "--config", str(config)) as first, contextlib.ExitStack() as stack:
        leader = first.leader()
        other = stack.enter_context(ReplicaBrokers(tmp_path / "b", url, 1, name="other"))
        calls: Calls = RemotingCalls(4) if protocol == "remoting" else GrpcCalls("shop")
        wire = Wire(ports.broker_port if protocol == "remoting" else ports.grpc, calls)
        with connect(leader.url) as link, link.channel() as channel:
            kind: dict[str, FieldValue] = {"x-partitions": 4, "x-message-type": "mixed"}
            channel.exchange_declare(TOPIC, "x-partitioned", durable=True, arguments=kind)
        wire.exchange([Asked(SEND, "0001")], list[object]().append)
        leader.signal(signal.SIGSTOP)
        answers: list[object] = []

        def decide() -> None:
            try:
                wire.exchange([Asked(COMMIT, "unknown", 77)], answers.append, all_answered=True)
            except OSError as error:
                answers.append(error)

        asking = threading.Thread(target=decide, daemon=True)
        asking.start()
        other.leader()
        leader.signal(signal.SIGCONT)
        asking.join(60)
        (answer,) = answers
        assert isinstance(answer, OSError), f"it answers: {answer}"


@pytest.mark.rule("REPL-6")
def test_without_the_log_nothing_is_confirmed_or_delivered_until_it_is_back(nats: NatsNodes, tmp_path: Path) -> None:
    url = f"nats://127.0.0.1:{nats.ports[0]}/patient?replicas=1"
    patient = ReplicaBrokers(tmp_path, url, 1)
    patient.nodes[0].environment["ESCROWMQ_REPLICATION_LEASE_SECONDS"] = "600"
    with patient as brokers:
        waits_for_the_log(brokers.leader(), nats)


def waits_for_the_log(leader: ReplicaBroker, nats: NatsNodes) -> None:
    address = pika.ConnectionParameters("127.0.0.1", leader.port, blocked_connection_timeout=60)
    consuming, publishing = pika.BlockingConnection(address), pika.BlockingConnection(address)
    consumer, publisher = consuming.channel(), publishing.channel()
    consumer.queue_declare(QUEUE, durable=True)
    got: list[bytes] = []
    consumer.basic_consume(QUEUE, lambda *delivery: got.append(delivery[3]), auto_ack=True)
    nats.freeze(0)
    try:
        wait_until(lambda: leader.standing().get("silent"), 60, "silence")
        publisher.basic_publish("", QUEUE, b"transient")
        confirmed = threading.Thread(target=publisher.confirm_delivery, daemon=True)
        confirmed.start()
        consuming.process_data_events(1)
        assert got == []
        assert confirmed.is_alive(), "even confirm.select-ok waits"
    finally:
        nats.thaw(0)
    wait_until(lambda: consuming.process_data_events(0.05) or got, 60, "the delivery")
    confirmed.join(60)
    assert not confirmed.is_alive()
    assert leader.standing()["role"] == "leader"
    consuming.close()
    publishing.close()


@pytest.mark.rule("REPL-6")
def test_clients_of_a_leader_that_is_cut_off_are_disconnected_and_find_the_next_one(
    nats: NatsNodes, tmp_path: Path
) -> None:
    with relayed(nats.ports[0]) as relay, contextlib.ExitStack() as stack:
        near, far = (f"nats://127.0.0.1:{port}/cut-off?replicas=1" for port in (nats.ports[0], relay.port))
        leader = stack.enter_context(ReplicaBrokers(tmp_path, far, 1)).leader()
        other = stack.enter_context(ReplicaBrokers(tmp_path / "b", near, 1, name="other")).nodes[0]
        wait_until(lambda: other.standing().get("leader") == leader.node, 60, "a standby")
        addresses = [pika.ConnectionParameters("127.0.0.1", node.port, heartbeat=0) for node in (leader, other)]
        connection = pika.BlockingConnection(addresses)
        channel = connection.channel()
        channel.queue_declare(QUEUE, durable=True)
        channel.confirm_delivery()
        relay.hold()
        with pytest.raises(AMQPError):
            channel.basic_publish("", QUEUE, b"one", PERSISTENT)
        with pytest.raises(AMQPError):
            pika.BlockingConnection(addresses[:1])
        wait_until(lambda: serves(other), 60, "the next leader")
        with contextlib.closing(pika.BlockingConnection(addresses)) as again:
            again.channel().queue_declare(QUEUE, durable=True)
        relay.release()
        wait_until(lambda: leader.standing().get("role") == "standby", 60, "the former leader to follow")


def test_a_leader_without_the_log_ends_at_a_second_signal(brokers: ReplicaBrokers, nats: NatsNodes) -> None:
    leader = brokers.leader()
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", leader.port))
    nats.freeze(0)
    try:
        wait_until(lambda: leader.standing().get("silent"), 60, "silence")
        leader.signal(signal.SIGTERM)
        wait_until(lambda: "SIGTERM: stopping" in leader.log(), 60, "the first signal")
        leader.signal(signal.SIGTERM)
        assert leader.wait() == 70
    finally:
        nats.thaw(0)
    with contextlib.suppress(AMQPError):
        connection.close()


def test_a_node_that_starts_empty_gets_a_snapshot_and_what_follows(brokers: ReplicaBrokers) -> None:
    leader = brokers.leader()
    with Producer(brokers) as producer:
        producer.more()
        ask(leader.data_dir, "journal.snapshot")
        wait_until(lambda: all(snapshots(node) for node in brokers.nodes), 60, "the snapshot on all nodes")
        producer.more()
    brokers.followed()
    empty = next(node for node in brokers.nodes if node is not leader)
    empty.kill()
    shutil.rmtree(empty.data_dir)
    empty.begin()
    wait_until(lambda: snapshots(empty) == snapshots(leader), 60, "the snapshot on the empty node")
    brokers.followed()
    others = [node for node in brokers.nodes if node is not empty]
    for node in others:
        node.kill()
    assert brokers.leader() is empty
    assert set(producer.confirmed) <= consumed(brokers)
    for node in others:
        node.begin()
    assert_equal_journals(brokers)


def snapshots(node: ReplicaBroker) -> dict[str, bytes]:
    """Return the snapshots of a node."""
    return {path.name: path.read_bytes() for path in node.data_dir.glob("*.snapshot")}
