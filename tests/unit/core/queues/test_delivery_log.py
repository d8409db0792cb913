"""Deliveries in the log: only if configured, in order, and before the settlements."""

from __future__ import annotations

from escrowmq.core.messages.entry import Entry
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.queue import Queue
from escrowmq.core.records.deliveries import REDELIVERED, SETTLED, Part, decode_deliveries
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.references import Range
from tests.unit.core.site import Sink, Site


def told(site: Site) -> list[tuple[int, list[Part]]]:
    """Return queue and parts of each record of deliveries in the log."""
    site.sync()
    delivered = map(decode_deliveries, site.records(Kind.DELIVERIES))
    return [(record.queue, record.parts) for record in delivered]


def test_deliveries_are_not_logged_by_default() -> None:
    site = Site()
    queue = site.queue("q")
    site.publish("q", b"a", durable=True)
    site.consume(queue, label="c")
    site.turn()
    assert told(site) == []


def test_each_delivery_is_logged_once_and_redeliveries_are_marked() -> None:
    site = Site()
    site.broker.engine.record_deliveries()
    queue = site.queue("q")
    for content in (b"a", b"b", b"c"):
        site.publish("q", content, durable=True)
    sink = Sink()
    consumer, _ = site.consume(queue, sink, label="c")
    site.turn()
    site.broker.engine.requeue(consumer, [sink.got[1][1]])
    site.turn()
    assert told(site) == [
        (queue.ident, [Part("c", 0, [Range(1, 3)])]),
        (queue.ident, [Part("c", REDELIVERED, [Range(2, 1)])]),
    ]


def test_deliveries_of_transient_messages_are_not_logged() -> None:
    site = Site()
    site.broker.engine.record_deliveries()
    queue = site.queue("q")
    site.publish("q", b"a", durable=True)
    site.publish("q", b"b", durable=False)
    site.consume(queue, label="c", auto_settle=True)
    site.turn()
    assert told(site) == [(queue.ident, [Part("c", SETTLED, [Range(1, 1)])])]


def test_a_delivery_is_logged_before_its_settlement() -> None:
    site = Site()
    site.broker.engine.record_deliveries()
    queue = site.queue("q", {"x-dead-letter-exchange": ""})
    site.publish("q", b"a", durable=True)
    site.publish("q", b"b", durable=True)
    for disposition in (Disposition.ACCEPTED, Disposition.REJECTED):
        entry = site.broker.engine.get(queue, auto_settle=False, label="g")
        assert entry is not None
        site.broker.engine.settle(queue.getter, [entry], disposition)
    site.turn()
    kinds = [kind for _, kind, _ in site.restart().replayed]
    settled = [i for i, kind in enumerate(kinds) if kind in (Kind.SETTLE, Kind.COMMIT)]
    assert kinds.index(Kind.DELIVERIES) < min(settled)


def test_deliveries_to_consumers_that_select_messages_are_not_logged() -> None:
    """They are not in the order of the queue, which the audit expects of all deliveries."""
    site = Site()
    site.broker.engine.record_deliveries()
    queue = site.queue("q")
    for content in (b"a", b"b", b"c"):
        site.publish("q", content, durable=True)

    def last(queue: Queue, entry: Entry) -> bool:
        return entry.content == b"c"

    _, sink = site.consume(queue, selects=last, label="some")
    site.turn()
    site.consume(queue, label="c")
    site.turn()
    assert sink.contents == [b"c"]
    assert told(site) == [(queue.ident, [Part("c", 0, [Range(1, 2)])])]
