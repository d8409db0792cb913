"""Deleted queues: the conditions, what clients see, and the records."""

from __future__ import annotations

import itertools

import pytest

from escrowmq.core.budget import TURN
from escrowmq.core.conditions import BrokerError
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.records.kinds import Kind
from tests.unit.core.site import Sink, Site


@pytest.fixture
def site() -> Site:
    return Site()


def test_deletion_can_require_an_empty_or_unused_queue(site: Site) -> None:
    queue = site.queue()
    site.publish("q", b"x")
    with pytest.raises(BrokerError, match="queue 'q' in vhost '/' not empty"):
        site.broker.directory.delete_queue(queue, if_empty=True)
    consumer, sink = site.consume(queue)
    with pytest.raises(BrokerError, match="queue 'q' in vhost '/' in use"):
        site.broker.directory.delete_queue(queue, if_unused=True)
    site.turn()
    site.broker.engine.unsubscribe(consumer)
    assert site.broker.directory.delete_queue(queue, if_empty=True, if_unused=True) == 0
    site.broker.engine.settle(consumer, [sink.got[0][1]], Disposition.ACCEPTED)
    site.turn()
    assert (site.live(), site.restart().vhost.queues) == (0, {})


def test_deleting_tells_consumers_and_frees_their_window(site: Site) -> None:
    queue = site.queue()
    site.publish("q", b"x", b"y")
    consumer, sink = site.consume(queue, credit=1)
    site.turn()
    assert site.broker.directory.delete_queue(queue) == 1
    assert sink.gone == [consumer]
    site.broker.engine.unsubscribe(consumer)
    assert site.live() == 1, "unacknowledged messages can still be settled"


def test_settlements_of_the_turn_are_logged_before_the_deletion(site: Site) -> None:
    queue = site.queue()
    site.publish("q", b"x")
    site.broker.engine.get(queue, auto_settle=True)
    site.broker.directory.delete_queue(queue)
    site.turn()
    kinds = [kind for _, kind, _ in site.restart().replayed]
    assert kinds[-2:] == [Kind.SETTLE, Kind.QUEUE_DELETED]


@pytest.mark.rule("FAIR-1")
def test_the_consumers_of_a_deleted_queue_are_told_in_several_turns(site: Site) -> None:
    queue, sink = site.queue("q"), Sink()
    for _ in range(1500):
        site.broker.engine.subscribe(queue, sink)
    site.broker.directory.delete_queue(queue)
    told = [len(sink.gone)]
    while queue.consumers:
        site.broker.engine.turn.end()
        told.append(len(sink.gone))
    assert told[-1] == 1500
    assert max(after - before for before, after in itertools.pairwise([0, *told])) <= TURN
