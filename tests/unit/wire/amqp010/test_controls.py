"""Every control of a client in every state of its session."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp010.codec.spec import (
    DetachCode,
    ErrorCode,
    ExecutionException,
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
    SessionGap,
    SessionKnownCompleted,
    SessionRequestTimeout,
    SessionTimeout,
)
from escrowmq.wire.amqp010.codec.structs import Compound, Control
from escrowmq.wire.amqp010.controls import CONTROLS
from escrowmq.wire.amqp010.states import SessionPhase
from tests.unit.wire.amqp010.clients import Client, server

NAME = b"session 1"
A, D, R = SessionPhase.ATTACHED, SessionPhase.DETACHED, SessionPhase.RESUMING

TABLE: list[tuple[Control, SessionPhase, list[type[Compound]], SessionPhase | None]] = [
    (SessionDetach(NAME), A, [SessionDetached], D),
    (SessionDetach(NAME), R, [SessionDetached], D),
    (SessionDetach(NAME), D, [SessionDetached], D),
    (SessionDetached(NAME, 0), A, [], None),
    (SessionDetached(NAME, 0), R, [], None),
    (SessionDetached(NAME, 0), D, [], D),
    (SessionRequestTimeout(5), A, [SessionTimeout], A),
    (SessionRequestTimeout(5), R, [SessionTimeout], R),
    (SessionRequestTimeout(5), D, [SessionDetached], D),
    (SessionTimeout(5), A, [], A),
    (SessionTimeout(5), R, [], R),
    (SessionTimeout(5), D, [SessionDetached], D),
    (SessionCommandPoint(1, 0), A, [], A),
    (SessionCommandPoint(1, 0), R, [SessionCommandPoint, ExecutionException, SessionDetach], None),
    (SessionCommandPoint(1, 0), D, [SessionDetached], D),
    (SessionExpected(((0, 0),)), A, [], A),
    (SessionExpected(((0, 0),)), R, [SessionCommandPoint], A),
    (SessionExpected(((0, 0),)), D, [SessionDetached], D),
    (SessionExpected(()), A, [], A),
    (SessionExpected(()), R, [SessionCommandPoint, ExecutionException, SessionDetach], None),
    (SessionExpected(((7, 7),)), R, [SessionDetached], None),
    (SessionConfirmed(()), A, [], A),
    (SessionConfirmed(()), R, [], R),
    (SessionConfirmed(()), D, [SessionDetached], D),
    (SessionCompleted(()), A, [], A),
    (SessionCompleted((), True), R, [SessionKnownCompleted], R),
    (SessionCompleted(()), D, [SessionDetached], D),
    (SessionKnownCompleted(()), A, [], A),
    (SessionKnownCompleted(()), R, [], R),
    (SessionKnownCompleted(()), D, [SessionDetached], D),
    (SessionFlush(True, True, True), A, [SessionExpected, SessionConfirmed, SessionCompleted], A),
    (SessionFlush(True, True, True), R, [SessionExpected, SessionConfirmed, SessionCompleted], R),
    (SessionFlush(True), D, [SessionDetached], D),
    (SessionGap(((1, 1),)), A, [SessionCompleted], A),
    (SessionGap(((1, 1),)), R, [SessionCommandPoint, ExecutionException, SessionDetach], None),
    (SessionGap(((1, 1),)), D, [SessionDetached], D),
    (SessionAttach(NAME), A, [SessionDetached], A),
    (SessionAttach(NAME), R, [SessionDetached], R),
    (SessionAttach(NAME), D, [SessionAttached, SessionFlush, SessionCompleted], R),
    (SessionAttached(NAME), A, [SessionDetached], None),
    (SessionAttached(NAME), R, [SessionDetached], None),
]
"""A control, the session's state, the answers, and the state that follows; None if the session has ended."""


@pytest.mark.parametrize(("control", "before", "answers", "after"), TABLE)
def test_each_control_in_each_state(
    control: Control, before: SessionPhase, answers: list[type[Compound]], after: SessionPhase | None
) -> None:
    client = Client(server())
    client.control(SessionRequestTimeout(60))
    client.expect(SessionTimeout)
    client.do(ExecutionSync())
    session = client.port.endpoint.sessions[1]
    if before is not A:
        client.control(SessionDetach(NAME))
        client.expect(SessionDetached)
    if before is R:
        client.control(SessionAttach(NAME))
        for kind in (SessionAttached, SessionFlush, SessionCompleted):
            client.expect(kind)
    assert session.state is before
    client.control(control)
    assert [type(one.operation) for one in client.inbox] == answers
    if after is None:
        assert session.ending
    else:
        assert not session.ending
        assert session.state is after


def test_the_table_has_every_control() -> None:
    tried = {(type(control), state) for control, state, _, _ in TABLE}
    assert {(kind, state) for kind in CONTROLS for state in (A, R, D)} <= tried


def test_a_command_before_the_client_expects_any_ends_the_session() -> None:
    client = Client(server())
    client.control(SessionRequestTimeout(60))
    client.expect(SessionTimeout)
    client.do(ExecutionSync())
    client.control(SessionDetach(NAME))
    client.control(SessionAttach(NAME))
    client.inbox.clear()
    client.command(ExecutionSync())
    assert client.expect(SessionCommandPoint) == SessionCommandPoint(0, 0)
    client.raised(ErrorCode.ILLEGAL_STATE)
    client.attach(1)


def test_numbers_that_were_never_sent_are_not_expected() -> None:
    client = Client(server())
    client.control(SessionRequestTimeout(60))
    client.control(SessionDetach(NAME))
    client.control(SessionAttach(NAME))
    client.inbox.clear()
    client.control(SessionExpected(((1, 1),)))
    assert client.expect(SessionDetached).code == DetachCode.UNKNOWN_IDS
