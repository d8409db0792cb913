"""Recall of delayed messages by classic clients."""

from __future__ import annotations

import base64

import pytest

from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode
from escrowmq.wire.rocketmq.remoting.recalling import classic_handle
from tests.unit.wire.rocketmq.remoting.clients import Client, messages, server


def delayed(client: Client) -> str:
    """Send a message that is due after 10 seconds. Return its handle."""
    return client.publish("t", UNIQ_KEY="u", TIMER_DELAY_SEC="10").fields["recallHandle"]


def recall(client: Client, handle: str, topic: str = "t") -> ResultCode:
    fields = {"producerGroup": "p", "topic": topic, "recallHandle": handle}
    return ResultCode(client.call(Code.RECALL, fields).code)


def after_a_while(client: Client) -> int:
    """Return the number of messages in queue 0 after 10 seconds."""
    client.server.now += 10_000
    client.server.end_turn()
    return len(messages(client.pull("t").body))


@pytest.mark.rule("DLY-2")
def test_a_recalled_message_is_not_delivered() -> None:
    client = Client(server())
    handle = delayed(client)
    due = client.server.now + 10_000
    assert base64.urlsafe_b64decode(handle).decode().startswith(f"v1 t escrowmq {due} ")
    answer = client.ok(Code.RECALL, {"producerGroup": "p", "topic": "t", "recallHandle": handle})
    assert answer.fields == {"msgId": "u"}
    assert recall(client, handle) == ResultCode.ILLEGAL_OPERATION
    assert after_a_while(client) == 0


def test_a_message_that_was_delivered_cannot_be_recalled() -> None:
    client = Client(server())
    handle = delayed(client)
    assert after_a_while(client) == 1
    assert recall(client, handle) == ResultCode.ILLEGAL_OPERATION


def encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "handle",
    [
        "",
        "bad",
        "v1",
        encoded("v1 t b 5"),
        encoded("v2 t b 5 1-1-u"),
        encoded("v1 t b 5 1-x-u"),
        encoded("v1 u b 5 1-1-u"),
    ],
)
def test_a_malformed_handle_is_refused(handle: str) -> None:
    assert recall(Client(server()), handle) == ResultCode.ILLEGAL_OPERATION


def test_a_message_that_is_due_at_once_has_no_handle() -> None:
    client = Client(server())
    assert "recallHandle" not in client.publish("t", TIMER_DELIVER_MS="1").fields
    assert classic_handle("t", "b", "") == ""


@pytest.mark.rule("SEC-1")
def test_a_recall_takes_the_right_to_send() -> None:
    client = Client(server())
    handle = delayed(client)
    client.server.broker.access.set_permission("guest", "/", "^$", "^$", ".*")
    assert recall(client, handle) == ResultCode.NO_PERMISSION
    client.server.broker.access.set_permission("guest", "/", "^$", "^t$", ".*")
    assert recall(client, handle) == ResultCode.SUCCESS
