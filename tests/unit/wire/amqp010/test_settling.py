"""Accept, reject, release and acquire, outside and inside transactions."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Any

import pytest

from escrowmq.core.branches.branch import Limits
from escrowmq.core.branches.watch import Watch
from escrowmq.core.queues.queue import Queue
from escrowmq.wire.amqp010 import settling, subscriptions
from escrowmq.wire.amqp010.codec.spec import (
    Acquired,
    ErrorCode,
    ExecutionException,
    ExecutionResult,
    ExecutionSync,
    MessageAccept,
    MessageAcquire,
    MessageReject,
    MessageRelease,
    MessageTransfer,
    RejectCode,
    SessionAttach,
    SessionAttached,
    SessionCommandPoint,
    SessionCompleted,
    SessionDetach,
    SessionDetached,
    TxCommit,
    TxRollback,
    TxSelect,
)
from escrowmq.wire.amqp010.shown import Shown
from escrowmq.wire.amqp010.subscriptions import Subscriptions
from tests.unit.wire.amqp010.clients import Client
from tests.unit.wire.amqp010.messaging import bodies, delivered, octets, publish, queue, subscribe


def holding(count: int = 6, **arguments: Any) -> tuple[Client, Queue]:
    """A client with unsettled deliveries 0 to `count` - 1."""
    client = Client()
    found = queue(client.server, **arguments)
    publish(client, *[b"%d" % number for number in range(count)])
    client.inbox.clear()
    subscribe(client)
    assert len(bodies(client)) == count
    return client, found


def again(client: Client) -> list[tuple[bytes, bool]]:
    """What is delivered to another subscription, and whether it is marked as redelivered."""
    subscribe(client, to="again")
    return [(one.body, one.delivery.redelivered) for one in delivered(client) if one.transfer.destination == "again"]


def test_accepted_deliveries_leave_their_queue() -> None:
    client, found = holding()
    client.do(MessageAccept(((0, 1), (3, 3))))
    assert found.unsettled == 3
    client.do(MessageAccept(((0, 5),)))
    assert (found.unsettled, found.ready) == (0, 0)


def holding_durable(**arguments: Any) -> tuple[Client, Queue]:
    """A client with one unsettled delivery, of a message that is on disk."""
    client = Client()
    found = queue(client.server, **arguments)
    publish(client, b"0", delivery_mode=2)
    client.inbox.clear()
    subscribe(client)
    assert bodies(client) == [b"0"]
    return client, found


@pytest.mark.rule("DUR-1")
@pytest.mark.parametrize(
    "command",
    [MessageAccept(((0, 0),)), MessageReject(((0, 0),)), MessageRelease(((0, 0),), set_redelivered=True)],
    ids=lambda command: command.NAME,
)
def test_a_settlement_is_complete_when_it_is_on_disk(command: Any) -> None:
    client, _ = holding_durable(queue_type="quorum", delivery_limit=0)
    number = client.command(command, disk=False)
    assert client.idle()
    client.send_bytes(b"")
    client.completes(number)


@pytest.mark.parametrize("sync", [True, False])
def test_only_a_client_that_waits_hastens_the_sync_for_a_settlement(
    sync: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _ = holding_durable()
    urgent: list[bool] = []
    wait = client.server.await_sync

    def note(endpoint: Any, **given: bool) -> None:
        urgent.append(given.get("urgent", True))
        wait(endpoint)

    monkeypatch.setattr(client.server, "await_sync", note)
    number = client.command(MessageAccept(((0, 0),)), sync=sync, disk=False)
    assert urgent == [sync]
    client.command(ExecutionSync(), sync=False, disk=False)
    assert urgent == [sync, True]
    client.send_bytes(b"")
    client.completes(number)
    client.completes(number + 1)


def test_a_settlement_that_is_not_recorded_is_complete_at_once() -> None:
    client, _ = holding(2, durable=False)
    client.completes(client.command(MessageAccept(((0, 0),)), disk=False))
    client.command(TxSelect())
    client.inbox.clear()
    client.completes(client.command(MessageAccept(((1, 1),)), disk=False))


@pytest.mark.rule("FAIR-1")
def test_deliveries_do_not_wait_for_the_completion_of_a_settlement() -> None:
    client, _ = holding_durable()
    number = client.command(MessageAccept(((0, 0),)), disk=False)
    client.send_bytes(octets(client, b"1"), disk=False)
    content = client.expect_message(MessageTransfer).content
    assert content is not None
    assert content.body == b"1"
    assert client.idle()
    client.send_bytes(b"")
    client.completes(number)
    client.completes(number + 1)


@pytest.mark.parametrize("detaches", [True, False], ids=["session.detach", "a refused command"])
def test_a_session_ends_behind_the_completion_of_a_settlement(detaches: bool) -> None:
    client, _ = holding_durable()
    number = client.command(MessageAccept(((0, 0),)), disk=False)
    if detaches:
        client.send_bytes(client.control_octets(SessionDetach(b"session 1")), disk=False)
    else:
        client.send_bytes(client.octets(MessageReject(((0, 0),), 3)), disk=False)
    client.send_bytes(client.control_octets(SessionAttach(b"another"), 2), disk=False)
    assert client.expect_message(SessionAttached).channel == 2
    client.expect(SessionCommandPoint)
    assert client.idle()
    client.send_bytes(b"")
    client.completes(number)
    if not detaches:
        client.expect(ExecutionException)
    client.expect(SessionDetached if detaches else SessionDetach)


@pytest.mark.rule("FAIR-1")
def test_a_huge_range_of_unknown_deliveries_is_cheap_and_harmless() -> None:
    client, found = holding(2)
    requests = client.server.broker.engine.requests
    before = requests.left
    client.do(MessageAccept(((0x80000000, 0xFFFFFFFF), (5, 0x7FFFFFF0))))
    assert before - requests.left < 50
    assert found.unsettled == 2
    client.do(MessageAccept(((0, 0x7FFFFFFF),)))
    assert found.unsettled == 0


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    client, _ = holding(1)
    client.refused(MessageAccept(((0, 0xFFFFFFFF),)), ErrorCode.INVALID_ARGUMENT)


@pytest.mark.rule("FAIR-1")
@pytest.mark.parametrize("command", [MessageAccept, MessageRelease, MessageReject])
def test_many_deliveries_are_settled_in_several_turns(command: type[Any]) -> None:
    client, found = holding(0)
    for at in range(0, 12_000, 1000):
        publish(client, *[b"%d" % number for number in range(at, at + 1000)])
    client.inbox.clear()
    assert found.unsettled == 12_000
    server, port = client.server, client.port
    server.receive(port, client.octets(command(((0, 0x7FFFFFFF),))))
    server.end_one_turn()
    assert 0 < found.unsettled < 12_000
    server.end_turn()
    server.run_disk()
    assert found.unsettled == 0 or command is MessageRelease


@pytest.mark.parametrize(("marked", "redelivered"), [(False, False), (True, True)])
def test_a_release_says_whether_the_delivery_counts(marked: bool, redelivered: bool) -> None:
    client, found = holding(2)
    client.server.broker.engine.unsubscribe(next(iter(found.consumers)))
    client.do(MessageRelease(((0, 1),), set_redelivered=marked))
    assert (found.ready, found.unsettled) == (2, 0)
    assert again(client) == [(b"0", redelivered), (b"1", redelivered)]


def test_only_marked_releases_count_towards_the_delivery_limit() -> None:
    client, found = holding(1, queue_type="quorum", delivery_limit=1)
    for _ in range(5):
        client.command(MessageRelease(((0, 100),)))
        client.inbox.clear()
    assert found.unsettled == 1
    for _ in range(3):
        client.command(MessageRelease(((0, 100),), set_redelivered=True))
        client.inbox.clear()
    assert (found.ready, found.unsettled) == (0, 0)


@pytest.mark.parametrize("code", [*RejectCode, None])
def test_rejected_deliveries_are_dead_letters(code: RejectCode | None) -> None:
    client, found = holding(3, dead_letter_exchange="", dead_letter_routing_key="dead")
    dead = queue(client.server, "dead")
    client.do(MessageReject(((0, 1),), code, "why"))
    assert (found.unsettled, dead.ready) == (1, 2)
    subscribe(client, "dead", to="dead")
    first = delivered(client)[0]
    assert first.properties is not None
    assert first.properties.application_headers is not None
    assert first.properties.application_headers["x-first-death-queue"] == "q"


def test_an_unknown_reject_code_is_refused() -> None:
    client, _ = holding(1)
    client.refused(MessageReject(((0, 0),), 3), ErrorCode.INVALID_ARGUMENT)


def browsing(count: int = 3) -> tuple[Client, Queue]:
    client = Client()
    found = queue(client.server)
    publish(client, *[b"%d" % number for number in range(count)])
    client.inbox.clear()
    subscribe(client, acquire_mode=1)
    shown = delivered(client)
    assert [(one.body, one.transfer.acquire_mode) for one in shown] == [(b"%d" % n, 1) for n in range(count)]
    assert (found.ready, found.unsettled) == (count, 0)
    return client, found


def test_shown_messages_can_be_acquired_once() -> None:
    client, found = browsing()
    assert client.do(MessageAcquire(((0, 1),))) == Acquired(((0, 1),))
    assert (found.ready, found.unsettled) == (1, 2)
    assert client.do(MessageAcquire(((0, 2),))) == Acquired(((2, 2),))
    client.do(MessageAccept(((0, 2),)))
    assert (found.ready, found.unsettled) == (0, 0)


def test_messages_that_others_have_taken_are_not_acquired() -> None:
    client, found = browsing()
    subscribe(client, to="taker", credit=1)
    assert bodies(client) == [b"0"]
    assert client.do(MessageAcquire(((0, 2),))) == Acquired(((1, 2),))
    assert found.unsettled == 3


def test_what_is_not_acquired_can_be_neither_accepted_nor_rejected() -> None:
    client, found = browsing()
    client.do(MessageAccept(((0, 0),)))
    client.do(MessageReject(((1, 1),), 0))
    assert found.ready == 3
    client.do(MessageRelease(((0, 1),)))
    assert client.do(MessageAcquire(((0, 2),))) == Acquired(((2, 2),))


def test_acquired_messages_return_when_they_are_released() -> None:
    client, found = browsing()
    client.do(MessageAcquire(((0, 2),)))
    client.command(MessageRelease(((0, 2),)))
    assert (found.ready, found.unsettled) == (3, 0)


@pytest.mark.rule("TX-4")
def test_after_a_rollback_the_client_still_has_what_it_accepted() -> None:
    client, found = holding(3)
    broker = client.server.broker
    session = client.port.endpoint.sessions[1]
    session.branch = broker.transactions.begin(Limits(), Watch(broker.engine.deadlines, 0, lambda: None))
    client.do(MessageAccept(((0, 1),)))
    assert found.unsettled == 3
    broker.transactions.rollback(session.branch)
    assert (found.ready, found.unsettled) == (0, 3)
    broker.transactions.begin_again(session.branch)
    client.do(MessageAccept(((0, 2),)))
    broker.transactions.commit(session.branch)
    assert (found.ready, found.unsettled) == (0, 0)


@pytest.mark.rule("TX-13")
def test_an_acceptance_beyond_the_limit_of_a_transaction_is_undone() -> None:
    client, found = holding(3)
    broker = client.server.broker
    session = client.port.endpoint.sessions[1]
    session.branch = broker.transactions.begin(Limits(operations=1), Watch(broker.engine.deadlines, 0, lambda: None))
    number = client.command(MessageAccept(((0, 2),)))
    client.raised(ErrorCode.RESOURCE_LIMIT_EXCEEDED, number)
    assert (found.ready, found.unsettled) == (3, 0)


def test_settlements_complete_in_order() -> None:
    client, _ = holding(2)
    client.send_bytes(client.octets(MessageAccept(((0, 0),))) + client.octets(MessageReject(((1, 1),), 0)))
    assert isinstance(client.inbox[0].operation, SessionCompleted)
    client.completes(client.sent[1] - 2, client.sent[1] - 1)


@pytest.mark.rule("TX-4")
@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("redelivered", [False, True])
def test_what_was_accepted_and_then_released_returns_at_the_rollback(large: bool, redelivered: bool) -> None:
    """qpid-python releases everything before it rolls back."""
    client, found = holding(4)
    client.do(TxSelect())
    if large:
        client.server.broker.transactions.large = 0
    client.do(MessageAccept(((0, 2),)))
    client.do(MessageRelease(((0, 1),), set_redelivered=redelivered))
    assert found.unsettled == 4
    client.command(TxRollback())
    client.inbox = deque(one for one in client.inbox if isinstance(one.operation, MessageTransfer))
    assert found.unsettled == 4, "the session holds the last two, and gets the others again"
    assert [(one.body, one.delivery.redelivered) for one in delivered(client)] == [
        (b"0", redelivered),
        (b"1", redelivered),
    ]


@pytest.mark.rule("TX-5")
def test_what_was_released_after_its_acceptance_stays_accepted_by_the_commit() -> None:
    client, found = holding(2)
    client.do(TxSelect())
    client.do(MessageAccept(((0, 1),)))
    client.do(MessageRelease(((0, 1),)))
    client.do(TxCommit())
    assert (found.unsettled, found.ready) == (0, 0)
    client.do(TxRollback())
    assert (found.unsettled, found.ready) == (0, 0)


def turns_between(left: list[int]) -> int:
    """How many turns began between these steps, if `left` is the work that was left before each."""
    return len([now for now, later in pairwise(left) if later > now])


@pytest.mark.rule("FAIR-1")
@pytest.mark.parametrize("command", [MessageRelease, MessageAcquire])
def test_many_ranges_of_shown_messages_take_several_turns(command: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    client, _ = browsing()
    take, left = Shown.take, list[int]()

    def watched(shown: Shown, *args: int) -> Any:
        left.append(client.server.broker.engine.requests.left)
        return take(shown, *args)

    monkeypatch.setattr(Shown, "take", watched)
    client.command(command(tuple((number, number) for number in range(10, 8000, 2))))
    assert len(left) == 3995
    assert turns_between(left) > 3


@pytest.mark.rule("FAIR-1")
def test_many_ranges_released_before_a_rollback_take_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    client, _ = holding(6)
    client.do(TxSelect())
    client.do(MessageAccept(((0, 5),)))
    note, left = Subscriptions.release_after_rollback, list[int]()

    def watched(part: Subscriptions, ranges: list[tuple[int, int]], *, set_redelivered: bool) -> None:
        left.append(client.server.broker.engine.requests.left)
        note(part, ranges, set_redelivered=set_redelivered)

    monkeypatch.setattr(Subscriptions, "release_after_rollback", watched)
    client.do(MessageRelease(tuple((number, number) for number in range(10, 8000, 2))))
    assert turns_between(left) > 3


def test_releases_in_a_transaction_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MOST_RELEASED", 2)
    client, _ = holding(6)
    client.do(TxSelect())
    client.do(MessageAccept(((0, 5),)))
    client.do(MessageRelease(((0, 0), (2, 2))))
    client.refused(MessageRelease(((4, 4),)), 506)


@pytest.mark.rule("FAIR-1")
def test_no_more_ranges_are_acquired_than_a_result_can_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "_ACQUIRED", 20)
    monkeypatch.setattr(settling, "TOGETHER", 5)
    client = Client()
    found = queue(client.server)
    publish(client, *[b"x"] * 100)
    client.inbox.clear()
    subscribe(client, accept_mode=1, acquire_mode=1)
    client.command(MessageAcquire(tuple((number, number) for number in range(1, 40, 2))))
    client.inbox.clear()
    client.command(MessageAcquire(((0, 99),)))
    (result,) = [each.operation for each in client.inbox if isinstance(each.operation, ExecutionResult)]
    assert isinstance(result.value, Acquired)
    acquired = result.value.transfers or ()
    assert 20 <= len(acquired) <= 25
    assert found.unsettled == 20 + sum(last + 1 - first for first, last in acquired)
