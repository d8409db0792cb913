"""Messages that leave undelivered are recorded once, and their content is released in pieces."""

from __future__ import annotations

from escrowmq.core.messages.marks import Modification
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.references import Reference
from tests.unit.core.site import Site, taken


def with_messages(count: int) -> Site:
    site = Site()
    site.queue()
    for i in range(count):
        site.publish("q", b"%d" % i)
    site.turn()
    return site


def test_forgotten_messages_are_one_record_and_do_not_come_back() -> None:
    site = with_messages(3)
    queue = site.vhost.queue("q")
    references = [Reference(entry.position, 1, entry.run.lsn, 0) for entry in queue.take(2)]
    before = len(site.records(Kind.SETTLE))
    site.broker.engine.removals.forget(queue, references, Outcome.EXPIRED)
    site.sync()
    assert len(site.records(Kind.SETTLE)) == before + 1
    assert site.live() == 1
    assert site.restart().contents() == [b"2"]


def test_nothing_is_recorded_of_a_transient_queue() -> None:
    site = Site()
    queue = site.queue("passing", durable=False)
    site.publish("passing", b"a")
    site.broker.engine.removals.withdraw(queue, queue.order.withdraw(), Outcome.PURGED)
    site.turn()
    assert site.records(Kind.SETTLE) == []
    assert queue.ready == 0


def test_marks_go_with_the_messages() -> None:
    site = with_messages(2)
    queue = site.vhost.queue("q")
    consumer, entries = taken(site, queue)
    site.broker.engine.modify(consumer, entries, Modification(failed=True))
    site.broker.engine.removals.withdraw(queue, queue.order.withdraw(), Outcome.PURGED)
    site.turn()
    assert queue.marks == {}


def test_the_content_of_a_long_queue_is_released_over_several_turns() -> None:
    site = with_messages(3000)
    queue, removals = site.vhost.queue("q"), site.broker.engine.removals
    removals.withdraw(queue, queue.order.withdraw(), Outcome.PURGED)
    assert removals.waiting
    assert site.broker.engine.turn.unfinished
    while removals.waiting:
        before = site.live()
        removals.step()
        assert site.live() < before
    assert site.live() == 0
