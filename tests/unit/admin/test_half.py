"""The operators' view of half messages, and their decisions."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from escrowmq.admin.half import HalfAdmin
from escrowmq.admin.operation import OperationRefused
from escrowmq.admin.pieces import Pieces
from escrowmq.core.conditions import BrokerError
from escrowmq.core.half.options import CheckOptions
from escrowmq.wire.rocketmq.content import MessageContent, envelope_of
from escrowmq.wire.rocketmq.properties import render
from tests.unit.admin.processes import FakeProcess, done, perform
from tests.unit.core.half.half_site import AskedProducer
from tests.unit.wire.amqp091.clients import pair


class Bench:
    """A broker with three half messages: `a` is parked, `b` is committed, and `c` is pending."""

    def __init__(self) -> None:
        self.server, client = pair()
        client.declare(1, "q")
        self.half = self.server.broker.half
        self.half.options.check = CheckOptions(100, 100, 1)
        self.queue = self.server.broker.directory.vhost("/").queue("q")
        self.producer = AskedProducer("client-1", "guest")
        self.half.producers.join("/", "shop", self.producer)
        self.ids = [self.store("a")]
        self.after(100)
        self.after(100)
        self.ids.append(self.store("b"))
        self.half.commit("/", 2)
        self.ids.append(self.store("c"))
        self.admin = HalfAdmin(FakeProcess(self.server), Pieces())

    def store(self, ident: str, topic: str = "orders") -> str:
        envelope = envelope_of(topic, "k")
        content = MessageContent(render({"KEYS": "order-7", "UNIQ_KEY": ident, "mine": "m"}), b"body").pack()
        stored = self.half.store("/", topic, ident, envelope, content, self.queue, group="shop", user="guest")
        self.server.end_turn()
        self.server.run_disk()
        half = self.half.at("/", stored.number)
        assert half is not None
        return half.transaction_id

    def after(self, ms: int) -> None:
        self.server.now += ms
        self.server.end_turn()
        self.server.run_disk()

    def do(self, operation: str, **arguments: Any) -> Any:
        return perform(self.admin.operations, operation, **arguments)

    def states(self) -> dict[str, str]:
        return {row["message_id"]: row["state"] for row in self.do("half.list")}


@pytest.mark.rule("HALF-10")
def test_half_messages_and_their_outcomes_are_listed() -> None:
    bench = Bench()
    assert bench.states() == {"a": "parked", "b": "committed", "c": "pending"}
    row = bench.do("half.list", states=["parked"])[0]
    assert row == {
        "transaction": bench.ids[0],
        "number": 1,
        "vhost": "/",
        "topic": "orders",
        "group": "shop",
        "message_id": "a",
        "state": "parked",
        "seconds": 0,
        "checks": 1,
        "next_check": None,
        "decided": None,
        "waits_for_producer": False,
        "user": "guest",
        "producer": "",
        "queue": "q",
    }


def test_a_list_can_be_narrowed_down() -> None:
    bench = Bench()
    assert len(bench.do("half.list", vhost="/", topic="orders", states=["pending", "committed"])) == 2
    bench.server.broker.topics.declare(bench.server.broker.directory.vhost("/"), "other")
    assert bench.do("half.list", topic="other") == []


@pytest.mark.parametrize(("arguments", "text"), [({"topic": "nope"}, "no topic 'nope'"), ({"vhost": "x"}, "host 'x'")])
def test_an_unknown_topic_or_virtual_host_is_refused(arguments: dict[str, str], text: str) -> None:
    with pytest.raises(OperationRefused, match=text):
        Bench().do("half.list", **arguments)


@pytest.mark.rule("HALF-6")
def test_one_half_message_is_shown_with_its_routing_and_content() -> None:
    bench = Bench()
    row = bench.do("half.show", vhost="/", transaction=bench.ids[2])
    assert (row["exchange"], row["routing_key"], row["bytes"]) == ("orders", "k", 4)
    assert (row["tag"], row["keys"], row["properties"], row["body"]) == ("k", "order-7", {"mine": "m"}, "body")
    assert "bytes" not in bench.do("half.show", vhost="/", transaction=bench.ids[1])


@pytest.mark.rule("HALF-6")
@pytest.mark.parametrize(
    ("operation", "state"), [("commit", "committed"), ("drop", "rolled_back"), ("resume", "pending")]
)
def test_an_operator_decides_a_parked_message(operation: str, state: str, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    with caplog.at_level(logging.WARNING, "escrowmq.admin"):
        row = bench.do(f"half.{operation}", vhost="/", transaction=bench.ids[0])
    assert row["state"] == bench.states()["a"] == state
    assert "message id 'a', which had been parked" in caplog.text
    assert bench.queue.ready == (2 if operation == "commit" else 1)


def test_a_decided_message_is_not_decided_otherwise() -> None:
    bench = Bench()
    with pytest.raises(BrokerError, match="which is committed"):
        bench.do("half.drop", vhost="/", transaction=bench.ids[1])


def test_a_decision_that_is_repeated_leaves_no_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    assert bench.do("half.commit", vhost="/", transaction=bench.ids[1])["state"] == "committed"
    assert caplog.messages == []


@pytest.mark.rule("HALF-6")
def test_a_message_id_names_a_half_message_as_its_transaction_id_does() -> None:
    bench = Bench()
    assert bench.do("half.show", vhost="/", transaction="c")["transaction"] == bench.ids[2]
    assert bench.do("half.drop", vhost="/", transaction="a")["state"] == "rolled_back"
    bench.store("c", topic="other")
    with pytest.raises(OperationRefused, match=f"use one of the transaction ids {bench.ids[2]}, "):
        bench.do("half.commit", vhost="/", transaction="c")
    assert bench.states()["c"] == "pending"


def test_a_due_message_without_a_producer_waits_for_one() -> None:
    bench = Bench()
    row = bench.do("half.show", vhost="/", transaction="c")
    assert (row["next_check"], row["waits_for_producer"]) == (0, False)
    bench.half.producers.leave(bench.producer)
    assert not bench.do("half.show", vhost="/", transaction="c")["waits_for_producer"]
    bench.after(100)
    row = bench.do("half.show", vhost="/", transaction="c")
    assert (row["next_check"], row["waits_for_producer"]) == (None, True)


def test_an_unknown_transaction_is_refused() -> None:
    with pytest.raises(OperationRefused, match="no half message 00"):
        Bench().do("half.commit", vhost="/", transaction="00")


def test_the_summary_counts_undecided_half_messages_and_has_the_ages_of_the_oldest() -> None:
    bench = Bench()
    bench.after(3_000)
    bench.store("d")
    assert done(bench.admin.summary()) == {"pending": 2, "pending_seconds": 3, "parked": 1, "parked_seconds": 3}
