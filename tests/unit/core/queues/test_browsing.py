"""Browsers see messages without taking them."""

from __future__ import annotations

import pytest

from escrowmq.core.messages.entry import Entry
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.queue import Queue
from escrowmq.core.records.kinds import Kind
from tests.unit.core.site import Site

ORDERS = pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 3}], ids=["fifo", "priority"])


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % i for i in range(first, first + count)]


@ORDERS
@pytest.mark.parametrize("limit", [400, 1 << 20], ids=["paged", "in-memory"])
def test_a_browser_sees_everything_in_order_and_takes_nothing(arguments: dict[str, object], limit: int) -> None:
    site = Site(resident_limit=limit)
    queue = site.queue(arguments=arguments)
    for i in range(0, 1000, 4):
        site.publish("q", *numbered(4, i))
    browser, sink = site.consume(queue, credit=5000, browses=True)
    site.turn()
    assert sink.contents == numbered(1000)
    assert site.contents() == numbered(1000)
    assert (queue.unsettled, len(queue.consumers)) == (0, 0)
    assert site.records(Kind.SETTLE, Kind.DELIVERED, Kind.DELIVERIES) == []
    assert browser.auto_settle


def test_higher_priorities_are_shown_first() -> None:
    site = Site()
    queue = site.queue(arguments={"x-max-priority": 3})
    for i in range(8):
        site.publish("q", b"%d" % i, priority=i % 4)
    _, sink = site.consume(queue, browses=True)
    site.turn()
    assert sink.contents == [b"3", b"7", b"2", b"6", b"1", b"5", b"0", b"4"]


def test_a_drain_ends_behind_the_last_message() -> None:
    site = Site(resident_limit=400)
    queue = site.queue()
    site.publish("q", *numbered(2000))
    browser, sink = site.consume(queue, credit=0, browses=True)
    browser.allow(3000)
    browser.drain()
    site.broker.engine.turn.end()
    assert not sink.drains
    site.turn()
    assert sink.contents == numbered(2000)
    assert len(sink.drains) == 1
    browser.allow(5)
    browser.drain()
    site.turn()
    assert sink.drains[1] == (browser, 5)


def test_a_drain_of_an_empty_queue_ends_at_once() -> None:
    site = Site()
    browser, sink = site.consume(site.queue(), credit=7, browses=True)
    browser.drain()
    site.turn()
    assert sink.drains == [(browser, 7)]


def test_credit_limits_a_browser_and_new_messages_follow() -> None:
    site = Site()
    queue = site.queue()
    site.publish("q", *numbered(5))
    browser, sink = site.consume(queue, credit=0, browses=True)
    browser.allow(2)
    site.turn()
    browser.stop()
    site.turn()
    seen = len(sink.got)
    browser.allow(100)
    site.turn()
    site.publish("q", b"5")
    site.turn()
    assert seen == 5 or sink.contents[:seen] == numbered(seen)
    assert sink.contents == numbered(6)


def test_a_browser_does_not_disturb_consumers() -> None:
    site = Site()
    queue = site.queue(arguments={"x-single-active-consumer": True})
    _, seen = site.consume(queue, browses=True)
    consumer, got = site.consume(queue, credit=2)
    site.publish("q", *numbered(4))
    site.turn()
    assert queue.consumers.active is consumer
    assert got.contents == [b"0", b"1"]
    assert [int(content) for content in seen.contents] == sorted(int(content) for content in seen.contents)
    site.broker.engine.settle(consumer, [got.got[0][1]], Disposition.ACCEPTED)
    site.turn()
    assert got.contents == [b"0", b"1", b"2"]


def test_a_message_that_a_consumer_holds_is_not_shown() -> None:
    site = Site()
    queue = site.queue()
    site.publish("q", *numbered(4))
    site.consume(queue, credit=2)
    site.turn()
    _, seen = site.consume(queue, browses=True)
    site.turn()
    assert seen.contents == [b"2", b"3"]


def test_a_message_that_returns_is_not_shown_twice() -> None:
    site = Site()
    queue = site.queue()
    site.publish("q", *numbered(2))
    _, seen = site.consume(queue, browses=True)
    site.turn()
    consumer, got = site.consume(queue)
    site.turn()
    site.broker.engine.unsubscribe(consumer)
    site.broker.engine.requeue(consumer, [entry for _, entry in got.got])
    site.turn()
    assert seen.contents == numbered(2)


def test_a_browser_with_a_selector_sees_what_it_selects() -> None:
    site = Site()
    queue = site.queue()
    site.publish("q", *numbered(9))

    def even(queue: Queue, entry: Entry) -> bool:
        return int(entry.content) % 2 == 0

    _, sink = site.consume(queue, browses=True, selects=even)
    site.turn()
    assert sink.contents == numbered(9)[::2]


def test_expired_messages_are_not_shown() -> None:
    site = Site()
    queue = site.queue()
    site.publish("q", b"stays")
    site.publish("q", b"expires", ttl=5)
    site.broker.engine.now += 10
    _, sink = site.consume(queue, browses=True)
    site.turn()
    assert sink.contents == [b"stays"]
    assert queue.ready == 2


def test_a_browser_does_not_keep_an_unused_queue() -> None:
    site = Site()
    queue = site.queue(auto_delete=True)
    browser, _ = site.consume(queue, browses=True)
    consumer, _ = site.consume(queue)
    site.broker.engine.unsubscribe(browser)
    assert not queue.deleted
    browser, sink = site.consume(queue, browses=True)
    site.broker.engine.unsubscribe(consumer)
    assert site.vhost.queues == {}
    assert sink.gone == [browser]


def test_a_browser_of_a_stream_is_a_reader_of_it() -> None:
    site = Site()
    queue = site.queue("s", {"x-queue-type": "stream"})
    _, sink = site.consume(queue, browses=True)
    site.publish("s", *numbered(3))
    site.turn()
    assert sink.contents == numbered(3)


def test_a_full_receiver_is_shown_the_rest_later() -> None:
    site = Site()
    queue = site.queue()
    site.publish("q", *numbered(3))
    browser, sink = site.consume(queue, browses=True)
    sink.writable = False
    site.turn()
    assert (sink.contents, sink.waiting) == ([], [browser])
    sink.writable = True
    site.broker.engine.wake(browser)
    site.turn()
    assert sink.contents == numbered(3)
