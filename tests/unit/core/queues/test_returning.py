"""Deliveries of a client that is gone return in pieces, and nothing overtakes them."""

from __future__ import annotations

import pytest

from escrowmq.core.messages.entry import Entry
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.queue import Queue
from escrowmq.core.queues.returning import Lists, Returning
from tests.unit.core.site import Sink, Site, taken


def given_back(count: int, piece: int) -> tuple[Site, Queue, Sink]:
    """A client has given back `count` deliveries of a queue with two further messages. Another client consumes."""
    site = Site()
    site.broker.engine.returns.piece = piece
    queue = site.queue()
    site.publish("q", *[b"%d" % i for i in range(count)])
    consumer, sink = site.consume(queue)
    site.turn()
    site.broker.engine.unsubscribe(consumer)
    site.publish("q", b"later", b"latest")
    entries = [entry for _, entry in sink.got]
    third = count // 3
    source = Lists([(consumer, entries[2 * third :]), (consumer, entries[: 2 * third])])
    site.broker.engine.give_back(source, count, [queue])
    _, other = site.consume(queue)
    return site, queue, other


@pytest.mark.rule("FAIR-1")
def test_a_turn_returns_a_bounded_number() -> None:
    site, queue, _ = given_back(100, 7)
    before = queue.unsettled
    site.broker.engine.turn.end()
    assert before - queue.unsettled == 7
    assert site.broker.engine.turn.unfinished


def test_nothing_is_delivered_until_all_are_back_and_then_in_order_and_redelivered() -> None:
    site, _, other = given_back(100, 7)
    for _ in range(14):
        site.broker.engine.turn.end()
        assert not other.got
    site.turn()
    assert other.contents == [*[b"%d" % i for i in range(100)], b"later", b"latest"]
    assert [entry.deliveries for _, entry in other.got] == [*[1] * 100, 0, 0]


def test_a_client_that_asks_for_one_message_gets_the_first() -> None:
    site, queue, _ = given_back(100, 7)
    for consumer in list(queue.consumers):
        site.broker.engine.unsubscribe(consumer)
    site.broker.engine.turn.end()
    entry = site.broker.engine.get(queue, auto_settle=True)
    assert entry is not None
    assert (entry.content, entry.deliveries) == (b"0", 1)


def test_few_return_at_once() -> None:
    _, queue, _ = given_back(6, 7)
    assert queue.unsettled == 0
    assert not queue.returning


@pytest.mark.rule("FAIR-1")
def test_a_deleted_queue_lets_go_of_them_in_pieces() -> None:
    site, queue, _ = given_back(100, 7)
    site.broker.directory.delete_queue(queue)
    site.turn()
    assert site.live() == 0
    assert queue.unsettled == 0


def test_a_snapshot_on_the_way_holds_all_of_them() -> None:
    site, _, _ = given_back(100, 7)
    site.broker.engine.turn.end()
    site.snapshot()
    again = site.restart()
    assert again.contents() == [*[b"%d" % i for i in range(100)], b"later", b"latest"]


def test_those_on_the_way_can_be_looked_at_part_by_part() -> None:
    site = Site()
    consumer = Consumer(site.queue(), Sink())
    site.publish("q", *[b"x"] * 10)
    entries: list[Entry] = site.vhost.queue("q").order.take(10)
    source = Lists([(consumer, entries[:3]), (consumer, []), (consumer, entries[3:])])
    returning = Returning(source, [consumer.queue])
    assert consumer.queue.returning == 1
    for start in range(12):
        for most in range(1, 12):
            found = [entry.position for _, entry in returning.held_part(start, most)]
            assert found == list(range(1, 11))[start : start + most]
    assert [len(some) for _, some in returning.held()] == [3, 7]


@pytest.mark.rule("FAIR-1", "SET-13")
@pytest.mark.parametrize(
    ("disposition", "failures"), [(Disposition.MODIFIED, [1] * 100), (Disposition.RELEASED, [0] * 100)]
)
def test_many_deliveries_that_are_settled_together_return_in_pieces(
    disposition: Disposition, failures: list[int]
) -> None:
    site = Site()
    queue = site.queue()
    site.publish("q", *[b"%d" % i for i in range(100)])
    site.broker.engine.returns.piece = 7
    consumer, entries = taken(site, queue, 100)
    site.broker.engine.settle_together(consumer, list(entries), disposition)
    backs = []
    while queue.returning:
        before = queue.unsettled
        site.broker.engine.turn.end()
        backs.append(before - queue.unsettled)
    assert max(backs) == 7
    assert sum(backs) == 100
    assert site.contents() == [b"%d" % i for i in range(100)]
    assert [queue.failures(entry) for entry in entries] == failures


def test_deliveries_that_are_accepted_together_are_settled_at_once() -> None:
    site = Site()
    queue = site.queue()
    site.publish("q", *[b"x"] * 20)
    site.broker.engine.returns.piece = 7
    consumer, entries = taken(site, queue, 20)
    site.broker.engine.settle_together(consumer, entries, Disposition.ACCEPTED)
    assert (queue.unsettled, queue.ready) == (0, 0)
