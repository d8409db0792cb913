"""Keys of a block whose routes cannot differ are routed once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escrowmq.wire.amqp091 import spec
from tests.harness.blocks import block_of
from tests.unit.wire.amqp091.clients import queue
from tests.unit.wire.amqp091.test_block_layouts import own
from tests.unit.wire.amqp091.test_block_publishing import commit, publish, ready
from tests.unit.wire.amqp091.test_keyed_publishing import bind, deliveries

_KEYS = ["", "a", "b", ".", "a.b", "a.c", "b.c", "a.b.c", "a..c", "ab.c", "a.bc", "*", "#.a"]
_PATTERNS = ["#", "*", "a", "a.#", "a.b.#", "a.*", "*.*", "*.b", "*.*.c", "b.*.#", "a.b.c", "#.c", "a.#.c", ""]


@pytest.mark.parametrize(("pattern", "routed"), [("#", 1), ("orders.#", 2), ("*.*", 1), ("*.k1.*", 20), ("#.k1", 20)])
def test_keys_that_are_equal_as_far_as_they_are_read_are_routed_once(
    monkeypatch: pytest.MonkeyPatch, pattern: str, routed: int
) -> None:
    made, client = ready(pattern)
    vhost = made.broker.directory.vhost("/")
    route_each, asked = vhost.route_each, [0]

    def counting(exchange: str, names: Any) -> Any:
        asked[0] += len(names)
        return route_each(exchange, names)

    monkeypatch.setattr(vhost, "route_each", counting)
    sent = [own(number, key="orders.k" if number % 2 else "others.k") for number in range(20)]
    publish(client, block_of(*sent, layouts=[list(range(20))]))
    commit(client)
    assert asked == [routed]


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(_KEYS), min_size=1, max_size=30),
    st.lists(st.sampled_from(_PATTERNS), min_size=1, max_size=3, unique=True),
    st.lists(st.sampled_from(_PATTERNS), max_size=3, unique=True),
)
def test_messages_go_where_the_exchange_leads_each(keys: list[str], patterns: list[str], others: list[str]) -> None:
    made, client = ready(*patterns)
    queue(client, "other")
    bind(client, "other", *others)
    publish(client, block_of(*[(key, *own(number)[1:]) for number, key in enumerate(keys)]))
    commit(client)
    vhost = made.broker.directory.vhost("/")
    for name in ("q", "other"):
        wanted = [key for key in keys if name in {each.name for each in vhost.route("amq.topic", key)}]
        assert [key for key, _, _ in deliveries(client, name)] == wanted


def test_a_fanout_exchange_routes_a_block_once() -> None:
    _, client = ready()
    client.call(1, spec.QueueBind("q", "amq.fanout", ""), spec.QueueBindOk)
    publish(client, block_of(*[own(number) for number in range(20)], layouts=[list(range(20))]), "amq.fanout")
    commit(client)
    assert len(deliveries(client)) == 20
