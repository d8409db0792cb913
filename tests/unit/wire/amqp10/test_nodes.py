"""Nodes: queues and exchanges by all their addresses, automatic creation, dynamic nodes."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp10.codec.performatives import RECEIVER, SENDER, Attach, Detach
from escrowmq.wire.amqp10.codec.states import Accepted, Released
from escrowmq.wire.amqp10.codec.termini import DeleteOnClose, DeleteOnNoLinks, Source, Target
from escrowmq.wire.amqp10.codec.types import Symbol
from escrowmq.wire.amqp10.errors import INVALID_FIELD, NOT_FOUND, NOT_IMPLEMENTED, PRECONDITION_FAILED
from tests.unit.wire.amqp10.clients import Client, Server, connected

LIFETIME = Symbol("lifetime-policy")


def queues(made: Server) -> list[str]:
    return sorted(made.broker.directory.vhost("/").queues)


@pytest.mark.parametrize(
    "address", ["q", "/queues/q", "/queue/q", "/amq/queue/q", "queue://q", "/exchanges/amq.topic/k"]
)
def test_a_message_reaches_its_queue(address: str) -> None:
    made, client = connected()
    made.broker.directory.bind_queue(made.broker.directory.vhost("/"), "amq.topic", "q", "k")
    client.sender(address)
    client.post(0)
    assert client.outcome(0).state == Accepted()
    assert made.broker.directory.vhost("/").queue("q").ready == 1


@pytest.mark.parametrize(
    ("address", "routed"),
    [("/exchanges/amq.topic/other", False), ("/exchange/amq.topic/k", True), ("amq.topic/k", True), ("/topic/k", True)],
)
def test_an_address_may_contain_the_routing_key(address: str, routed: bool) -> None:
    made, client = connected()
    made.broker.directory.bind_queue(made.broker.directory.vhost("/"), "amq.topic", "q", "k")
    client.sender(address)
    client.post(0)
    assert client.outcome(0).state == (Accepted() if routed else Released())


@pytest.mark.parametrize("address", ["new", "/queue/new", "queue://new"])
def test_a_plain_name_creates_a_durable_queue(address: str) -> None:
    made, client = connected()
    client.sender(address)
    assert made.broker.directory.vhost("/").queue("new").durable
    client.receiver(address)


def test_a_topic_is_created_as_a_fanout_exchange() -> None:
    made, client = connected()
    client.sender(None, target=Target("t", capabilities=(Symbol("topic"),)))
    exchange = made.broker.directory.vhost("/").exchange("t")
    assert (exchange.kind, exchange.durable) == ("fanout", True)


def test_nothing_is_created_where_that_is_switched_off() -> None:
    made, client = connected()
    made.limits = type(made.limits)(auto_create=False)
    other = Client(made)
    other.refused(Attach("l", 0, SENDER, target=Target("new"), initial_delivery_count=0), NOT_FOUND)
    assert queues(made) == ["q"]
    assert client.idle()


@pytest.mark.parametrize(
    ("address", "exchange", "key"),
    [
        ("amq.fanout", "amq.fanout", ""),
        ("amq.topic", "amq.topic", "a.b"),
        ("/exchanges/amq.direct/k", "amq.direct", "k"),
    ],
)
def test_a_consumer_of_an_exchange_gets_a_queue_of_its_own(address: str, exchange: str, key: str) -> None:
    made, client = connected()
    client.receiver(address, credit=1)
    assert len(queues(made)) == 2
    client.sender(f"/exchanges/{exchange}/{key}")
    client.post(0, b"a")
    assert (0, b"a") in client.deliveries() or client.deliveries() == [(0, b"a")] or client.inbox
    client.inbox.clear()
    client.send(0, Detach(handle=1, closed=True))
    assert queues(made) == ["q"]


@pytest.mark.parametrize("role", [SENDER, RECEIVER])
def test_a_dynamic_node_lives_as_long_as_its_link(role: bool) -> None:
    made, client = connected()
    terminus = {"dynamic": True, "dynamic_node_properties": {LIFETIME: DeleteOnClose()}}
    if role == SENDER:
        node = client.sender(None, 3, target=Target(**terminus)).target  # type: ignore[arg-type]
    else:
        node = client.receiver(None, 3, source=Source(**terminus)).source  # type: ignore[assignment,arg-type]
    assert isinstance(node, Source | Target)
    assert node.dynamic_node_properties == {LIFETIME: DeleteOnClose()}
    assert node.address is not None
    client.sender(node.address, 0)
    client.post(0)
    assert client.outcome(0).state == Accepted()
    client.send(0, Detach(handle=3, closed=True))
    assert queues(made) == ["q"]


def test_dynamic_nodes_end_with_their_connection() -> None:
    made, client = connected()
    client.sender(None, target=Target(dynamic=True))
    assert len(queues(made)) == 2
    made.lose(client.port)
    assert queues(made) == ["q"]


@pytest.mark.parametrize(
    ("target", "condition"),
    [
        (Target("x", dynamic=True), PRECONDITION_FAILED),
        (Target(dynamic=True, dynamic_node_properties={LIFETIME: Symbol("soon")}), INVALID_FIELD),
        (
            Target(
                dynamic=True,
                dynamic_node_properties={LIFETIME: DeleteOnNoLinks()},
                capabilities=(Symbol("topic"),),
            ),
            NOT_IMPLEMENTED,
        ),
    ],
)
def test_a_dynamic_node_that_is_impossible_is_refused(target: Target, condition: str) -> None:
    made, client = connected()
    client.refused(Attach("l", 0, SENDER, target=target, initial_delivery_count=0), condition)
    assert queues(made) == ["q"]
