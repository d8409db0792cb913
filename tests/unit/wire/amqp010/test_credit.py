"""Credit in messages and bytes, in both flow modes; flush and stop."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp010.codec.spec import (
    CreditUnit,
    ErrorCode,
    FlowMode,
    MessageFlow,
    MessageFlush,
    MessageSetFlowMode,
    MessageStop,
    MessageTransfer,
    SessionCompleted,
    SessionFlush,
)
from escrowmq.wire.amqp010.credit import INFINITE
from escrowmq.wire.amqp010.subscriptions import Subscriptions
from tests.unit.wire.amqp010.clients import Client, server
from tests.unit.wire.amqp010.messaging import bodies, flow, octets, publish, queue, subscribe

CREDIT, WINDOW = FlowMode.CREDIT, FlowMode.WINDOW


def with_messages(count: int = 6, size: int = 1) -> Client:
    client = Client()
    queue(client.server)
    publish(client, *[b"%d" % number * size for number in range(count)])
    client.inbox.clear()
    return client


def complete(client: Client, first: int, last: int) -> None:
    client.control(SessionCompleted(((first, last),)))


def test_a_subscription_begins_without_credit() -> None:
    client = with_messages()
    subscribe(client, credit=None, size=None)
    assert bodies(client) == []


@pytest.mark.parametrize(("credit", "size"), [(0, INFINITE), (INFINITE, 0), (5, None), (None, 5000)])
def test_zero_means_zero_in_each_unit(credit: int | None, size: int | None) -> None:
    client = with_messages()
    subscribe(client, credit=credit, size=size)
    assert bodies(client) == []


def test_credit_is_added() -> None:
    client = with_messages()
    subscribe(client, credit=1)
    flow(client, 2)
    assert len(bodies(client)) == 3


def test_in_window_mode_completion_restores_credit() -> None:
    client = with_messages()
    subscribe(client, credit=2)
    assert bodies(client) == [b"0", b"1"]
    complete(client, 0, 0)
    assert bodies(client) == [b"2"]
    complete(client, 0, 2)
    assert bodies(client) == [b"3", b"4"]


def test_in_credit_mode_completion_restores_nothing() -> None:
    client = with_messages()
    subscribe(client, credit=None, size=None)
    client.do(MessageSetFlowMode("d", CREDIT))
    client.do(MessageFlow("d", CreditUnit.BYTE, INFINITE))
    flow(client, 2)
    assert bodies(client) == [b"0", b"1"]
    complete(client, 0, 1)
    assert bodies(client) == []
    flow(client, 1)
    assert bodies(client) == [b"2"]


@pytest.mark.parametrize("mode", [CREDIT, WINDOW])
def test_bytes_are_those_of_header_and_body(mode: FlowMode) -> None:
    client = with_messages(4, 100)
    subscribe(client, credit=None, size=None)
    client.do(MessageSetFlowMode("d", mode))
    flow(client, INFINITE)
    header = 4 + 2 + 2 + 1 + 1 + 2  # size, code, flags, mode, exchange, routing key
    flow(client, 2 * (100 + header) - 1, CreditUnit.BYTE)
    assert len(bodies(client)) == 1
    flow(client, 1, CreditUnit.BYTE)
    assert len(bodies(client)) == 1
    complete(client, 0, 1)
    assert len(bodies(client)) == (2 if mode is WINDOW else 0)


@pytest.mark.parametrize(("credit", "size"), [(1, 0), (0, 1), (INFINITE, INFINITE)])
def test_the_mode_changes_only_without_credit(credit: int, size: int) -> None:
    client = Client()
    queue(client.server)
    subscribe(client, credit=credit, size=size)
    client.do(MessageSetFlowMode("d", WINDOW))
    client.refused(MessageSetFlowMode("d", CREDIT), ErrorCode.ILLEGAL_STATE)


def test_the_mode_changes_after_a_stop() -> None:
    client = with_messages()
    subscribe(client, credit=1)
    assert len(bodies(client)) == 1
    client.do(MessageStop("d"))
    client.do(MessageSetFlowMode("d", CREDIT))
    complete(client, 0, 0)
    assert bodies(client) == []


def test_a_stop_ends_unlimited_credit() -> None:
    client = with_messages(2)
    subscribe(client)
    assert len(bodies(client)) == 2
    client.do(MessageStop("d"))
    publish(client, b"more")
    client.expect(SessionCompleted)
    complete(client, 0, 1)
    assert bodies(client) == []
    flow(client, 1)
    assert bodies(client) == []
    flow(client, INFINITE, CreditUnit.BYTE)
    assert bodies(client) == [b"more"]


def test_a_flush_is_completed_after_everything_that_is_ready() -> None:
    client = with_messages(3)
    subscribe(client, credit=None)
    flushed = client.sent[1] + 1
    data = client.octets(MessageFlow("d", CreditUnit.MESSAGE, 10)) + client.octets(MessageFlush("d"))
    client.send_bytes(data)
    kinds = [(type(one.operation), getattr(one.operation, "commands", None)) for one in client.inbox]
    assert [kind for kind, _ in kinds[:3]] == [MessageTransfer] * 3
    assert kinds[-1] == (SessionCompleted, ((flushed - 1, flushed),))
    client.inbox.clear()
    publish(client, b"later")
    client.expect(SessionCompleted)
    assert bodies(client) == []


def test_a_flush_of_an_empty_queue_is_completed() -> None:
    client = Client()
    queue(client.server)
    subscribe(client)
    client.do(MessageFlush("d"))
    client.do(MessageFlush("d"))
    publish(client, b"1")
    client.expect(SessionCompleted)
    assert bodies(client) == []


def test_a_flush_ends_when_a_message_is_larger_than_the_credit() -> None:
    client = with_messages(1, 1000)
    subscribe(client, size=500)
    client.do(MessageFlush("d"))
    flow(client, 5000, CreditUnit.BYTE)
    assert bodies(client) == []
    flow(client, 1)
    assert len(bodies(client)) == 1


@pytest.mark.parametrize("size", [INFINITE, 10_000])
def test_transfers_before_a_stop_restore_nothing(size: int) -> None:
    client = with_messages(8)
    subscribe(client, credit=2, size=size)
    assert len(bodies(client)) == 2
    client.do(MessageStop("d"))
    flow(client, size, CreditUnit.BYTE)
    flow(client, 3)
    assert len(bodies(client)) == 3
    complete(client, 0, 1)
    assert bodies(client) == []
    complete(client, 2, 3)
    assert len(bodies(client)) == 2


def test_a_stop_completes_a_flush() -> None:
    client = with_messages(1)
    subscribe(client, credit=None)
    client.send_bytes(client.octets(MessageFlush("d")) + client.octets(MessageStop("d")))
    client.completes(client.sent[1] - 2, client.sent[1] - 1)


@pytest.mark.parametrize(
    "command",
    [
        MessageFlow("none", 0, 1),
        MessageSetFlowMode("none", 0),
        MessageFlush("none"),
        MessageStop("none"),
    ],
)
def test_an_unknown_destination_is_refused(command: MessageFlow) -> None:
    Client().refused(command, ErrorCode.NOT_FOUND)


@pytest.mark.parametrize("command", [MessageFlow("d", 2, 1), MessageSetFlowMode("d", 2)])
def test_unknown_units_and_modes_are_refused(command: MessageFlow) -> None:
    client = Client()
    queue(client.server)
    subscribe(client, credit=None, size=None)
    client.refused(command, ErrorCode.INVALID_ARGUMENT)


def test_unlimited_credit_keeps_no_record_of_transfers() -> None:
    client = with_messages(1)
    subscribe(client)
    for number in range(50):
        client.send_bytes(octets(client, b"%d" % number))
    assert len(client.port.endpoint.sessions[1].part(Subscriptions).in_flight) == 0


@pytest.mark.rule("FAIR-1")
def test_flushes_that_are_pending_are_limited() -> None:
    client = Client(server(unsettled=1))
    queue(client.server)
    subscribe(client)
    publish(client, b"a")
    publish(client, b"b")  # waits until the first one is settled, and so does the flush
    client.inbox.clear()
    client.send_bytes(
        b"".join(client.octets(MessageFlush("d")) + client.octets(MessageFlow("d", 0, 0)) for _ in range(100))
    )
    client.control(SessionFlush(completed=True))
    told = [each.operation for each in client.inbox if isinstance(each.operation, SessionCompleted)]
    assert len(told[-1].commands or ()) == 101
    client.inbox.clear()
    client.refused(MessageFlush("d"), ErrorCode.RESOURCE_LIMIT_EXCEEDED)


def test_a_flush_that_is_complete_does_not_count() -> None:
    client = Client()
    queue(client.server)
    subscribe(client)
    for _ in range(101):
        client.do(MessageFlush("d"))
