"""The operators' view of link termini, their release and their end."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.admin.links import LinkAdmin
from escrowmq.admin.operation import OperationRefused
from escrowmq.admin.pieces import Pieces
from escrowmq.core.messages.envelope import Envelope
from tests.unit.admin.processes import FakeProcess, perform
from tests.unit.core.termini.links import KEPT, TestedLink, incoming, outgoing
from tests.unit.wire.amqp091.clients import bodies, pair

CONSUMER = {"vhost": "/", "container": "c", "link": "l"}


class Bench:
    """A broker with a queue of two messages, which are unsettled on a link that was detached 5 s ago."""

    def __init__(self) -> None:
        self.server, client = pair()
        broker = self.server.broker
        client.declare(1, "q")
        client.publish(1, "q", b"a", b"b")
        self.link = TestedLink(broker, outgoing(), KEPT._replace(address="q", timeout_ms=60_000), user="guest")
        self.link.consume(broker.directory.vhost("/").queue("q"))
        self.server.end_turn()
        self.link.loan.detach()
        broker.engine.now += 5000
        self.admin = LinkAdmin(FakeProcess(self.server), Pieces())

    def do(self, operation: str, **arguments: Any) -> Any:
        return perform(self.admin.operations, operation, **arguments)


def test_every_terminus_is_listed_with_its_ages() -> None:
    bench = Bench()
    (row,) = bench.do("link.list")
    assert row == CONSUMER | {
        "role": "outgoing",
        "user": "guest",
        "state": "suspended",
        "seconds": 5,
        "unsettled": 2,
        "age": 5,
        "address": "q",
        "settles": "second",
        "durability": "unsettled-state",
        "expiry": "never",
        "timeout": 60,
        "expires": None,
    }


def test_a_terminus_that_will_expire_says_when() -> None:
    bench = Bench()
    termini = bench.server.broker.termini
    link = TestedLink(bench.server.broker, incoming(), user="guest")
    link.terminus.deadline = termini.engine.deadlines.set(termini.engine.now + 7999, lambda: None)
    row = bench.do("link.list")[1]
    assert (row["role"], row["state"], row["unsettled"], row["age"], row["expires"]) == (
        "incoming",
        "attached",
        0,
        None,
        7,
    )


def test_released_messages_are_ready_and_the_link_remains() -> None:
    bench = Bench()
    assert bodies(bench.server) == []
    assert bench.do("link.release", **CONSUMER) == 2
    assert bodies(bench.server) == [b"a", b"b"]
    assert bench.do("link.release", **CONSUMER) == 0
    assert outgoing() in bench.server.broker.termini.by_key


def test_deliveries_of_an_attached_link_are_not_released() -> None:
    bench = Bench()
    TestedLink(bench.server.broker, outgoing("m"), user="guest")
    with pytest.raises(OperationRefused, match="link 'm' of container 'c' is attached"):
        bench.do("link.release", vhost="/", container="c", link="m")


def test_an_expired_link_is_gone_and_its_messages_are_ready() -> None:
    bench = Bench()
    assert bench.do("link.expire", **CONSUMER, role="outgoing") == 2
    assert bodies(bench.server) == [b"a", b"b"]
    assert bench.server.broker.termini.by_key == {}


def test_an_expired_producer_is_told_and_its_tags_are_forgotten() -> None:
    bench = Bench()
    producer = TestedLink(bench.server.broker, incoming(), user="guest")
    queue = bench.server.broker.directory.vhost("/").queue("q")
    producer.loan.post(Envelope("", "q", durable=True), [b"c"], [queue], [b"1"])
    assert bench.do("link.expire", **CONSUMER, role="incoming") == 1
    assert producer.events == ["deleted"]


@pytest.mark.parametrize("operation", ["link.release", "link.expire"])
def test_an_unknown_link_is_refused(operation: str) -> None:
    role = {"role": "outgoing"} if operation == "link.expire" else {}
    with pytest.raises(OperationRefused, match="no outgoing link 'x' of container 'c' in vhost '/'"):
        Bench().do(operation, vhost="/", container="c", link="x", **role)


def test_an_unknown_role_is_refused() -> None:
    with pytest.raises(OperationRefused, match="incoming or outgoing"):
        Bench().do("link.expire", **CONSUMER, role="sideways")
