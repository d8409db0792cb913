"""Sessions that outlive their connection: kept, attached again, replayed by both sides, stolen, refused and expired."""

from __future__ import annotations

import pytest

from escrowmq.core.queues.queue import Queue
from escrowmq.wire.amqp010.attaching import LONGEST_NAME
from escrowmq.wire.amqp010.codec.spec import (
    DetachCode,
    DtxSelect,
    ErrorCode,
    ExecutionSync,
    MessageAccept,
    SessionAttach,
    SessionAttached,
    SessionCommandPoint,
    SessionCompleted,
    SessionConfirmed,
    SessionDetach,
    SessionDetached,
    SessionExpected,
    SessionFlush,
    SessionGap,
    SessionRequestTimeout,
    SessionTimeout,
    TxSelect,
)
from escrowmq.wire.amqp010.names import MOST_DETACHED, SessionNames
from escrowmq.wire.amqp010.session import DETACHED_BYTES
from escrowmq.wire.amqp010.states import SessionPhase
from tests.unit.wire.amqp010.clients import Client, SharingServer, server
from tests.unit.wire.amqp010.messaging import bodies, flow, octets, publish, queue, subscribe

NAME = b"session 1"


def keeping(made: SharingServer | None = None, seconds: int = 60, user: str = "guest") -> Client:
    """Return a client whose session has a timeout."""
    client = Client(made or server(), user)
    client.control(SessionRequestTimeout(seconds))
    assert client.expect(SessionTimeout).timeout == seconds
    return client


def lose(client: Client) -> SharingServer:
    """Lose the connection."""
    client.server.lose(client.port)
    client.server.end_turn()
    client.server.run_disk()
    return client.server


def resume(made: SharingServer, received: int = 0, *, channel: int = 1, force: bool = False, sent: int = 0) -> Client:
    """Attach the session again, for a client that has received so many commands and goes on with number `sent`."""
    client = Client(made, attaches=False)
    client.control(SessionAttach(NAME, force=force), channel)
    assert client.expect(SessionAttached).name == NAME
    assert client.expect(SessionFlush) == SessionFlush(True, True, True)
    if client.inbox:
        client.expect(SessionCompleted)
    client.control(SessionExpected(((received, received),)), channel)
    assert client.expect(SessionCommandPoint) == SessionCommandPoint(received, 0)
    client.sent[channel] = sent
    client.control(SessionCommandPoint(sent, 0), channel)
    return client


def ready(made: SharingServer, name: str = "q") -> int:
    found: Queue = made.broker.directory.vhost("/").queue(name)
    found.refresh()
    return found.ready + found.returning


def is_new(made: SharingServer) -> None:
    """The session is not kept: attaching it begins another one, which expects nothing."""
    client = Client(made)
    client.control(SessionFlush(expected=True))
    assert client.expect(SessionExpected).commands == ()


def pass_time(made: SharingServer, milliseconds: int) -> None:
    made.now += milliseconds
    for _ in range(5):
        made.end_turn()
    made.run_disk()


def test_a_session_without_a_timeout_ends_with_its_connection() -> None:
    client = Client()
    client.do(ExecutionSync())
    is_new(lose(client))


@pytest.mark.parametrize("name", [b"", b"n" * (LONGEST_NAME + 1)])
def test_a_name_has_a_length(name: bytes) -> None:
    client = Client(attaches=False)
    client.control(SessionAttach(name))
    assert client.expect(SessionDetached).code == DetachCode.NOT_ATTACHED


@pytest.mark.rule("EXC-1")
@pytest.mark.parametrize("arrived", range(4))
def test_publishes_that_are_sent_again_are_not_enqueued_again(arrived: int) -> None:
    """The connection is lost after some of three publishes have arrived, the next one cut in its middle. No answer
    has reached the client, which sends all again.
    """
    made = server()
    queue(made)
    client = keeping(made)
    frames = [octets(client, b"%d" % number, mode=0, delivery_mode=2) for number in range(3)]
    client.send_bytes(b"".join([*frames[:arrived], *(one[:50] for one in frames[arrived : arrived + 1])]), disk=False)
    lose(client)
    again = resume(made, sent=0)
    again.inbox.clear()
    again.send_bytes(b"".join(frames))
    completed = [
        each
        for one in again.inbox
        if isinstance(one.operation, SessionCompleted)
        for each in one.operation.commands or ()
    ]
    assert {number for first, last in completed for number in range(first, last + 1)} == {0, 1, 2}
    assert ready(made) == 3


def test_the_answers_to_publishes_are_sent_again() -> None:
    made = server()
    queue(made)
    client = keeping(made)
    client.send_bytes(octets(client, b"one", mode=0, delivery_mode=2), disk=False)
    assert client.idle()  # neither the acceptance nor the completion is on disk
    again = resume(lose(client), sent=1)
    assert again.expect(MessageAccept).transfers == ((0, 0),)
    assert again.idle()


