"""A standby serves clients that only read streams, and nobody else."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from escrowmq.admin.socket.client import ask
from escrowmq.client import (
    AccessRefused,
    AuthenticationError,
    Channel,
    Connection,
    ConnectionClosed,
    Properties,
    Timeout,
    connect,
)
from escrowmq.client.escrow import Escrow
from escrowmq.client.reads import PLAN, PROPERTY, STANDBY, TASK
from escrowmq.server.replica.reading_process import MODULE
from escrowmq.wire.amqp091.table import FieldTable
from tests.broker import wait_until
from tests.replicas import ReplicaBroker, ReplicaBrokers, journal_files, replicas_on_nats, standby_of

TTL_MS = 8000
PERSISTENT = b"\x10\x00\x02"


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaBrokers]:
    with replicas_on_nats(tmp_path_factory.mktemp("reading"), "reading") as found:
        yield found


@pytest.fixture
def standby(brokers: ReplicaBrokers) -> ReplicaBroker:
    return standby_of(brokers)


def put(brokers: ReplicaBrokers, queue: str, *bodies: bytes) -> None:
    """Have messages of a stream confirmed by the leader."""
    put_on(brokers.leader(), queue, *bodies)


def put_on(leader: ReplicaBroker, queue: str, *bodies: bytes) -> None:
    with connect(leader.url) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "stream"})
        channel.confirm_delivery()
        channel.publish_many("", queue, list(bodies), PERSISTENT)


def publish(channel: Channel, queue: str) -> None:
    """Publish, and wait for the confirm."""
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"lost")


def reader(node: ReplicaBroker, kind: str = PLAN) -> Connection:
    return connect(node.url, client_properties={PROPERTY: kind})


def read(node: ReplicaBroker, queue: str) -> int:
    """Return the number of messages of a stream that a node has."""
    with reader(node) as connection:
        escrow = Escrow(connection)
        (state,) = escrow.describe(queue)
        return sum(block.next - block.first for block in escrow.blocks(queue, "", state.first, state.next))


def read_soon(node: ReplicaBroker, queue: str) -> int:
    """Return the same, as soon as the node answers."""
    found = [-1]

    def answers() -> bool:
        with contextlib.suppress(ConnectionClosed, Timeout):
            found[0] = read(node, queue)
        return found[0] >= 0

    wait_until(answers, 60, "an answer")
    return found[0]


def copies(node: ReplicaBroker) -> set[int]:
    """Return the processes that serve copies of a node."""
    pid = node.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    commands = {int(child): Path(f"/proc/{child}/cmdline").read_bytes() for child in children}
    return {child for child, command in commands.items() if MODULE.encode() in command}


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_all_that_was_confirmed_before_is_read_from_a_standby(brokers: ReplicaBrokers, standby: ReplicaBroker) -> None:
    put(brokers, "fresh")
    for count in range(1, 4):
        put(brokers, "fresh", b"%d" % count)
        with reader(standby) as connection:
            assert connection.server_properties[STANDBY] is True
            (state,) = Escrow(connection).describe("fresh")
            assert (state.kind, state.first, state.next) == ("stream", 1, count + 1)


def test_each_client_that_only_reads_is_served_by_a_copy_that_is_new_enough(
    brokers: ReplicaBrokers, standby: ReplicaBroker
) -> None:
    put(brokers, "shared", b"1")
    with reader(standby) as first, reader(standby), reader(standby, TASK):
        pids = copies(standby)
        assert len(pids) == 1  # nothing has been confirmed meanwhile
        put(brokers, "shared", b"2")
        with reader(standby, TASK) as task:
            assert Escrow(task).describe("shared")[0].next == 2
        with reader(standby) as second:
            assert Escrow(second).describe("shared")[0].next == 3
            assert pids < copies(standby)
        with reader(standby, TASK) as task:
            assert Escrow(task).describe("shared")[0].next == 3
        assert Escrow(first).describe("shared")[0].next == 2
    wait_until(lambda: not pids & copies(standby), 60, "the end of the older copy without clients")


def test_a_standby_reads_its_files_without_changing_them(brokers: ReplicaBrokers, standby: ReplicaBroker) -> None:
    put(brokers, "unchanged", *(b"%d" % i for i in range(500)))
    with reader(standby) as connection:
        (block,) = Escrow(connection).blocks("unchanged", "", 1, 501)
        assert (block.first, block.next) == (1, 501)
        put(brokers, "unchanged", b"more")
        brokers.followed()
        expected = journal_files(brokers.leader().data_dir)
        assert journal_files(standby.data_dir) == expected


@pytest.mark.parametrize("what", ["publish", "declare", "delete", "consume", "get", "begin", "reserve"])
def test_nothing_but_reads_is_served_by_a_standby(brokers: ReplicaBrokers, standby: ReplicaBroker, what: str) -> None:
    stream = f"readonly.{what}"
    put(brokers, stream, b"1")
    attempts: dict[str, Callable[[Channel, Escrow], object]] = {
        "publish": lambda channel, _: publish(channel, stream),
        "declare": lambda channel, _: channel.queue_declare("another", durable=True),
        "delete": lambda channel, _: channel.queue_delete(stream),
        "consume": lambda channel, _: channel.basic_consume(stream, lambda *_: None),
        "get": lambda channel, _: channel.basic_get(stream),
        "begin": lambda _, escrow: escrow.decide(1, b"g", [], "application", 1),
        "reserve": lambda _, escrow: escrow.hold(stream, "group", most=1),
    }
    with reader(standby) as connection, pytest.raises(AccessRefused, match="a standby only serves reads of streams"):
        attempts[what](connection.channel(), Escrow(connection))
    assert read(standby, stream) == 1


def test_nothing_happens_by_itself_in_a_copy(brokers: ReplicaBrokers, standby: ReplicaBroker) -> None:
    """The leader dead-letters an expired message into a stream. A copy that did it, too, could do it elsewhere."""
    put(brokers, "expired")
    with connect(brokers.leader().url) as connection:
        channel = connection.channel()
        to_stream: FieldTable = {
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "expired",
            "x-message-ttl": TTL_MS,
        }
        channel.queue_declare("expiring", durable=True, arguments=to_stream)
        channel.confirm_delivery()
        channel.basic_publish("", "expiring", b"1", Properties(delivery_mode=2))
        leader = Escrow(connection)
        with reader(standby) as copy:
            assert Escrow(copy).describe("expired", "expiring")[1].ready == 1
            wait_until(lambda: leader.describe("expired")[0].next == 2, 60, "the end of the message")
            time.sleep(1)
            assert Escrow(copy).describe("expired")[0].next == 1
    assert read(standby, "expired") == 1


def test_a_standby_checks_the_password_and_the_permissions_of_a_client_that_only_reads(
    brokers: ReplicaBrokers, standby: ReplicaBroker
) -> None:
    put(brokers, "secret", b"1")
    leader = brokers.leader().data_dir
    ask(leader, "user.add", name="nobody", password="pw", tags=[])
    ask(leader, "permission.set", user="nobody", vhost="/", configure="", write="", read="^other$")
    with pytest.raises(AuthenticationError):
        connect(standby.url, user="guest", password="wrong", client_properties={PROPERTY: PLAN})
    with (
        connect(standby.url, user="nobody", password="pw", client_properties={PROPERTY: PLAN}) as connection,
        pytest.raises(AccessRefused, match="refused for user 'nobody'"),
    ):
        Escrow(connection).describe("secret")


def test_a_client_that_does_not_only_read_is_refused_with_the_address_of_the_leader(
    brokers: ReplicaBrokers, standby: ReplicaBroker
) -> None:
    for properties in ({}, {PROPERTY: "everything"}, {PROPERTY: 1}):
        with pytest.raises(ConnectionClosed, match=f"the leader is amqp://127.0.0.1:{brokers.leader().port}"):
            connect(standby.url, client_properties=properties)


def test_reads_go_on_when_another_node_takes_over(brokers: ReplicaBrokers, standby: ReplicaBroker) -> None:
    """The standby may be the one that takes over. It then ends its copy, and serves the client itself."""
    put(brokers, "taken", b"1", b"2")
    assert read(standby, "taken") == 2
    leader = brokers.leader()
    os.kill(leader.process.pid, signal.SIGSTOP)
    try:
        assert read_soon(standby, "taken") == 2
        next_leader = brokers.leader(but=leader)
        put_on(next_leader, "taken", b"3")
        assert read_soon(standby, "taken") == 3
        if next_leader is standby:
            wait_until(lambda: not copies(standby), 60, "the end of the copies")
    finally:
        os.kill(leader.process.pid, signal.SIGCONT)
        wait_until(lambda: leader.standing().get("role") == "standby", 60, "the old leader to follow")


def test_copies_end_with_their_standby(brokers: ReplicaBrokers, standby: ReplicaBroker) -> None:
    put(brokers, "ended", b"1")
    with reader(standby) as connection:
        pids = copies(standby)
        assert pids
        standby.kill()
        wait_until(lambda: not any(map(is_alive, pids)), 60, "the end of the copies")
        with pytest.raises(ConnectionClosed):
            Escrow(connection).describe("ended")
    standby.begin()
