"""Sessions of AMQP 0-10 that outlive their connection, on the real process: cut anywhere, and attached again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from escrowmq.wire.amqp010.codec.frames import FRAME_HEAD, HEAD_SIZE, control_frame
from escrowmq.wire.amqp010.codec.spec import (
    DetachCode,
    ExecutionSync,
    MessageAccept,
    QueueDeclare,
    QueueQuery,
    SessionAttach,
    SessionAttached,
    SessionCommandPoint,
    SessionCompleted,
    SessionDetach,
    SessionDetached,
    SessionExpected,
    SessionFlush,
    SessionKnownCompleted,
    SessionRequestTimeout,
    SessionTimeout,
)
from tests.broker import BrokerProcess, running_broker
from tests.harness.amqp010_client import SocketClient
from tests.harness.amqp010_sessions import PIECE, KeptClient

BODIES: Final = (b"one", b"two in several frames" * 4, b"three")
AGAIN: Final = SessionFlush(expected=True, confirmed=True, completed=True)
"""The control that tells the client that the broker has kept its session."""
NEW: Final = SessionCommandPoint(0, 0)
"""The control that tells the client that its session is a new one."""
_numbers = count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path_factory.mktemp("sessions")) as running:
        yield running


@pytest.fixture
def name() -> str:
    """A name for a queue and a session. All have the same length."""
    return f"q{next(_numbers):06}"


def script(client: KeptClient, queue: str) -> bytes:
    """Return the frames of a declaration, three publishes and a sync."""
    frames = [client.make(QueueDeclare(queue, durable=True))]
    frames += [client.message(queue, body) for body in BODIES]
    return b"".join([*frames, client.make(ExecutionSync())])


def cuts_of(stream: bytes) -> list[int]:
    """Return the places around the beginning, the head and the end of each frame."""
    found, at = {len(stream)}, 0
    while at < len(stream):
        size = FRAME_HEAD.unpack_from(stream, at)[2]
        found |= {at, at + 1, at + HEAD_SIZE, at + size - 1}
        at += size
    return sorted(found)


class Unconnected(KeptClient):
    """Makes commands only."""

    def __init__(self) -> None:
        self.commands = []


CUTS: Final = cuts_of(script(Unconnected(), "q000000"))


def contents(broker: BrokerProcess, queue: str) -> list[bytes]:
    """Take all messages of a queue."""
    with SocketClient(broker.port, b"reader") as reader:
        reader.subscribe(queue)
        return list(iter(lambda: reader.take(queue), None))


def accepted(client: KeptClient) -> list[int]:
    """Wait for the acceptances of the three publishes. Return their numbers, in the order of the acceptances."""
    found: list[int] = []
    while len(found) < len(BODIES):
        while not client.others:
            client.read()
        for first, last in client.others.pop(0).transfers:
            found += range(first, last + 1)
    assert not client.others
    return found


@pytest.mark.rule("EXC-1", "ORD-1", "MSG-1")
@pytest.mark.parametrize("cut", CUTS)
def test_commands_take_effect_once_wherever_the_connection_is_cut(broker: BrokerProcess, name: str, cut: int) -> None:
    client = KeptClient(broker.port, name.encode())
    client.link.send(script(client, name)[:cut])
    client.lose()
    client.resume()
    client.settle()
    assert accepted(client) == [1, 2, 3]
    client.lose()
    assert contents(broker, name) == list(BODIES)


@pytest.mark.rule("EXC-1")
@pytest.mark.parametrize("cut", CUTS[::5])
def test_a_client_may_go_on_with_the_command_that_the_broker_expects(
    broker: BrokerProcess, name: str, cut: int
) -> None:
    client = KeptClient(broker.port, name.encode())
    client.link.send(script(client, name)[:cut])
    client.lose()
    client.attach()
    client.link.control(SessionFlush(expected=True))
    while not isinstance(answer := client.read().operation, SessionExpected):
        pass
    ((first, _),) = answer.commands or ((0, 0),)
    client.expect_rest()
    client.link.send(client.repeat(first))
    client.settle()
    assert accepted(client) == [1, 2, 3]
    client.lose()
    assert contents(broker, name) == list(BODIES)


@pytest.mark.rule("EXC-1")
def test_commands_take_effect_once_although_each_replay_is_cut(broker: BrokerProcess, name: str) -> None:
    """The connection is lost in the first answer to the attach, in the controls of the client, and in the commands."""
    client = KeptClient(broker.port, name.encode())
    client.link.send(script(client, name)[: CUTS[len(CUTS) // 2]])
    stream = control_frame(1, SessionExpected(((0, 0),))) + client.repeat()
    for cut in cuts_of(stream)[:-1:3]:
        client.lose()
        assert client.attach() == AGAIN
        client.link.send(stream[:cut])
    client.lose()
    client.resume()
    client.settle()
    assert accepted(client) == [1, 2, 3]
    client.lose()
    assert contents(broker, name) == list(BODIES)


@pytest.mark.rule("MSG-1")
def test_the_first_half_of_a_message_vanishes_with_its_connection(broker: BrokerProcess, name: str) -> None:
    """Its number may then belong to another message, of which every octet is the client's."""
    client = KeptClient(broker.port, name.encode())
    client.do(QueueDeclare(name, durable=True))
    whole = client.message(name, BODIES[1])
    client.link.send(whole[: -PIECE // 2])
    client.lose()
    assert contents(broker, name) == []
    client.commands.pop()
    client.message(name, b"another" * 20)
    client.resume(1)
    client.settle()
    client.lose()
    assert contents(broker, name) == [b"another" * 20]


@pytest.mark.rule("EXC-1", "ORD-1")
@pytest.mark.parametrize("received", range(len(BODIES) + 1))
def test_each_delivery_arrives_once_wherever_the_connection_is_lost(
    broker: BrokerProcess, name: str, received: int
) -> None:
    client = KeptClient(broker.port, name.encode())
    client.do(QueueDeclare(name, durable=True))
    client.subscribe(name)
    with SocketClient(broker.port, b"publisher") as publisher:
        for body in BODIES:
            publisher.publish(name, body)
    client.read_transfers(received)
    client.lose()
    client.transfers, client.received = client.transfers[:received], min(received, client.received)
    assert contents(broker, name) == []  # they belong to the session, which is kept
    client.resume()
    assert client.read_transfers(len(BODIES)) == list(BODIES)
    client.do(MessageAccept(((0, len(BODIES) - 1),)))
    client.link.control(SessionDetach(client.name))
    while not isinstance(client.read().operation, SessionDetached):
        pass
    assert contents(broker, name) == []


def test_what_a_session_holds_returns_when_its_timeout_is_over(broker: BrokerProcess, name: str) -> None:
    client = KeptClient(broker.port, name.encode(), seconds=1)
    client.do(QueueDeclare(name, durable=True))
    client.subscribe(name)
    with SocketClient(broker.port, b"publisher") as publisher:
        publisher.publish(name, b"one")
    client.read_transfers(1)
    client.lose()
    heir = KeptClient(broker.port, b"heir of " + client.name)
    heir.subscribe(name)
    assert heir.read_transfers(1) == [b"one"]
    assert client.attach() == NEW


def test_another_connection_may_take_the_session_by_force(broker: BrokerProcess, name: str) -> None:
    client = KeptClient(broker.port, name.encode())
    stream = script(client, name)
    client.link.send(stream[: len(client.commands[0] + client.commands[1])])
    robbed = client.link
    client.resume(force=True)
    client.settle()
    assert accepted(client) == [1, 2, 3]
    while not isinstance(lost := robbed.receive().operation, SessionDetached):
        assert isinstance(lost, (SessionCompleted, MessageAccept))
    assert lost == SessionDetached(client.name, DetachCode.SESSION_BUSY)
    robbed.control(SessionAttach(b"another of " + client.name))
    robbed.expect(SessionAttached)
    robbed.close()
    client.lose()
    assert contents(broker, name) == list(BODIES)


def test_a_session_that_is_attached_is_refused_without_force(broker: BrokerProcess, name: str) -> None:
    client = KeptClient(broker.port, name.encode())
    client.link.control(SessionAttach(client.name), channel=2)
    assert client.link.expect(SessionDetached) == SessionDetached(client.name, DetachCode.SESSION_BUSY)
    client.do(ExecutionSync())


def test_a_session_that_was_detached_goes_on_over_another_channel(broker: BrokerProcess, name: str) -> None:
    client = KeptClient(broker.port, name.encode())
    client.do(QueueDeclare(name, durable=True))
    client.link.control(SessionDetach(client.name))
    assert client.link.expect(SessionDetached) == SessionDetached(client.name, DetachCode.NORMAL)
    client.link.control(SessionAttach(client.name), channel=9)
    assert client.link.expect(SessionAttached) == SessionAttached(client.name)
    assert client.link.receive() == (9, AGAIN, b"", b"")
    assert client.link.receive() == (9, SessionCompleted(((0, 0),)), b"", b"")


@pytest.mark.parametrize(("asked", "granted"), [(0, 0), (1, 1), (600, 600), (601, 600), (0xFFFFFFFF, 600)])
def test_a_timeout_is_granted_up_to_the_limit(broker: BrokerProcess, name: str, asked: int, granted: int) -> None:
    client = KeptClient(broker.port, name.encode(), seconds=asked)
    assert client.timeout == granted
    client.link.control(SessionRequestTimeout(5))
    assert client.link.expect(SessionTimeout) == SessionTimeout(5)


@pytest.mark.parametrize("later", [0, None])
def test_a_session_without_a_timeout_ends_with_its_connection(
    broker: BrokerProcess, name: str, later: int | None
) -> None:
    client = KeptClient(broker.port, name.encode(), seconds=0 if later is None else 60)
    if later is not None:
        client.link.control(SessionRequestTimeout(later))
        client.link.expect(SessionTimeout)
    client.do(QueueDeclare(name, durable=True))
    client.lose()
    assert client.attach() == NEW


def test_a_client_is_told_which_of_its_completions_are_known(broker: BrokerProcess, name: str) -> None:
    client = KeptClient(broker.port, name.encode())
    client.link.send(script(client, name))
    client.settle()
    assert accepted(client) == [1, 2, 3]
    last = client.received - 1
    client.link.control(SessionCompleted(((0, last),), timely_reply=True))
    assert client.link.expect(SessionKnownCompleted).commands == ((0, last),)
    client.link.control(SessionKnownCompleted(((0, len(client.commands) - 1),)))
    client.lose()
    client.resume(len(client.commands))
    client.do(ExecutionSync())
    assert client.received == last + 1
    client.lose()
    assert contents(broker, name) == list(BODIES)


def test_completions_are_told_once_more_to_a_client_that_has_lost_them(broker: BrokerProcess, name: str) -> None:
    client = KeptClient(broker.port, name.encode())
    client.link.send(script(client, name))
    client.settle()
    client.lose()
    client.completed.clear()
    assert client.attach() == AGAIN
    assert client.link.expect(SessionCompleted).commands == ((0, len(client.commands) - 1),)


def test_a_result_is_sent_again(broker: BrokerProcess, name: str) -> None:
    client = KeptClient(broker.port, name.encode())
    client.do(QueueDeclare(name, durable=True))
    client.do(QueueQuery(name))
    before = list(client.others)
    client.lose()
    client.others.clear()
    client.received = 0
    client.resume()
    while not client.others:
        client.read()
    assert [one.value for one in client.others] == [one.value for one in before]


def test_a_broker_that_restarts_has_no_sessions(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        client = KeptClient(broker.port, b"kept")
        client.link.send(script(client, "q"))
        client.settle()
        client.lose()
        broker.kill()
        broker.start()
        assert client.attach() == NEW
        client.link.control(SessionFlush(expected=True))
        assert client.link.expect(SessionExpected).commands == ()
        assert contents(broker, "q") == list(BODIES)
