"""What a snapshot says of each queue; that a broker can be rebuilt from it is in test_recovery.py."""

from __future__ import annotations

import pytest

from escrowmq.core.records.changes import decode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.queue_state import QueueState, decode_queue_state
from escrowmq.core.recovery.snapshot import snapshot
from tests.unit.core.site import Site


def states(site: Site) -> dict[int, QueueState]:
    records = [(kind, b"".join(parts)) for kind, parts in snapshot(site.broker)]
    found = [decode_queue_state(payload) for kind, payload in records if kind is Kind.QUEUE_STATE]
    return {state.queue: state for state in found}


def rows(state: QueueState) -> list[tuple[int, int, int]]:
    """Position, LSN of the block, number in it."""
    return [
        (first + i, lsn, index + i)
        for first, lsn, count, index in zip(state.firsts, state.lsns, state.counts, state.indexes, strict=True)
        for i in range(count)
    ]


def test_names_come_before_what_they_hold() -> None:
    site = Site()
    site.queue("b")
    site.queue("a", durable=False)
    kinds = [kind for kind, _ in snapshot(site.broker)]
    assert kinds[0] is Kind.COUNTERS
    assert kinds[-1] is Kind.QUEUE_STATE
    assert kinds.count(Kind.QUEUE_STATE) == kinds.count(Kind.QUEUE_DECLARED) == 1
    counters = next(b"".join(parts) for kind, parts in snapshot(site.broker) if kind is Kind.COUNTERS)
    assert decode_change(counters) == {"next_queue": 3, "next_branch": 1}


@pytest.mark.parametrize("limit", [0, 400, 1 << 20])
def test_a_queue_holds_what_waits_and_what_clients_have(limit: int) -> None:
    site = Site(resident_limit=limit)
    queue = site.queue()
    site.publish("q", *[b"x"] * 10)
    site.publish("q", b"transient", durable=False)
    site.publish("q", b"y")
    consumer, sink = site.consume(queue, credit=4)
    site.broker.engine.holders[sink] = None
    site.turn()
    site.broker.engine.unsubscribe(consumer)
    site.broker.engine.requeue(consumer, [sink.got.pop(1)[1]])
    state = states(site)[queue.ident]
    assert [position for position, _, _ in rows(state)] == [*range(1, 11), 12]
    assert [index for _, _, index in rows(state)] == [*range(10), 0]
    assert (state.next_position, state.delivered_below) == (13, 5)
    assert state.deliveries == [(2, 1)]


def test_what_waits_for_the_disk_is_in_it() -> None:
    site = Site()
    queue = site.queue()
    site.publish("q", b"a")
    branch = site.begin()
    site.broker.transactions.enlist(branch, site.publication("q", b"b", b"c"))
    site.broker.transactions.enlist(branch, site.publication("q", b"transient", durable=False))
    site.broker.transactions.commit(branch)
    assert [position for position, _, _ in rows(states(site)[queue.ident])] == [1, 2, 3]


def test_priorities_are_in_order_of_position() -> None:
    site = Site(resident_limit=400)
    queue = site.queue(arguments={"x-max-priority": 5})
    for i in range(30):
        site.publish("q", b"x", priority=i * 7 % 6)
    assert [position for position, _, _ in rows(states(site)[queue.ident])] == list(range(1, 31))


def test_neighbours_are_one_reference() -> None:
    site = Site()
    queue = site.queue()
    site.publish("q", *[b"x"] * 1000)
    site.publish("q", *[b"y"] * 1000)
    assert len(states(site)[queue.ident].firsts) == 2


def test_it_is_the_state_of_the_moment_at_which_it_was_asked_for() -> None:
    site = Site()
    queue = site.queue()
    site.publish("q", b"a", b"b")
    taken = snapshot(site.broker)
    site.publish("q", b"c")
    site.broker.engine.get(queue, auto_settle=True)
    site.queue("later")
    records = list(taken)
    assert sum(kind is Kind.QUEUE_DECLARED for kind, _ in records) == 1
    state = decode_queue_state(b"".join(records[-1][1]))
    assert [position for position, _, _ in rows(state)] == [1, 2]
    assert state.next_position == 3