def test_what_the_client_has_received_is_not_sent_again() -> None:
    made = server()
    queue(made)
    client = keeping(made)
    publish(client, b"one", mode=0)
    assert client.expect(MessageAccept).transfers == ((0, 0),)
    again = resume(lose(client), received=1, sent=1)
    assert again.idle()


def test_completed_answers_are_skipped() -> None:
    made = server()
    queue(made)
    client = keeping(made)
    publish(client, b"one", mode=0)
    client.control(SessionCompleted(((0, 0),)))
    again = resume(lose(client), sent=1)
    assert again.expect(SessionGap).commands == ((0, 0),)
    publish(again, b"two", mode=0)
    assert again.expect(MessageAccept).transfers == ((1, 1),)


def test_the_client_learns_what_the_broker_expects() -> None:
    client = keeping()
    client.do(ExecutionSync())
    client.do(ExecutionSync())
    again = Client(lose(client), attaches=False)
    again.control(SessionAttach(NAME))
    again.expect(SessionAttached)
    again.expect(SessionFlush)
    assert again.expect(SessionCompleted).commands == ((0, 1),)
    again.control(SessionFlush(expected=True, confirmed=True, completed=True))
    assert again.expect(SessionExpected).commands == ((2, 2),)
    assert again.expect(SessionConfirmed).commands == ((0, 1),)
    assert again.expect(SessionCompleted).commands == ((0, 1),)


@pytest.mark.rule("ORD-1")
@pytest.mark.parametrize("received", range(5))
def test_unsettled_deliveries_are_sent_again_from_where_the_client_wants(received: int) -> None:
    """Each has its number again and is not redelivered, on another channel with other frames."""
    made = server()
    queue(made)
    client = keeping(made)
    subscribe(client)
    publish(client, *[b"%d" % number for number in range(4)])
    lose(client)
    assert not ready(made)
    again = resume(made, received, channel=7, sent=client.sent[1])
    assert bodies(again) == [b"%d" % number for number in range(received, 4)]
    again.command(MessageAccept(((0, 3),)), channel=7)
    assert made.broker.directory.vhost("/").queue("q").ready == 0
    again.inbox.clear()
    publish(again, b"new", channel=7)
    again.inbox = type(again.inbox)(one for one in again.inbox if not isinstance(one.operation, SessionCompleted))
    assert bodies(again) == [b"new"]


def test_settled_deliveries_are_skipped() -> None:
    made = server()
    queue(made)
    client = keeping(made)
    subscribe(client)
    publish(client, b"0", b"1", b"2")
    client.command(MessageAccept(((1, 1),)))
    again = resume(lose(client), sent=client.sent[1])
    gaps = [one.operation.commands for one in again.inbox if isinstance(one.operation, SessionGap)]
    assert gaps == [((1, 1),)]
    again.inbox = type(again.inbox)(one for one in again.inbox if not isinstance(one.operation, SessionGap))
    assert bodies(again) == [b"0", b"2"]


def test_nothing_is_delivered_while_the_session_is_detached() -> None:
    made = server()
    queue(made)
    client = keeping(made)
    subscribe(client)
    lose(client)
    other = Client(made, attaches=False)
    other.attach(1, b"other")
    publish(other, b"one")
    assert ready(made) == 1
    assert bodies(resume(made, sent=client.sent[1])) == [b"one"]


def test_other_consumers_get_the_messages_meanwhile() -> None:
    made = server()
    queue(made)
    client = keeping(made)
    subscribe(client)
    lose(client)
    other = Client(made, attaches=False)
    other.attach(1, b"other")
    subscribe(other)
    publish(other, b"one")
    other.inbox = type(other.inbox)(one for one in other.inbox if not isinstance(one.operation, SessionCompleted))
    assert bodies(other) == [b"one"]


def test_many_deliveries_are_sent_again_while_the_client_reads() -> None:
    made = server(outbox=10_000)
    queue(made)
    client = keeping(made)
    subscribe(client)
    for number in range(0, 500, 20):
        publish(client, *[b"%04d" % each * 25 for each in range(number, number + 20)])
    again = resume(lose(client), sent=client.sent[1])
    for _ in range(200):
        again.send_bytes(b"")
    assert bodies(again) == [b"%04d" % number * 25 for number in range(500)]


def test_credit_of_deliveries_that_are_lost_is_restored() -> None:
    made = server()
    queue(made)
    client = keeping(made)
    subscribe(client, accept_mode=1, credit=2)
    publish(client, b"0", b"1", b"2")
    again = resume(lose(client), sent=client.sent[1])
    assert again.expect(SessionGap).commands == ((0, 1),)
    assert bodies(again) == [b"2"]


def test_the_timeout_returns_everything() -> None:
    made = server()
    queue(made)
    client = keeping(made, 60)
    subscribe(client)
    publish(client, b"0", b"1")
    lose(client)
    pass_time(made, 59_000)
    assert not ready(made)
    assert made.broker.holdings.of_user("guest") >= DETACHED_BYTES
    pass_time(made, 2_000)
    assert ready(made) == 2
    assert not made.broker.holdings.of_user("guest")
    assert not made.broker.engine.channels
    is_new(made)


