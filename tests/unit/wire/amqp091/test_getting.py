"""Answers to basic.get, single and in a run, compared with the codec's."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.frames import method_frame
from escrowmq.wire.amqp091.getting import RUN
from escrowmq.wire.endpoint import EndpointLimits
from tests.harness.client import SimClient
from tests.harness.server import Options, SimServer


@pytest.fixture
def client() -> SimClient:
    client = SimClient(SimServer(MemoryStorage(random.Random(1))))
    client.open_channel(1)
    return client


def answers(client: SimClient, count: int, *, together: bool, no_ack: bool = False) -> list[tuple[object, ...]]:
    """Return the answers to `count` gets of the queue `q`: tag, redelivered, address, messages left and body."""
    frame = method_frame(1, spec.BasicGet("q", no_ack))
    for part in [frame * count] if together else [frame] * count:
        client.send_bytes(part)
    found: list[tuple[object, ...]] = []
    for message in client.inbox:
        method = message.method
        if isinstance(method, spec.BasicGetOk):
            address = (method.exchange, method.routing_key)
            found.append((method.delivery_tag, method.redelivered, address, method.message_count, message.body))
        else:
            assert isinstance(method, spec.BasicGetEmpty)
            found.append(())
    client.inbox.clear()
    return found


BODIES = [b"a", b"bb", b"", b"c" * 5000, b"d" * 100_000, b"e"]


@pytest.mark.parametrize("no_ack", [False, True])
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_gets_in_a_run_have_the_same_answers_as_single_gets(client: SimClient, kind: str, *, no_ack: bool) -> None:
    client.declare(1, "q", arguments={"x-queue-type": kind})
    found = []
    for together in (False, True):
        client.publish(1, "q", *BODIES)
        found.append(answers(client, len(BODIES) + 2, together=together, no_ack=no_ack))
    one_by_one, run = found
    count = len(BODIES)
    left = range(count - 1, -1, -1)
    expected = [(1 + i, False, ("", "q"), left[i], body) for i, body in enumerate(BODIES)]
    assert one_by_one == [*expected, (), ()]
    assert run == [*((tag + count, *rest) for tag, *rest in expected), (), ()]


def test_a_long_run_is_answered_in_parts(client: SimClient) -> None:
    client.declare(1, "q")
    bodies = [b"%d" % i for i in range(2 * RUN + 3)]
    client.publish(1, "q", *bodies)
    found = answers(client, len(bodies) + 1, together=True)
    assert [one[-1] for one in found[:-1]] == bodies
    assert found[-1] == ()


def test_requeued_messages_are_marked(client: SimClient) -> None:
    client.declare(1, "q")
    client.publish(1, "q", b"a", b"b", b"c")
    answers(client, 2, together=True)
    client.send(1, spec.BasicNack(2, True, True))
    assert [one[1] for one in answers(client, 3, together=True)] == [True, True, False]


def test_expired_messages_are_not_counted(client: SimClient) -> None:
    client.declare(1, "q", arguments={"x-message-ttl": 0})
    client.publish(1, "q", b"a", b"b")
    assert answers(client, 3, together=True) == [(), (), ()]


@pytest.mark.rule("DUR-4")
@pytest.mark.parametrize("no_ack", [False, True])
def test_gets_before_one_that_cannot_be_read_are_answered(*, no_ack: bool) -> None:
    storage = MemoryStorage(random.Random(1))
    client = SimClient(SimServer(storage, Options(resident_limit=1, segment_bytes=1000)))
    client.open_channel(1)
    client.declare(1, "q", durable=True)
    bodies = [b"%d" % i * 10_000 for i in range(4)]
    for body in bodies:
        client.publish(1, "q", body)
        client.server.run_disk()
    for name in storage.names():
        if bodies[2] in storage.read(name, 0, storage.size(name)):
            storage.faults.unreadable[name] = set(range(20))
    client.send_bytes(method_frame(1, spec.BasicGet("q", no_ack)) * 4)
    close = client.inbox.pop()
    assert [message.body for message in client.inbox] == bodies[:2]
    assert isinstance(close.method, spec.ChannelClose)
    assert (close.method.reply_code, client.server.broker.directory.vhost("/").queue("q").ready) == (
        541,
        2 if no_ack else 4,
    )


def test_the_permission_is_checked_again_when_the_rules_change(client: SimClient) -> None:
    client.declare(1, "q")
    client.publish(1, "q", b"a", b"b")
    assert len(answers(client, 1, together=True)) == 1
    broker = client.server.broker
    broker.directory.record_access(broker.access.set_permission("guest", "/", ".*", ".*", "nothing"))
    client.send_bytes(method_frame(1, spec.BasicGet("q")) * 3)
    assert client.expect(1, spec.ChannelClose).reply_code == 403
    assert not client.inbox


def test_a_queue_that_was_declared_again_is_used(client: SimClient) -> None:
    client.declare(1, "q")
    client.publish(1, "q", b"old")
    assert len(answers(client, 1, together=True)) == 1
    client.call(1, spec.QueueDelete("q"), spec.QueueDeleteOk)
    client.declare(1, "q")
    client.publish(1, "q", b"new")
    assert [one[-1] for one in answers(client, 1, together=True)] == [b"new"]


def test_an_empty_name_means_the_queue_declared_last(client: SimClient) -> None:
    found = []
    for name in ("one", "two"):
        client.declare(1, name)
        client.publish(1, name, name.encode())
        client.send(1, spec.BasicGet("", True))
        found.append(client.expect(1, spec.BasicGetOk).routing_key)
    assert found == ["one", "two"]


@pytest.mark.parametrize("together", [False, True])
def test_a_long_history_does_not_make_a_frame_too_long(*, together: bool) -> None:
    server = SimServer(MemoryStorage(random.Random(1)), Options(limits=EndpointLimits(frame_max=4096)))
    client = SimClient(server)
    client.open_channel(1)
    names = [f"{i:03}" * 60 for i in range(20)]
    for name, target in pairwise([*names, "q"]):
        routes = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": target}
        client.declare(1, name, arguments={"x-message-ttl": 1, **routes})
    client.declare(1, "q")
    client.publish(1, names[0], b"a", b"b")
    for _ in names:
        server.now += 10
        server.end_turn()
    gets = [method_frame(1, spec.BasicGet("q", True))] * 2
    for part in [b"".join(gets)] if together else gets:
        server.receive(client.port, part)
        server.end_turn()
    assert max(len(frame) for frame in frames(bytes(client.port.sent))) <= 4096
    client.collect()
    assert [message.body for message in client.inbox] == [b"a", b"b"]


def frames(data: bytes) -> list[bytes]:
    found = []
    while data:
        size = 8 + int.from_bytes(data[3:7], "big")
        found.append(data[:size])
        data = data[size:]
    return found


def returning(*, commit: bool) -> tuple[SimServer, SimClient]:
    """Return a server on which deliveries of `q` return in pieces, because a client has lost its connection, or has
    requeued them in a transaction that commits. The second client has asked for one of them.
    """
    server = SimServer(MemoryStorage(random.Random(1)), Options(return_piece=2, large_branch=5))
    first, second = SimClient(server, "first"), SimClient(server, "second")
    first.open_channel(1)
    second.open_channel(1)
    first.declare(1, "q")
    count = 1500 if commit else 20
    first.publish(1, "q", *[b"%d" % i for i in range(count)])
    if commit:
        first.call(1, spec.TxSelect(), spec.TxSelectOk)
    first.send(1, *[spec.BasicGet("q")] * count)
    while server.broker.directory.vhost("/").queue("q").ready:
        server.end_turn()
    server.broker.engine.requests.turn = 1
    if commit:
        first.send(1, spec.BasicNack(0, True, True))
        server.receive(first.port, method_frame(1, spec.TxCommit()))
        for _ in range(100):
            if server.broker.directory.vhost("/").queue("q").returning:
                break
            server.end_one_turn()
    else:
        server.lose(first.port)
    server.receive(second.port, method_frame(1, spec.BasicGet("q")))
    return server, second


@pytest.mark.rule("ORD-2", "FAIR-1")
@pytest.mark.parametrize("commit", [False, True])
def test_a_get_waits_while_deliveries_return_in_pieces(*, commit: bool) -> None:
    server, second = returning(commit=commit)
    assert server.broker.directory.vhost("/").queue("q").returning, "the get has not returned them all in one piece"
    for _ in range(200):
        server.end_turn()
    server.run_disk()
    second.collect()
    (answer,) = second.inbox
    assert isinstance(answer.method, spec.BasicGetOk)
    assert answer.body == b"0"
