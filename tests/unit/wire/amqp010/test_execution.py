"""Commands: their order, their completion, results, refusals, and handlers that answer later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.leftover import WAIT
from escrowmq.wire.amqp010 import execution
from escrowmq.wire.amqp010.codec.spec import (
    ConnectionClose,
    ErrorCode,
    ExecutionException,
    ExecutionResult,
    ExecutionSync,
    MessageStop,
    MessageTransfer,
    QueueDeclare,
    QueueQueryResult,
    SessionCompleted,
    SessionDetached,
    SessionFlush,
)
from escrowmq.wire.amqp010.codec.structs import Command
from escrowmq.wire.amqp010.ports import LATER, Content, Outcome, Reply, SessionPort, Work
from tests.unit.wire.amqp010.clients import Client, server

Handles = Callable[[type[Command], Callable[[SessionPort, Any, Content | None], Outcome]], None]


@pytest.fixture
def handles(monkeypatch: pytest.MonkeyPatch) -> Handles:
    """Return a function that gives a class of commands a handler, in a table that is otherwise empty."""
    table: dict[type[Command], Any] = {}
    monkeypatch.setattr(execution, "HANDLERS", table)
    return table.__setitem__


def session_of(client: Client) -> SessionPort:
    return client.port.endpoint.sessions[1]


def test_commands_of_a_turn_are_completed_together() -> None:
    client = Client()
    client.send_bytes(client.octets(ExecutionSync()) * 5)
    client.completes(0, 4)
    assert client.idle()


def test_completions_behind_a_pending_command_are_told_again_with_it(handles: Handles) -> None:
    """Qpid JMS ignores a completion unless all commands before it are complete."""
    client = Client()
    handles(MessageStop, lambda *_: LATER)
    handles(QueueDeclare, lambda *_: None)
    client.send_bytes(client.octets(QueueDeclare()) + client.octets(MessageStop()) + client.octets(QueueDeclare()))
    assert client.expect(SessionCompleted).commands == ((0, 0), (2, 2))
    session_of(client).answer(1, None)
    client.send_bytes(b"")
    assert client.expect(SessionCompleted).commands == ((1, 2),)
    client.send_bytes(client.octets(QueueDeclare()))
    assert client.expect(SessionCompleted).commands == ((3, 3),)


def test_a_command_without_a_handler_is_refused(handles: Handles) -> None:
    Client().refused(QueueDeclare("q"), ErrorCode.NOT_IMPLEMENTED)


@pytest.mark.parametrize("code", [b"\x09\x01", b"\x0a\x06", b"\x05\x7f"])
def test_an_unknown_command_is_refused_by_its_code(code: bytes) -> None:
    client = Client()
    head = b"\x0f\x01\x00\x12\x00\x01\x00\x01\x00\x00\x00\x00"
    client.send_bytes(head + code + b"\x01\x00\x00\x00")
    exception = client.raised(ErrorCode.NOT_IMPLEMENTED, 0)
    assert bytes((exception.class_code or 0, exception.command_code or 0)) == code


def test_the_exception_of_a_client_ends_the_session() -> None:
    client = Client()
    client.command(ExecutionException(ErrorCode.NOT_FOUND))
    client.expect(SessionDetached)
    client.attach(1)


def test_a_result_of_a_client_is_ignored() -> None:
    client = Client()
    client.do(ExecutionResult(7))


def test_a_result_is_sent_before_the_completion(handles: Handles) -> None:
    handles(QueueDeclare, lambda *_: Reply(QueueQueryResult("q")))
    assert Client().do(QueueDeclare("q")) == QueueQueryResult("q")


def test_completions_wait_for_the_log(handles: Handles) -> None:
    client = Client()
    log = client.server.broker.log

    def handler(session: SessionPort, command: QueueDeclare, content: Content | None) -> Reply:
        log.append(1, b"record")
        return Reply(QueueQueryResult("q"), log.end_lsn)

    handles(QueueDeclare, handler)
    client.command(QueueDeclare("q"), disk=False)
    client.command(ExecutionSync(), disk=False)
    client.control(SessionFlush(completed=True))
    assert client.expect(ExecutionResult).command_id == 0
    client.completes(0)
    client.completes(1)
    client.completes(0, 1)


def test_handlers_may_answer_later(handles: Handles) -> None:
    handles(QueueDeclare, lambda *_: LATER)
    client = Client()
    client.command(QueueDeclare("a"))
    client.command(QueueDeclare("b"))
    assert client.idle()
    session_of(client).answer(1, Reply(QueueQueryResult("b")))
    client.send_bytes(b"")
    assert client.expect(ExecutionResult).command_id == 1
    client.completes(1)
    session_of(client).answer(0, None)
    client.send_bytes(b"")
    client.completes(0, 1)


def test_a_handler_may_answer_before_it_says_that_it_will_do_so_later(handles: Handles) -> None:
    def handler(session: SessionPort, command: QueueDeclare, content: Content | None) -> Outcome:
        session.answer(session.current, None)
        return LATER

    handles(QueueDeclare, handler)
    client = Client()
    client.do(QueueDeclare("a"))
    client.do(ExecutionSync())


def test_sync_waits_for_the_commands_before_it(handles: Handles) -> None:
    handles(QueueDeclare, lambda *_: LATER)
    client = Client()
    client.command(QueueDeclare("a"))
    client.command(ExecutionSync())
    client.command(QueueDeclare("b"))
    client.control(SessionFlush(completed=True))
    assert client.expect(SessionCompleted).commands == ()
    session_of(client).answer(0, None)
    client.send_bytes(b"")
    client.completes(0, 1)
    client.control(SessionFlush(completed=True))
    client.completes(0, 1)


def test_a_run_is_completed_together(handles: Handles) -> None:
    handles(MessageTransfer, lambda *_: LATER)
    client = Client()
    client.send_bytes(client.octets(MessageTransfer("q"), body=b"x") * 3)
    session_of(client).answer_run(0, 2)
    client.send_bytes(b"")
    client.completes(0, 2)


def test_a_handler_may_fail_later(handles: Handles) -> None:
    handles(QueueDeclare, lambda *_: LATER)
    client = Client()
    client.command(QueueDeclare("a"))
    session_of(client).fail(0, BrokerError(Condition.NOT_FOUND, "none"))
    client.send_bytes(b"")
    exception = client.raised(ErrorCode.NOT_FOUND, 0)
    assert (exception.class_code, exception.command_code) == (8, 1)


def test_answers_after_the_end_of_a_session_are_dropped(handles: Handles) -> None:
    handles(QueueDeclare, lambda *_: LATER)
    client = Client()
    client.command(QueueDeclare("a"))
    session = session_of(client)
    client.refused(MessageStop("none"), ErrorCode.NOT_IMPLEMENTED)
    session.answer(0, Reply(QueueQueryResult("a")))
    session.answer_run(0, 0)
    session.fail(0, BrokerError(Condition.INTERNAL, "x"))
    client.send_bytes(b"")
    assert client.idle()


@pytest.mark.parametrize("waits", [None, WAIT])
def test_work_is_done_in_pieces_and_nothing_overtakes_it(handles: Handles, waits: bool | None) -> None:
    done = []

    def handler(session: SessionPort, command: QueueDeclare, content: Content | None) -> Work:
        for number in range(3):
            done.append(number)
            session.broker.engine.requests.left = 0
            yield waits
        return Reply(QueueQueryResult("q"))

    handles(QueueDeclare, handler)
    client = Client()
    octets = client.octets(QueueDeclare("q")) + client.octets(ExecutionSync())
    client.server.receive(client.port, octets)
    client.server.end_one_turn()
    assert done == [0, 1]
    client.send_bytes(b"")
    assert done == [0, 1, 2]
    assert client.expect(ExecutionResult).command_id == 0
    client.completes(0, 1)


def test_work_may_be_refused_in_a_later_piece(handles: Handles) -> None:
    def handler(session: SessionPort, command: QueueDeclare, content: Content | None) -> Work:
        yield WAIT
        raise BrokerError(Condition.RESOURCE_LOCKED, "locked")

    handles(QueueDeclare, handler)
    client = Client()
    client.refused(QueueDeclare("q"), ErrorCode.RESOURCE_LOCKED)


def test_pending_commands_are_limited(handles: Handles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "MOST_PENDING", 2)
    handles(QueueDeclare, lambda *_: LATER)
    client = Client()
    client.command(QueueDeclare("a"))
    client.command(QueueDeclare("b"))
    client.refused(QueueDeclare("c"), ErrorCode.RESOURCE_LIMIT_EXCEEDED)


@pytest.mark.rule("FAIR-3")
def test_requests_for_completion_that_are_pending_are_limited(
    handles: Handles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "MOST_PENDING", 3)
    handles(QueueDeclare, lambda *_: LATER)
    client = Client()
    client.command(QueueDeclare("a"))
    client.command(ExecutionSync())
    client.command(ExecutionSync())
    client.refused(ExecutionSync(), ErrorCode.RESOURCE_LIMIT_EXCEEDED)


def test_content_is_for_transfers_only() -> None:
    Client().refused(ExecutionSync(), ErrorCode.COMMAND_INVALID, body=b"x")


def test_declarations_are_limited(handles: Handles) -> None:
    handles(QueueDeclare, lambda *_: None)
    client = Client(server(arguments=200))
    client.do(QueueDeclare("q"))
    client.refused(QueueDeclare("q", arguments={"k": "v" * 200}), ErrorCode.RESOURCE_LIMIT_EXCEEDED)


def test_a_malformed_command_costs_the_connection() -> None:
    client = Client()
    client.send_bytes(b"\x0f\x01\x00\x12\x00\x01\x00\x01\x00\x00\x00\x00\x08\x01\x01\x00\xff\xff")
    assert client.expect(ConnectionClose).reply_code == 501


def test_equal_transfers_are_decoded_once(handles: Handles) -> None:
    seen: list[object] = []
    handles(MessageTransfer, lambda _, command, content: seen.append((command, content)))
    client = Client()
    octets = client.octets(MessageTransfer("a"), header=b"h", body=b"x")
    client.send_bytes(octets * 2 + client.octets(MessageTransfer("b"), header=b"", body=b""))
    assert seen[0][0] is seen[1][0]  # type: ignore[index]
    assert [(command.destination, content) for command, content in seen] == [  # type: ignore[misc, has-type]
        ("a", Content(b"h", b"x")),
        ("a", Content(b"h", b"x")),
        ("b", Content(b"", b"")),
    ]
