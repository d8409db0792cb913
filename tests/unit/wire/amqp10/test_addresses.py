"""Addresses, in the order in which their forms are tried."""

from __future__ import annotations

import pytest

from escrowmq.wire.addresses import exchange_address, queue_address
from escrowmq.wire.amqp10.addresses import NodeAddress, NodeKind, parse
from escrowmq.wire.amqp10.errors import INVALID_FIELD, AmqpFault

QUEUE, EXCHANGE, TOPIC, ANY = NodeKind.QUEUE, NodeKind.EXCHANGE, NodeKind.TOPIC, NodeKind.ANY


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("/queues/q", NodeAddress(QUEUE, "q")),
        ("/queues/a%2Fb%C3%A9+c", NodeAddress(QUEUE, "a/bé+c")),
        ("/exchanges/x/k", NodeAddress(EXCHANGE, "x", "k")),
        ("/exchanges/x", NodeAddress(EXCHANGE, "x", "")),
        ("/exchanges/x/a%2Fb", NodeAddress(EXCHANGE, "x", "a/b")),
        ("/exchange/x/k", NodeAddress(EXCHANGE, "x", "k")),
        ("/exchange/x", NodeAddress(EXCHANGE, "x", None)),
        ("/topic/a.b", NodeAddress(EXCHANGE, "amq.topic", "a.b")),
        ("/queue/q", NodeAddress(QUEUE, "q", exact=False)),
        ("/amq/queue/q", NodeAddress(QUEUE, "q")),
        ("queue://q", NodeAddress(QUEUE, "q", exact=False)),
        ("topic://t", NodeAddress(TOPIC, "t", exact=False)),
        ("q", NodeAddress(ANY, "q", exact=False)),
        ("x/k", NodeAddress(ANY, "x/k", exact=False)),
        ("$management", NodeAddress(ANY, "$management", exact=True)),
        ("/management", NodeAddress(ANY, "/management", exact=True)),
    ],
)
def test_an_address_names_a_node(address: str, expected: NodeAddress) -> None:
    assert parse(address) == expected


@pytest.mark.parametrize(
    ("capability", "kind"),
    [("queue", QUEUE), ("temporary-queue", QUEUE), ("topic", TOPIC), ("temporary-topic", TOPIC), ("other", ANY)],
)
def test_a_capability_decides_where_no_prefix_does(capability: str, kind: NodeKind) -> None:
    assert parse("n", (capability,)) == NodeAddress(kind, "n", exact=False)
    assert parse("topic://n", (capability,)).kind is TOPIC


@pytest.mark.parametrize(
    "address",
    [
        "/queues/",
        "/queues/a/b",
        "/queues/%",
        "/queues/%4",
        "/queues/%zz",
        "/queues/%ff",
        "/exchanges/",
        "/exchanges/x/a/b",
        "queue://",
        "q" * 256,
        "/exchanges/x/" + "é" * 128,
    ],
)
def test_a_malformed_address_is_refused(address: str) -> None:
    with pytest.raises(AmqpFault) as caught:
        parse(address)
    assert caught.value.condition == INVALID_FIELD


@pytest.mark.parametrize("name", ["q", "a/b", "a b%", "é", "amq.gen-_x"])
def test_the_address_of_a_node_names_it(name: str) -> None:
    assert parse(queue_address(name)) == NodeAddress(QUEUE, name)
    assert parse(exchange_address(name)) == NodeAddress(EXCHANGE, name, "")
