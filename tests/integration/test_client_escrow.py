"""Bulk reading and deciding with the client, against a real broker (PIPE-1, PIPE-2)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import escrowmq.client as mq
from escrowmq.client import Channel, Connection, Xid
from escrowmq.client.escrow import Escrow, Settle
from tests.broker import BrokerProcess, running_broker

PERSISTENT = b"\x10\x00\x02"
FORMAT = 7


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[Connection]:
    with mq.connect(broker.url, timeout=20) as connection:
        yield connection
        assert connection.tpc_recover() == [], "a test has left a branch behind"


@pytest.fixture
def channel(connection: Connection) -> Channel:
    channel = connection.channel()
    channel.confirm_delivery()
    return channel


@pytest.fixture
def escrow(connection: Connection) -> Escrow:
    return Escrow(connection)


@pytest.fixture
def queue(channel: Channel, request: pytest.FixtureRequest) -> Iterator[str]:
    name = str(request.node.name)
    channel.queue_declare(name, durable=True)
    channel.publish_many("", name, [b"%d" % number for number in range(100)], PERSISTENT)
    yield name
    channel.queue_delete(name)


def bodies(escrow: Escrow, queue: str, first: int, end: int, most_bytes: int = 1 << 20) -> list[bytes]:
    return [m.body for block in escrow.blocks(queue, "g", first, end, most_bytes) for m in block.bulk.messages()]


def branch(escrow: Escrow, queue: str, gtrid: bytes, bqual: bytes, body: bytes = b"") -> Xid:
    xid = Xid(FORMAT, gtrid, bqual)
    escrow.start(xid, 60).basic_publish("", queue, body or bqual, PERSISTENT)
    escrow.end(xid)
    assert escrow.prepare(xid)
    return xid


@pytest.mark.rule("PIPE-1")
def test_held_read_in_blocks_and_settled(escrow: Escrow, queue: str) -> None:
    assert [state[:4] for state in escrow.describe(queue, queue)] == [("classic", 1, 101, 100)] * 2
    assert escrow.hold(queue, "g", 60) == (1, 61, 60, 1)
    assert escrow.hold(queue, "g", until=71) == (1, 71, 10, 1)
    wanted = [b"%d" % number for number in range(70)]
    for most in (1, 100, 1 << 20):
        assert bodies(escrow, queue, 1, 71, most) == wanted
    escrow.settle(Settle(queue, "g", 41))
    blocks = list(escrow.blocks(queue, "g", 1, 71))
    assert (blocks[0].first, blocks[-1].next) == (41, 71)
    assert bodies(escrow, queue, 71, 71) == []
    assert escrow.release(queue, "g") == 30
    assert escrow.hold(queue, "g") == (71, 71, 0, 41)
    assert queue in escrow.queues()


def test_the_streams_of_a_topic_are_named(escrow: Escrow, channel: Channel) -> None:
    for partitions in (2, 3):
        arguments = {"x-partitions": partitions}
        channel.exchange_declare("topic", "x-partitioned", durable=True, arguments=arguments)
        streams = escrow.streams("topic")
        assert streams == [f"topic-{i}" for i in range(partitions)]
        assert {state.kind for state in escrow.describe(*streams)} == {"stream"}
    assert escrow.streams("none") == []


def test_a_refusal_costs_nothing_but_its_channel(escrow: Escrow, queue: str) -> None:
    with pytest.raises(mq.NotFound, match="no queue 'none'"):
        escrow.describe("none")
    with pytest.raises(mq.PreconditionFailed, match="cannot settle below 5"):
        escrow.settle(Settle(queue, "g", 5))
    assert escrow.describe(queue)[0].ready == 100


@pytest.mark.rule("PIPE-2")
def test_one_decision(escrow: Escrow, queue: str, channel: Channel) -> None:
    escrow.hold(queue, "g", 100)
    settle = Xid(FORMAT, b"t", b"settle")
    assert escrow.enlist(settle, [Settle(queue, "g", 50)], 60)
    assert escrow.enlist(settle, [Settle(queue, "g", 101)], 60), "the branch can be joined"
    branch(escrow, queue, b"t", b"1")
    branch(escrow, queue, b"t", b"loser")
    branch(escrow, queue, b"t", b"2")
    assert escrow.prepare(settle)
    assert escrow.prepare(settle), "the branch is already prepared"
    assert not escrow.enlist(settle, [Settle(queue, "g", 101)], 60), "the branch is prepared"
    for _ in range(2):
        escrow.decide(FORMAT, b"t", [b"2", b"1", b"settle"], "app", 4)
        assert escrow.progress("app") == 4
        assert channel.message_count(queue) == 2
    assert escrow.hold(queue, "g").settled == 101
    escrow.hold(queue, "h", 2)
    assert [m.body for block in escrow.blocks(queue, "h", 1, 3) for m in block.bulk.messages()] == [b"2", b"1"]


@pytest.mark.rule("PIPE-2")
def test_what_cannot_be_decided_happens_not_at_all(escrow: Escrow, queue: str, channel: Channel) -> None:
    there = branch(escrow, queue, b"u", b"1")
    with pytest.raises(mq.NotFound, match="no branch"):
        escrow.decide(FORMAT, b"u", [b"1", b"gone"], "other", 1)
    assert escrow.progress("other") is None
    assert channel.message_count(queue) == 100
    assert escrow.rollback(there)
    assert not escrow.rollback(there)
    assert not escrow.prepare(there)


def test_a_branch_without_work_is_not_to_be_committed(escrow: Escrow) -> None:
    xid = Xid(FORMAT, b"v", b"1")
    escrow.start(xid, 60)
    with pytest.raises(mq.NotAllowed):
        Escrow(escrow.connection).start(xid, 60)
    escrow.end(xid)
    assert not escrow.prepare(xid)


def test_the_end_of_a_branch_says_why_its_channel_was_closed(escrow: Escrow) -> None:
    xid = Xid(FORMAT, b"w", b"1")
    channel = escrow.start(xid, 60)
    channel.basic_publish("no-such-exchange", "", b"", PERSISTENT)
    escrow.connection.wait(lambda: channel.is_closed, 20)  # the refusal arrives between two calls
    with pytest.raises(mq.NotFound, match="no-such-exchange"):
        escrow.end(xid)


def test_a_queue_that_is_declared_again_is_another_one(escrow: Escrow, channel: Channel) -> None:
    idents = set()
    for _ in range(2):
        channel.queue_declare("again", durable=True)
        idents |= {escrow.describe("again")[0].ident for _ in range(2)}
        channel.queue_delete("again")
    assert len(idents) == 2
