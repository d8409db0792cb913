"""Sessions that outlive their connection: kept, attached again, replayed by both sides, stolen, refused and expired."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp010.attaching import LONGEST_NAME
from escrowmq.wire.amqp010.codec.spec import (
    DetachCode,
    DtxSelect,
    ErrorCode,
    ExecutionSync,
    SessionAttach,
    SessionAttached,
    SessionCommandPoint,
    SessionCompleted,
    SessionConfirmed,
    SessionDetach,
    SessionDetached,
    SessionExpected,
    SessionFlush,
    SessionRequestTimeout,
    SessionTimeout,
    TxSelect,
)
from escrowmq.wire.amqp010.names import MOST_DETACHED, SessionNames
from escrowmq.wire.amqp010.session import DETACHED_BYTES
from escrowmq.wire.amqp010.states import SessionPhase
from tests.unit.wire.amqp010.clients import Client, server
from tests.unit.wire.amqp010.messaging import bodies, flow, publish, queue, subscribe
from tests.unit.wire.amqp010.sessions import NAME, is_new, keeping, lose, pass_time, ready, resume


def test_a_session_without_a_timeout_ends_with_its_connection() -> None:
    client = Client()
    client.do(ExecutionSync())
    is_new(lose(client))


@pytest.mark.parametrize("name", [b"", b"n" * (LONGEST_NAME + 1)])
def test_a_name_has_a_length(name: bytes) -> None:
    client = Client(attaches=False)
    client.control(SessionAttach(name))
    assert client.expect(SessionDetached).code == DetachCode.NOT_ATTACHED


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
