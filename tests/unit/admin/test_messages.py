"""Operations that publish and take messages."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from escrowmq.admin import messages
from escrowmq.admin.authority import Authority
from escrowmq.admin.messages import MOST_MESSAGES, PIECE, MessageAdmin
from escrowmq.admin.operation import OperationRefused
from escrowmq.core.conditions import BrokerError, Condition
from tests.unit.admin.processes import FakeProcess, perform
from tests.unit.wire.amqp091.clients import pair


class Bench:
    """A broker with the queue `q` and the user `u`, who may use only what is named `mine`."""

    def __init__(self, **arguments: Any) -> None:
        self.server, self.client = pair()
        self.client.declare(1, "q", arguments=arguments)
        self.broker = self.server.broker
        self.queue = self.broker.directory.vhost("/").queues["q"]
        self.broker.access.add_user("u", "hash", ("management",))
        self.broker.access.set_permission("u", "/", "mine", "mine", "mine")
        self.others = list(self.broker.engine.holders)
        self.process = FakeProcess(self.server)
        self.operations = MessageAdmin(self.process, Authority(self.broker)).operations

    def holders(self) -> list[Any]:
        return [holder for holder in self.broker.engine.holders if holder not in self.others]

    def publish(self, payload: str = "body", **arguments: Any) -> Any:
        given = {"exchange": "", "routing_key": "q", "properties": {}} | arguments
        return perform(self.operations, "message.publish", vhost="/", payload=payload, **given)

    def get(self, count: int = 1, **arguments: Any) -> Any:
        return perform(self.operations, "message.get", vhost="/", queue="q", count=count, **arguments)

    def refusal(self, operation: str, **arguments: Any) -> Condition:
        with pytest.raises(BrokerError) as refused:
            getattr(self, operation)(**arguments)
        return refused.value.condition


def test_a_message_is_published_and_taken_with_its_properties() -> None:
    bench = Bench()
    properties = {"delivery_mode": 2, "headers": {"n": 1, "t": {"a": [True, None, 1.5]}}, "message_id": "m"}
    assert bench.publish(properties=properties) is True
    assert bench.get() == [
        {
            "payload_bytes": 4,
            "redelivered": False,
            "exchange": "",
            "routing_key": "q",
            "message_count": 0,
            "properties": properties,
            "payload": "body",
            "payload_encoding": "string",
        }
    ]
    assert [row["redelivered"] for row in bench.get()] == [True], "it returned to its place"


def test_a_message_that_no_queue_takes_is_not_routed() -> None:
    assert Bench().publish(routing_key="none") is False


def test_publishes_are_counted_with_their_answers() -> None:
    bench = Bench(**{"x-max-length": 2, "x-overflow": "reject-publish"})
    for key in ("q", "q", "none"):
        bench.publish(routing_key=key)
    with pytest.raises(OperationRefused):
        bench.publish()
    counted = bench.broker.engine.counters.traffic["/", "http"]
    assert (counted.received, counted.to_confirm, counted.confirmed, counted.refused) == (4, 4, 3, 1)
    assert (counted.returned, counted.dropped) == (1, 0)


@pytest.mark.parametrize(("disposition", "left"), [("requeue", 3), ("accept", 1), ("reject", 1)])
def test_messages_return_or_leave(disposition: str, left: int) -> None:
    bench = Bench()
    for number in range(3):
        bench.publish(str(number))
    rows = bench.get(2, disposition=disposition)
    assert [(row["payload"], row["message_count"]) for row in rows] == [("0", 2), ("1", 1)]
    assert (bench.queue.ready, bench.queue.unsettled) == (left, 0)
    assert bench.holders() == []


def test_rejected_messages_are_dead_letters() -> None:
    bench = Bench(**{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    bench.client.declare(1, "dead")
    bench.publish()
    bench.get(disposition="reject")
    bench.server.end_turn()
    assert bench.broker.directory.vhost("/").queues["dead"].ready == 1


@pytest.mark.rule("FAIR-1")
def test_many_messages_are_taken_over_several_turns_and_held_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    for _ in range(3 * PIECE):
        bench.publish()
    held: list[int] = []

    async def turn() -> None:
        bench.server.end_turn()
        (holder,) = bench.holders()
        held.append(sum(len(entries) for _, entries in holder.held()))
        assert [len(holder.held_part(1, 2)), holder.copy_ahead(0, 10)] == [2, (1, 0)]

    monkeypatch.setattr(bench.process, "turn", turn)
    assert len(bench.get(MOST_MESSAGES)) == 3 * PIECE
    assert held == [PIECE, 2 * PIECE, 3 * PIECE]
    assert bench.queue.ready == 3 * PIECE


def test_no_more_messages_are_taken_than_an_answer_should_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MOST_BYTES", 5)
    bench = Bench()
    for _ in range(2 * PIECE):
        bench.publish()
    assert len(bench.get(2 * PIECE)) == PIECE


def test_messages_return_if_the_client_is_gone() -> None:
    bench = Bench()
    bench.publish()

    async def leave() -> None:
        task = asyncio.ensure_future(bench.operations["message.get"](vhost="/", queue="q", count=5))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(leave())
    assert (bench.queue.ready, bench.holders()) == (1, [])


def test_a_queue_that_is_deleted_meanwhile_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    for _ in range(PIECE + 1):
        bench.publish()

    async def turn() -> None:
        bench.server.end_turn()
        if not bench.queue.deleted:
            bench.broker.directory.delete_queue(bench.queue)

    monkeypatch.setattr(bench.process, "turn", turn)
    assert len(bench.get(2 * PIECE)) == PIECE
    assert bench.holders() == []


def test_a_body_that_is_no_text_is_in_base64() -> None:
    bench = Bench()
    bench.publish(base64.b64encode(b"\xff\x00").decode(), payload_encoding="base64")
    (row,) = bench.get()
    assert (row["payload"], row["payload_encoding"]) == (base64.b64encode(b"\xff\x00").decode(), "base64")
    (row,) = bench.get(encoding="base64", truncate=1)
    assert (row["payload"], row["payload_bytes"]) == (base64.b64encode(b"\xff").decode(), 2)


def test_a_truncated_text_may_end_within_a_character() -> None:
    bench = Bench()
    bench.publish("é")
    assert bench.get(truncate=1)[0]["payload_encoding"] == "base64"


@pytest.mark.rule("SEC-1")
def test_the_user_who_asks_needs_permissions() -> None:
    assert Bench().refusal("publish", by="u") is Condition.ACCESS_REFUSED
    assert Bench().refusal("get", by="u") is Condition.ACCESS_REFUSED


@pytest.mark.parametrize(
    ("given", "condition"),
    [
        ({"properties": {"colour": 1}}, Condition.INVALID_ARGUMENT),
        ({"properties": {"priority": 1000}}, Condition.INVALID_ARGUMENT),
        ({"properties": {"headers": []}}, Condition.INVALID_ARGUMENT),
        ({"properties": {"message_id": 5}}, Condition.INVALID_ARGUMENT),
        ({"properties": {"priority": 1.5}}, Condition.INVALID_ARGUMENT),
        ({"properties": {"timestamp": True}}, Condition.INVALID_ARGUMENT),
        ({"properties": {"headers": {"h": "x" * 70_000}}}, Condition.INVALID_ARGUMENT),
        ({"properties": {"expiration": "soon"}}, Condition.PRECONDITION_FAILED),
        ({"properties": {"user_id": "other"}, "by": "guest"}, Condition.PRECONDITION_FAILED),
        ({"exchange": "none"}, Condition.NOT_FOUND),
        ({"routing_key": "k" * 256}, Condition.INVALID_ARGUMENT),
    ],
)
def test_what_cannot_be_published_is_refused(given: dict[str, Any], condition: Condition) -> None:
    assert Bench().refusal("publish", **given) is condition


@pytest.mark.parametrize(
    "given", [{"payload": "!", "payload_encoding": "base64"}, {"payload_encoding": "x"}, {"payload": "\ud800"}]
)
def test_a_payload_that_cannot_be_decoded_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(OperationRefused):
        Bench().publish(**given)


def test_a_full_queue_that_refuses_messages_says_so() -> None:
    bench = Bench(**{"x-max-length": 1, "x-overflow": "reject-publish"})
    assert bench.publish()
    with pytest.raises(OperationRefused, match="limit"):
        bench.publish()
    assert bench.queue.ready == 1


def test_nothing_is_published_while_memory_is_scarce() -> None:
    bench = Bench()
    bench.broker.engine.scarcity = "short of memory"
    assert bench.refusal("publish") is Condition.LIMIT_EXCEEDED


@pytest.mark.parametrize(
    "given",
    [{"count": 0}, {"count": MOST_MESSAGES + 1}, {"encoding": "x"}, {"truncate": -1}, {"disposition": "x"}],
)
def test_an_invalid_get_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(OperationRefused):
        Bench().get(**given)


def test_messages_of_a_stream_are_not_taken() -> None:
    bench = Bench(**{"x-queue-type": "stream"})
    assert bench.refusal("get") is Condition.NOT_IMPLEMENTED