def test_a_session_that_was_attached_again_does_not_expire() -> None:
    made = server()
    client = keeping(made, 60)
    again = resume(lose(client))
    pass_time(made, 120_000)
    again.do(ExecutionSync())


def test_a_detached_session_is_kept() -> None:
    client = keeping()
    client.do(ExecutionSync())
    client.control(SessionDetach(NAME))
    assert client.expect(SessionDetached) == SessionDetached(NAME, DetachCode.NORMAL)
    again = resume(client.server, sent=0)
    again.do(ExecutionSync())  # not executed again


def test_a_session_whose_timeout_was_set_to_0_ends() -> None:
    client = keeping()
    client.do(ExecutionSync())
    client.control(SessionRequestTimeout(0))
    client.expect(SessionTimeout)
    client.control(SessionDetach(NAME))
    client.expect(SessionDetached)
    is_new(client.server)


@pytest.mark.rule("TX-10")
@pytest.mark.parametrize("command", [TxSelect(), DtxSelect()])
def test_a_session_with_transactions_ends(command: TxSelect | DtxSelect) -> None:
    made = server()
    queue(made)
    client = keeping(made)
    client.do(command)
    publish(client, b"one")
    lose(client)
    is_new(made)
    assert ready(made) == (0 if isinstance(command, TxSelect) else 1)


def test_a_session_can_be_taken_over_with_all_it_has() -> None:
    made = server()
    queue(made)
    client = keeping(made)
    subscribe(client)
    publish(client, b"one")
    client.inbox.clear()
    again = resume(made, sent=client.sent[1], force=True)
    client.collect()
    assert client.expect(SessionDetached) == SessionDetached(NAME, DetachCode.SESSION_BUSY)
    assert bodies(again) == [b"one"]
    lose(client)
    publish(again, b"two")
    assert b"two" in [one.content.body for one in again.inbox if one.content is not None]


def test_another_user_does_not_get_the_session() -> None:
    made = server()
    made.broker.access.users["alice"] = made.broker.access.users["guest"]
    made.broker.access.permissions["alice", "/"] = made.broker.access.permissions["guest", "/"]
    client = keeping(made)
    client.do(ExecutionSync())
    lose(client)
    other = Client(made, "alice")
    other.control(SessionFlush(expected=True))
    assert other.expect(SessionExpected).commands == ()
    resume(made, sent=1)


def test_revoked_permissions_end_the_session_when_it_is_attached_again() -> None:
    made = server()
    queue(made)
    client = keeping(made)
    subscribe(client)
    publish(client, b"one")
    lose(client)
    made.broker.access.set_permission("guest", "/", "", ".*", "^$")
    again = Client(made, attaches=False)
    again.control(SessionAttach(NAME))
    again.inbox = type(again.inbox)(one for one in again.inbox if not hasattr(one.operation, "expected"))
    again.expect(SessionAttached)
    again.expect(SessionCompleted)
    again.expect(SessionCommandPoint)
    again.raised(ErrorCode.UNAUTHORIZED_ACCESS)


def test_a_deleted_queue_ends_a_session_that_is_detached() -> None:
    made = server()
    queue(made)
    client = keeping(made)
    subscribe(client)
    lose(client)
    made.broker.directory.delete_queue(made.broker.directory.vhost("/").queue("q"))
    pass_time(made, 0)
    is_new(made)


@pytest.mark.rule("FAIR-3")
def test_a_user_without_memory_keeps_no_session() -> None:
    client = keeping()
    client.server.broker.holdings.user_limit = DETACHED_BYTES // 2
    is_new(lose(client))


@pytest.mark.rule("FAIR-2")
def test_a_user_keeps_a_limited_number_of_sessions() -> None:
    client = keeping()
    names = client.server.common(SessionNames)
    for _ in range(MOST_DETACHED):
        names.kept("guest")
    is_new(lose(client))


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_session_can_be_lost_several_times(lost: int) -> None:
    made = server()
    queue(made)
    client = keeping(made)
    subscribe(client)
    publish(client, b"one")
    sent = client.sent[1]
    for _ in range(lost):
        made = lose(client)
        client = resume(made, sent=sent)
        assert bodies(client) == [b"one"]


def test_a_session_that_is_lost_before_the_client_expects_anything_is_kept() -> None:
    client = keeping()
    client.do(ExecutionSync())
    again = Client(lose(client), attaches=False)
    again.control(SessionAttach(NAME))
    assert again.port.endpoint.sessions[1].state is SessionPhase.RESUMING
    resume(lose(again), sent=1).do(ExecutionSync())


def test_new_credit_reaches_a_resumed_subscription() -> None:
    made = server()
    queue(made)
    client = keeping(made)
    subscribe(client, credit=1)
    publish(client, b"0", b"1")
    again = resume(lose(client), received=1, sent=client.sent[1])
    assert again.idle()
    flow(again, 1)
    assert bodies(again) == [b"1"]
