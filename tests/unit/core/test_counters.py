"""The counters of deleted queues and virtual hosts."""

from __future__ import annotations

from escrowmq.core.counters import QueueTotals, Traffic, arrived
from escrowmq.core.queues.outcome import Outcome
from tests.unit.core.site import Site


def test_the_counters_of_a_deleted_queue_stay_in_its_virtual_host() -> None:
    site = Site()
    queue = site.queue("q")
    site.publish("q", b"1", b"2")
    site.broker.directory.purge(queue)
    assert arrived(queue) == 2
    site.broker.directory.delete_queue(queue)
    past = site.broker.engine.counters.past["/"]
    assert (past.arrived, past.others) == (2, {Outcome.PURGED: 2})


def test_the_counters_of_a_deleted_virtual_host_stay_without_a_name() -> None:
    site = Site()
    queue = site.queue("q")
    site.publish("q", b"1")
    counters = site.broker.engine.counters
    counters.traffic_of("/", "amqp10").received += 5
    site.broker.directory.delete_vhost("/")
    assert queue.deleted
    assert list(counters.past) == [""]
    assert counters.past[""].arrived == 1
    assert {key: each.received for key, each in counters.traffic.items()} == {("", "amqp10"): 5}


def test_sums_include_every_counter() -> None:
    totals = QueueTotals()
    site = Site()
    for name in ("a", "b"):
        queue = site.queue(name)
        site.publish(name, b"1")
        entry = site.broker.engine.get(queue, auto_settle=True)
        assert entry is not None
        totals.add_queue(queue)
    assert (totals.arrived, totals.accepted, totals.auto_settled, totals.acknowledged) == (2, 2, 2, 0)


def test_answers_are_positive_or_negative() -> None:
    traffic = Traffic()
    traffic.answered(3, 2)
    assert (traffic.to_confirm, traffic.confirmed, traffic.refused) == (5, 3, 2)
