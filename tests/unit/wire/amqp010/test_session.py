"""Sessions: attaching, detaching, names, controls, parts, and the end by a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from escrowmq.core.access.permissions import DefaultLimits
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.amqp010 import execution
from escrowmq.wire.amqp010.codec.spec import (
    DetachCode,
    ErrorCode,
    ExecutionException,
    ExecutionSync,
    MessageStop,
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
from escrowmq.wire.amqp010.ports import LATER, Content, SessionPort
from escrowmq.wire.amqp010.sent import SentCommands
from escrowmq.wire.amqp010.session import Session
from escrowmq.wire.outbox import Piece
from tests.unit.wire.amqp010.clients import Client, server


class Recorder:
    """A part of a session that records what is asked of it."""

    def __init__(self, session: SessionPort) -> None:
        self.session = session
        self.calls: list[object] = []
        self.counted_bytes = 0
        self.refusal: BrokerError | None = None

    lasting = True

    def attached(self) -> None:
        self.calls.append("attached")

    def sent_again(self, first: int, most: int) -> list[tuple[int, list[Piece]]]:
        return []

    def caught_up(self) -> None:
        self.calls.append("caught up")

    def flush(self) -> None:
        self.calls.append("flush")
        if self.refusal is not None:
            raise self.refusal

    def completed(self, first: int, last: int) -> None:
        self.calls.append((first, last))

    def note_ages(self, now_ms: int) -> None:
        self.calls.append(now_ms)

    def dropping_forbidden(self) -> Iterator[None]:
        self.calls.append("dropping")
        yield

    def leave(self) -> None:
        self.calls.append("leave")

    def leaving(self) -> Iterator[None]:
        self.calls.append("leaving")
        yield

    def returning(self) -> Iterator[None]:
        self.calls.append("returning")
        yield

    def row(self) -> dict[str, object]:
        return {"consumers": 7}


class Another(Recorder):
    """A second part."""


def session_of(client: Client, channel: int = 1) -> Session:
    return client.port.endpoint.sessions[channel]


def work_off(client: Client) -> None:
    """End turns until all is returned: each part gives back a piece in one turn."""
    while client.server.broker.engine.left_over:
        client.server.end_turn()


def held(client: Client) -> int:
    return client.server.broker.holdings.of_user("guest")


def test_a_session_is_detached_by_its_name() -> None:
    client = Client()
    client.control(SessionDetach(b"session 1"))
    assert client.expect(SessionDetached) == SessionDetached(b"session 1", DetachCode.NORMAL)
    assert not client.server.broker.engine.channels
    client.attach(1)


def test_a_session_of_another_name_is_not_attached() -> None:
    client = Client()
    client.control(SessionDetach(b"other"))
    assert client.expect(SessionDetached) == SessionDetached(b"session 1", DetachCode.NOT_ATTACHED)


@pytest.mark.parametrize("control", [SessionDetach(b"s"), SessionFlush(completed=True), SessionRequestTimeout(0)])
def test_a_channel_without_a_session_is_not_attached(control: SessionDetach) -> None:
    client = Client(attaches=False)
    client.control(control)
    assert client.expect(SessionDetached).code == DetachCode.NOT_ATTACHED


def test_a_command_on_a_channel_without_a_session_is_not_attached() -> None:
    client = Client(attaches=False)
    client.sent[1] = 0
    client.command(ExecutionSync())
    assert client.expect(SessionDetached) == SessionDetached(b"", DetachCode.NOT_ATTACHED)


def test_a_channel_has_one_session() -> None:
    client = Client()
    client.control(SessionAttach(b"second"))
    assert client.expect(SessionDetached) == SessionDetached(b"second", DetachCode.TRANSPORT_BUSY)
    client.do(ExecutionSync())


def test_a_name_is_attached_once() -> None:
    client = Client()
    other = Client(client.server, attaches=False)
    other.control(SessionAttach(b"session 1"))
    assert other.expect(SessionDetached) == SessionDetached(b"session 1", DetachCode.SESSION_BUSY)
    client.do(ExecutionSync())


def test_a_name_can_be_taken_over() -> None:
    client = Client()
    other = Client(client.server, attaches=False)
    other.attach(1, b"session 1", force=True)
    client.collect()
    assert client.expect(SessionDetached) == SessionDetached(b"session 1", DetachCode.SESSION_BUSY)
    other.do(ExecutionSync())
    client.attach(1, b"new")


def test_users_have_names_of_their_own() -> None:
    made = server()
    made.broker.access.users["alice"] = made.broker.access.users["guest"]
    made.broker.access.permissions["alice", "/"] = made.broker.access.permissions["guest", "/"]
    Client(made, "guest")
    Client(made, "alice")


@pytest.mark.parametrize(("limit", "granted"), [(600, 600), (7200, 3600), (0, 0)])
def test_a_time_is_granted_up_to_the_limit(limit: int, granted: int) -> None:
    client = Client(server(session_timeout=limit))
    client.control(SessionRequestTimeout(3600))
    assert client.expect(SessionTimeout).timeout == granted


def test_flush_reports_what_is_asked_for() -> None:
    client = Client()
    client.do(ExecutionSync())
    client.do(ExecutionSync())
    client.control(SessionFlush(expected=True, confirmed=True, completed=True))
    assert client.expect(SessionExpected).commands == ((2, 2),)
    assert client.expect(SessionConfirmed).commands == ((0, 1),)
    assert client.expect(SessionCompleted).commands == ((0, 1),)


@pytest.mark.rule("FAIR-1")
def test_a_report_of_what_is_complete_costs_what_is_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "HANDLERS", {MessageStop: lambda *_: LATER})
    client = Client()
    client.send_bytes(client.octets(MessageStop("d")) * 1000)
    session = client.port.endpoint.sessions[1]
    assert session.execution.pending_count == 1000
    requests = client.server.broker.engine.requests
    before = requests.left
    session.control(SessionFlush(completed=True))
    assert requests.left <= before - 20


def test_nothing_is_confirmed_before_the_first_command() -> None:
    client = Client()
    client.control(SessionFlush(confirmed=True, completed=True))
    assert client.expect(SessionConfirmed).commands == ()
    assert client.expect(SessionCompleted).commands == ()


def test_commands_are_numbered_from_the_command_point() -> None:
    client = Client()
    client.control(SessionCommandPoint(0xFFFFFFFF, 0))
    client.send_bytes(client.octets(ExecutionSync()) * 2)
    assert client.expect(SessionCompleted).commands == ((0xFFFFFFFF, 0),)


def test_a_command_that_comes_again_is_complete() -> None:
    client = Client()
    client.do(ExecutionSync())
    client.control(SessionCommandPoint(0, 0))
    client.send_bytes(client.octets(MessageStop("d")))  # not executed
    assert client.expect(SessionCompleted).commands == ((0, 0),)
    client.send_bytes(client.octets(ExecutionSync()))
    assert client.expect(SessionCompleted).commands == ((1, 1),)


def test_a_command_cannot_begin_in_its_middle() -> None:
    client = Client()
    client.control(SessionCommandPoint(0, 5))
    assert client.expect(SessionDetached).code == DetachCode.UNKNOWN_IDS


def test_commands_that_do_not_come_are_complete() -> None:
    client = Client()
    client.do(ExecutionSync())
    client.control(SessionGap(((1, 4),)))
    client.completes(1, 4)
    client.send_bytes(client.octets(ExecutionSync()))
    client.completes(5)


@pytest.mark.parametrize("gap", [((1, 0x80000000),), ((0x90000000, 0), (1, 0x7FFFFFFF), (0x80000000, 0x80000000))])
def test_no_command_is_lost_behind_the_longest_gap(gap: tuple[tuple[int, int], ...]) -> None:
    client = Client()
    client.do(ExecutionSync())
    client.control(SessionGap(gap))
    client.inbox.clear()
    client.sent[1] = 0x80000001
    client.refused(MessageStop("none"), ErrorCode.NOT_FOUND)  # it was executed


def test_the_last_command_point_before_the_first_command_counts() -> None:
    client = Client()
    client.control(SessionCommandPoint(100, 0))
    client.control(SessionCommandPoint(50, 0))
    client.sent[1] = 50
    client.refused(MessageStop("none"), ErrorCode.NOT_FOUND)


def test_a_command_point_before_the_first_command_of_the_session_is_refused() -> None:
    client = Client()
    client.control(SessionCommandPoint(100, 0))
    client.sent[1] = 100
    client.do(ExecutionSync())
    client.control(SessionCommandPoint(99, 0))
    assert client.expect(SessionDetached).code == DetachCode.UNKNOWN_IDS


def test_a_gap_elsewhere_changes_nothing() -> None:
    client = Client()
    client.control(SessionGap(((7, 9),)))
    client.do(ExecutionSync())


def test_completions_reach_the_parts_once() -> None:
    client = Client()
    session = session_of(client)
    part = session.part(Recorder)
    assert session.part(Recorder) is part
    for _ in range(6):
        session.send(ExecutionSync())
    client.control(SessionCompleted(((0, 0), (2, 3))))
    client.control(SessionCompleted(((0, 4),), timely_reply=True))
    assert part.calls == [(0, 0), (2, 3), (1, 1), (4, 4)]
    client.inbox = type(client.inbox)(each for each in client.inbox if not isinstance(each.operation, ExecutionSync))
    assert client.expect(SessionKnownCompleted).commands == ((0, 4),)


@pytest.mark.parametrize("ranges", [((0, 0),), ((0xFFFFFFFF, 0),)])
def test_the_completion_of_what_was_never_sent_is_refused(ranges: tuple[tuple[int, int], ...]) -> None:
    client = Client()
    client.control(SessionCompleted(ranges))
    assert client.expect(SessionDetached).code == DetachCode.UNKNOWN_IDS


def test_the_confirmation_of_what_was_never_sent_is_refused() -> None:
    client = Client()
    client.control(SessionRequestTimeout(60))
    client.expect(SessionTimeout)
    client.control(SessionConfirmed(((0, 0),)))
    assert client.expect(SessionDetached).code == DetachCode.UNKNOWN_IDS


@pytest.mark.rule("FAIR-1")
def test_many_confirmations_are_noted_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    client.control(SessionRequestTimeout(60))
    session = session_of(client)
    session.next_id = 900_000  # transfers, which are not remembered
    for _ in range(3000):
        session.send(ExecutionSync())
    requests = client.server.broker.engine.requests
    left: list[int] = []
    drop = SentCommands.drop

    def watched(sent: SentCommands, first: int, last: int) -> int:
        left.append(requests.left)
        return drop(sent, first, last)

    monkeypatch.setattr(SentCommands, "drop", watched)
    client.control(SessionConfirmed(((0, 800_000),) * 2000))
    assert len(left) == 2000
    assert min(left) > 0
    assert len([now for now, later in pairwise(left) if later > now]) > 10  # new turns


def test_an_empty_range_is_refused() -> None:
    client = Client()
    session_of(client).send(ExecutionSync())
    client.control(SessionCompleted(((0, 0), (5, 2))))
    client.expect(ExecutionSync)
    client.raised(ErrorCode.INVALID_ARGUMENT)


def test_a_control_of_a_client_only_is_refused() -> None:
    client = Client()
    client.control(SessionAttached(b"session 1"))
    assert client.expect(SessionDetached).code == DetachCode.NORMAL


def test_a_refusal_ends_the_session_when_the_client_agrees() -> None:
    client = Client()
    part = session_of(client).part(Recorder)
    number = client.command(MessageStop("none"))
    assert client.expect(ExecutionException).command_id == number
    assert client.expect(SessionDetach).name == b"session 1"
    client.send_bytes(client.octets(ExecutionSync()))
    client.control(SessionFlush(completed=True))
    assert client.idle()
    work_off(client)
    assert part.calls[-3:] == ["leave", "leaving", "returning"]
    client.control(SessionDetached(b"session 1", DetachCode.NORMAL))
    client.attach(1)


def test_both_sides_may_detach_at_once() -> None:
    client = Client()
    client.command(MessageStop("none"))
    client.expect(ExecutionException)
    client.expect(SessionDetach)
    client.control(SessionDetach(b"session 1"))
    assert client.expect(SessionDetached).code == DetachCode.NORMAL
    client.attach(1)


def test_a_client_may_attach_without_answering() -> None:
    client = Client()
    client.command(MessageStop("none"))
    client.expect(ExecutionException)
    client.expect(SessionDetach)
    client.attach(1)


def test_the_client_says_that_the_session_is_detached() -> None:
    client = Client()
    client.control(SessionDetached(b"session 1", DetachCode.NORMAL))
    assert client.idle()
    client.attach(1)


def test_the_end_of_another_session_does_not_end_the_one_that_follows_on_its_channel() -> None:
    client = Client()
    client.command(MessageStop("none"))
    client.expect(ExecutionException)
    client.expect(SessionDetach)
    client.attach(1, b"next")
    client.control(SessionDetached(b"session 1", DetachCode.NORMAL))
    client.do(ExecutionSync())


def test_parts_leave_before_any_returns_what_it_holds() -> None:
    client = Client()
    session = session_of(client)
    first, second = session.part(Recorder), session.part(Another)
    second.calls = first.calls
    client.control(SessionDetach(b"session 1"))
    work_off(client)
    assert first.calls == ["leave", "leave", "leaving", "leaving", "returning", "returning"]


def test_work_that_was_put_off_is_done_before_the_next_command() -> None:
    client = Client()
    session = session_of(client)
    part = session.part(Recorder)
    session.flush_later(part)
    client.do(ExecutionSync())
    assert part.calls == ["flush"]


def test_a_refusal_of_work_that_was_put_off_ends_the_session() -> None:
    client = Client()
    session = session_of(client)
    part = session.part(Recorder)
    part.refusal = BrokerError(Condition.NOT_FOUND, "no queue")
    session.flush_later(part)
    client.control(SessionFlush(completed=True))
    client.raised(ErrorCode.NOT_FOUND)


def test_a_part_may_end_the_session() -> None:
    client = Client()
    session_of(client).end(ErrorCode.RESOURCE_DELETED, "the queue is gone")
    client.send_bytes(b"")
    assert client.raised(ErrorCode.RESOURCE_DELETED).description == "the queue is gone"


def test_the_origin_names_connection_and_channel() -> None:
    client = Client()
    assert session_of(client).origin == (str(client.port.endpoint.peer), 1, "guest")


def test_what_the_parts_hold_is_counted() -> None:
    client = Client()
    session = session_of(client)
    part = session.part(Recorder)
    part.counted_bytes = 1 << 20
    session.count_held()
    assert held(client) >= 1 << 20
    assert session.has_room
    client.server.broker.holdings.user_limit = 2 << 20
    with pytest.raises(BrokerError, match="no memory for a test"):
        session.check_held(2 << 20, "a test")
    client.control(SessionDetach(b"session 1"))
    work_off(client)
    assert not held(client)


def test_a_command_with_content_is_sent_in_three_segments() -> None:
    client = Client()
    session = session_of(client)
    assert session.send(MessageStop("d"), Content(b"header", b"body")) == 0
    client.server.end_turn()
    client.collect()
    found = client.expect_message(MessageStop)
    assert found.content == Content(b"header", b"body")


@pytest.mark.parametrize("size", [1, 5, 50])
def test_frames_that_are_made_already_get_numbers(size: int) -> None:
    client = Client()
    session = session_of(client)
    data = client.octets(MessageStop("d"), header=b"h", body=b"body") + client.octets(MessageStop("d"))
    pieces: list[Piece] = [data[at : at + size] for at in range(0, len(data), size)]
    assert session.send_frames(pieces, 2) == 0
    assert session.next_id == 2
    assert session.send_frames([client.octets(MessageStop("e"))], 1) == 2
    client.server.end_turn()
    client.collect()
    assert client.expect_message(MessageStop).content == Content(b"h", b"body")
    assert client.expect(MessageStop) == MessageStop("d")
    assert client.expect(MessageStop) == MessageStop("e")


def test_the_row_has_what_the_parts_know() -> None:
    client = Client()
    session_of(client).part(Recorder)
    (row,) = client.port.endpoint.channel_rows()
    assert row["consumers"] == 7


def test_revoked_permissions_reach_the_parts() -> None:
    client = Client()
    part = session_of(client).part(Recorder)
    assert len(list(client.port.endpoint.permissions_changed())) == 1
    assert part.calls == ["dropping"]


def test_a_user_has_a_limit_on_channels() -> None:
    client = Client()
    client.server.broker.access.defaults = DefaultLimits(channels_of_user=1)
    client.control(SessionAttach(b"second"), 2)
    assert client.expect(SessionDetached).code == DetachCode.TRANSPORT_BUSY


@pytest.mark.rule("FAIR-1")
def test_many_ranges_of_completions_are_noted_in_several_turns() -> None:
    client = Client()
    session = client.port.endpoint.sessions[1]
    session.next_id = 4000
    requests = client.server.broker.engine.requests
    left: list[int] = []

    class Watcher(Recorder):
        def completed(self, first: int, last: int) -> None:
            left.append(requests.left)

    session.part(Watcher)
    client.control(SessionCompleted(tuple((number, number) for number in range(3999, 0, -2)), timely_reply=True))
    assert len(left) == 2000
    assert min(left) > 0
    assert len([now for now, later in pairwise(left) if later > now]) > 1  # new turns
    assert len(client.expect(SessionKnownCompleted).commands or ()) == 2000
