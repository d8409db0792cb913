"""Unsettled deliveries of one link."""

from __future__ import annotations

import pytest

from escrowmq.core.messages.marks import Modification
from escrowmq.core.queues.outcome import Disposition
from escrowmq.wire.amqp10.unsettled import LinkDeliveries
from tests.unit.core.site import Site, taken


def held(count: int) -> tuple[Site, LinkDeliveries]:
    """Return unsettled deliveries with the numbers from 1 to `count`, whose contents are the same."""
    site = Site()
    queue = site.queue()
    site.publish("q", *[b"%d" % (i + 1) for i in range(count)])
    consumer, entries = taken(site, queue)
    deliveries = LinkDeliveries(site.broker.engine)
    assert deliveries.acquire(consumer, entries) == 1
    assert (deliveries.count, deliveries.next_tag) == (count, count + 1)
    return site, deliveries


@pytest.mark.parametrize(
    ("disposition", "back"),
    [
        (Disposition.ACCEPTED, []),
        (Disposition.REJECTED, []),
        (Disposition.RELEASED, [b"2", b"3"]),
        (Disposition.MODIFIED, [b"2", b"3"]),
        (Modification(failed=True), [b"2", b"3"]),
    ],
)
def test_a_range_is_settled(disposition: Disposition | Modification, back: list[bytes]) -> None:
    site, deliveries = held(5)
    assert deliveries.settle(2, 3, disposition) == 2
    assert deliveries.settle(1, 9, Disposition.ACCEPTED) == 3
    site.turn()
    assert site.contents() == back
    assert not deliveries.count


@pytest.mark.parametrize("disposition", [Disposition.MODIFIED, Disposition.RELEASED])
def test_the_rest_returns_when_the_link_is_gone(disposition: Disposition) -> None:
    site, deliveries = held(3)
    assert deliveries in site.broker.engine.holders
    deliveries.settle(2, 2, Disposition.ACCEPTED)
    deliveries.close(disposition)
    site.turn()
    assert site.contents() == [b"1", b"3"]
    assert deliveries not in site.broker.engine.holders
    queue = site.vhost.queue("q")
    failures = [queue.failures(entry) for entry in queue.order.take(2)]
    assert failures == ([1, 1] if disposition is Disposition.MODIFIED else [0, 0])


def test_a_snapshot_sees_the_deliveries() -> None:
    _, deliveries = held(3)
    deliveries.settle(2, 2, Disposition.ACCEPTED)
    assert [[entry.content for entry in entries] for _, entries in deliveries.held()] == [[b"1", b"3"]]
    assert [entry.content for _, entry in deliveries.held_part(1, 5)] == [b"3"]
    assert deliveries.held_bytes(2) < deliveries.held_bytes(9)
