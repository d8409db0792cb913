"""Attaching: what is granted, and what is refused (SET-6)."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.wire.amqp10.codec.performatives import (
    FIRST,
    MIXED_MODE,
    RECEIVER,
    SECOND,
    SENDER,
    SETTLED_MODE,
    Attach,
    Detach,
)
from escrowmq.wire.amqp10.codec.states import OUTCOME_SYMBOLS, Accepted, Modified
from escrowmq.wire.amqp10.codec.termini import Source, Target
from escrowmq.wire.amqp10.codec.types import Described, Symbol
from escrowmq.wire.amqp10.errors import INVALID_FIELD, NOT_FOUND, NOT_IMPLEMENTED, RESOURCE_LOCKED
from tests.unit.wire.amqp10.clients import Client, connected


@pytest.mark.rule("SET-6")
def test_a_producer_learns_what_is_granted() -> None:
    made, client = connected()
    asked = Target("q", durable=2, expiry_policy="never", timeout=60, capabilities=(Symbol("queue"),))
    answer = client.sender(None, target=asked, snd_settle_mode=MIXED_MODE, rcv_settle_mode=SECOND)
    assert answer.target == asked
    assert (answer.role, answer.snd_settle_mode, answer.rcv_settle_mode) == (RECEIVER, MIXED_MODE, SECOND)
    assert answer.max_message_size == made.limits.message_size
    assert answer.unsettled is None


@pytest.mark.rule("SET-6")
def test_a_consumer_learns_what_is_granted() -> None:
    _, client = connected()
    asked = Source("q", durable=2, expiry_policy="never", timeout=60, filter={Symbol("unknown"): "x"})
    answer = client.receiver(None, source=asked)
    assert answer.source == Source(
        "q",
        durable=1,
        expiry_policy="never",
        timeout=60,
        default_outcome=Modified(delivery_failed=True),
        outcomes=OUTCOME_SYMBOLS,
    )
    assert (answer.role, answer.initial_delivery_count, answer.rcv_settle_mode) == (SENDER, 0, FIRST)
    assert answer.target == Target()


def test_outcomes_of_a_source_are_kept() -> None:
    _, client = connected()
    asked = Source("q", outcomes=(OUTCOME_SYMBOLS[0],), default_outcome=Accepted())
    granted = client.receiver(None, source=asked).source
    assert granted is not None
    assert (granted.outcomes, granted.default_outcome) == ((OUTCOME_SYMBOLS[0],), Accepted())


def test_presettled_deliveries_are_granted() -> None:
    _, client = connected()
    assert client.receiver("q", settled=True).snd_settle_mode == SETTLED_MODE


def selector(key: str, descriptor: Any = None) -> Source:
    value: Any = "a = 1"
    return Source("q", filter={Symbol(key): Described(descriptor, value) if descriptor is not None else value})


@pytest.mark.rule("SET-6")
@pytest.mark.parametrize(
    ("fields", "condition"),
    [
        ({"source": Source("/queues/nope")}, NOT_FOUND),
        ({"source": Source("/exchanges/nope")}, NOT_FOUND),
        ({"source": Source("$management")}, NOT_FOUND),
        ({"source": Source("/queues/%")}, INVALID_FIELD),
        ({"source": Source()}, INVALID_FIELD),
        ({"source": None}, NOT_FOUND),
        ({"source": Source("q"), "name": ""}, INVALID_FIELD),
    ],
)
def test_a_consumer_is_refused(fields: dict[str, Any], condition: str) -> None:
    _, client = connected()
    client.refused(Attach(**{"name": "l", "handle": 3, "role": RECEIVER, **fields}), condition)
    client.receiver("q")


@pytest.mark.rule("SET-6")
@pytest.mark.parametrize(
    ("fields", "condition"),
    [
        ({"target": Target("/queues/nope")}, NOT_FOUND),
        ({"target": Target("/exchanges/nope/k")}, NOT_FOUND),
        ({"target": None}, NOT_FOUND),
        ({"target": Target("q"), "initial_delivery_count": None}, INVALID_FIELD),
    ],
)
def test_a_producer_is_refused(fields: dict[str, Any], condition: str) -> None:
    _, client = connected()
    asked = {"name": "l", "handle": 3, "role": SENDER, "source": Source(), "initial_delivery_count": 0, **fields}
    client.refused(Attach(**asked), condition)
    client.sender("q")


def test_an_exclusive_queue_of_another_connection_is_refused() -> None:
    made, client = connected()
    node = client.receiver(None, source=Source(dynamic=True)).source
    assert node is not None
    other = Client(made, container="other")
    other.refused(Attach("l", 0, RECEIVER, source=Source(node.address)), RESOURCE_LOCKED)
    other.sender(node.address)


@pytest.mark.parametrize(
    "source",
    [
        Source(dynamic=True, durable=9),
        Source(dynamic=True, capabilities=(Symbol("topic"),), durable=9),
        Source("amq.fanout", durable=9),
        Source("amq.fanout", durable=9, capabilities=(Symbol("shared"),)),
    ],
)
def test_a_refused_consumer_leaves_no_queue_behind(source: Source) -> None:
    made, client = connected()
    vhost = made.broker.directory.vhost("/")
    before = set(vhost.queues), set(vhost.exchanges)
    client.send(0, Attach("l", 1, RECEIVER, source=source, target=Target()))
    client.expect(Attach)
    assert client.expect(Detach).error is not None
    assert (set(vhost.queues), set(vhost.exchanges)) == before


@pytest.mark.parametrize("capabilities", [(), (Symbol("topic"),)])
def test_a_refused_producer_leaves_no_node_behind(capabilities: tuple[Symbol, ...]) -> None:
    made, client = connected()
    vhost = made.broker.directory.vhost("/")
    before = set(vhost.queues), set(vhost.exchanges)
    target = Target(dynamic=True, durable=9, capabilities=capabilities)
    client.refused(Attach("l", 1, SENDER, target=target, initial_delivery_count=0), INVALID_FIELD)
    assert (set(vhost.queues), set(vhost.exchanges)) == before


@pytest.mark.rule("SET-6")
@pytest.mark.parametrize("role", [SENDER, RECEIVER])
def test_claims_based_security_is_refused(role: bool) -> None:
    made, client = connected()
    source, target = (Source(), Target("$cbs")) if role == SENDER else (Source("$cbs"), Target())
    client.refused(Attach("l", 0, role, source=source, target=target, initial_delivery_count=0), NOT_IMPLEMENTED)
    assert "$cbs" not in made.broker.directory.vhost("/").queues
