"""Consumers that get only some of the messages: selectors, and links that messages exclude."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escrowmq.core.budget import TURN
from escrowmq.core.messages.entry import Entry
from escrowmq.core.messages.marks import Modification
from escrowmq.core.messages.pager import LogPager
from escrowmq.core.queues import selection
from escrowmq.core.queues.availability import RETRY_MS
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.credit import ByteCredit
from escrowmq.core.queues.discipline import TAKEN_BYTES
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.queue import Queue
from escrowmq.core.queues.selection import PIECE
from escrowmq.core.records.kinds import Kind
from tests.unit.core.site import Sink, Site

ORDERS = pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 3}], ids=["fifo", "priority"])


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % i for i in range(first, first + count)]


class Every:
    """Selects every message whose number has this remainder, and counts how often it was asked about each."""

    def __init__(self, step: int, remainder: int = 0) -> None:
        self.step, self.remainder = step, remainder
        self.asked: Counter[bytes] = Counter()

    def __call__(self, queue: Queue, entry: Entry) -> bool:
        self.asked[entry.content] += 1
        return int(entry.content) % self.step == self.remainder


def nothing(queue: Queue, entry: Entry) -> bool:
    return False


@ORDERS
@pytest.mark.parametrize("limit", [400, 1 << 20], ids=["paged", "in-memory"])
def test_a_consumer_gets_what_it_selects_in_order_and_the_rest_stays(arguments: dict[str, object], limit: int) -> None:
    site = Site(resident_limit=limit)
    queue = site.queue(arguments=arguments)
    for i in range(0, 500, 5):
        site.publish("q", *numbered(5, i))
    _, sink = site.consume(queue, selects=Every(7))
    site.turn()
    assert sink.contents == numbered(500)[::7]
    assert site.contents() == [content for i, content in enumerate(numbered(500)) if i % 7]


@ORDERS
def test_each_message_is_evaluated_once_by_each_consumer(arguments: dict[str, object]) -> None:
    site = Site(resident_limit=400)
    queue = site.queue(arguments=arguments)
    picks = [Every(5), Every(7, 1), Every(1000, 999)]
    for pick in picks:
        site.consume(queue, selects=pick)
    for i in range(0, 300, 10):
        site.publish("q", *numbered(10, i))
        site.turn()
    assert [max(pick.asked.values()) for pick in picks] == [1, 1, 1]
    assert len(picks[2].asked) == queue.ready + sum(1 for content in picks[2].asked if content not in site.contents())


def test_a_message_that_nobody_selects_blocks_no_other_consumer() -> None:
    site = Site()
    queue = site.queue()
    _, odd = site.consume(queue, selects=Every(2, 1), credit=2)
    site.publish("q", *numbered(10))
    site.turn()
    _, rest = site.consume(queue, credit=3)
    site.turn()
    assert odd.contents == [b"1", b"3"]
    assert rest.contents == [b"0", b"2", b"4"]
    assert site.contents() == numbered(5, 5)


def test_a_returned_message_is_offered_again_before_later_ones() -> None:
    site = Site()
    queue = site.queue()
    pick = Every(2)
    consumer, sink = site.consume(queue, selects=pick, credit=2)
    site.publish("q", *numbered(9))
    site.turn()
    assert sink.contents == [b"0", b"2"]
    site.broker.engine.requeue(consumer, [sink.got[0][1]])
    site.turn()
    assert sink.contents == [b"0", b"2", b"0"]
    assert sink.got[-1][1].deliveries == 1
    assert pick.asked[b"1"] == 1, "what did not return is not evaluated again"


def test_very_many_returned_ranges_are_looked_at_again_from_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "RANGES", 3)
    site = Site()
    queue = site.queue()
    site.publish("q", *numbered(40))
    _, even = site.consume(queue, selects=Every(2), credit=15)
    site.turn()
    other, got = site.consume(queue, credit=40)
    site.turn()
    entries = [entry for _, entry in got.got if int(entry.content) % 4 == 2]
    site.broker.engine.unsubscribe(other)
    site.broker.engine.requeue(other, entries)
    even.got[0][0].allow(100)
    site.turn()
    assert sorted(even.contents, key=int) == sorted({*numbered(30)[::2], b"30", b"34", b"38"}, key=int)


def test_new_messages_wake_a_consumer_that_has_seen_everything() -> None:
    site = Site()
    queue = site.queue()
    _, sink = site.consume(queue, selects=Every(10))
    site.publish("q", *numbered(10, 1))
    site.turn()
    site.publish("q", *numbered(10, 11))
    site.turn()
    assert sink.contents == [b"10", b"20"]


def test_a_turn_examines_no_more_than_its_budget_allows() -> None:
    site = Site(resident_limit=400)
    queue = site.queue()
    for i in range(0, 5000, 50):
        site.publish("q", *numbered(50, i))
    loaded = len(queue.order.in_memory())
    pick = Every(10_000, 9_999)
    site.consume(queue, selects=pick)
    site.broker.engine.turn.end()
    assert PIECE <= len(pick.asked) <= TURN
    assert site.broker.engine.turn.unfinished
    site.turn()
    assert len(pick.asked) == 5000
    assert len(queue.order.in_memory()) == loaded < 100, "messages that were only examined are not kept in memory"


def everything(queue: Queue, entry: Entry) -> bool:
    return True


class OneDelivery(Sink):
    """A receiver that is writable until something is delivered."""

    def deliver(self, consumer: Consumer, entries: list[Entry]) -> None:
        super().deliver(consumer, entries)
        self.writable = False


@pytest.mark.rule("FAIR-3")
@pytest.mark.parametrize("limit", [400, 64 << 20], ids=["paged", "in-memory"])
@pytest.mark.parametrize("way", ["selects", "browses", "weighs"])
def test_a_client_that_does_not_read_is_given_few_large_messages(way: str, limit: int) -> None:
    site = Site(resident_limit=limit)
    queue = site.queue()
    for _ in range(20):
        site.publish("q", bytes(TAKEN_BYTES // 4))
    ways: dict[str, dict[str, Any]] = {"selects": {"selects": everything}, "browses": {"browses": True}, "weighs": {}}
    options = ways[way]
    consumer, sink = site.consume(queue, OneDelivery(), **options)
    if way == "weighs":
        consumer.weigh(ByteCredit(lambda entry: len(entry.content), 1 << 30))
    site.turn()
    assert len(sink.got) == 4
    sink.writable = True
    site.broker.engine.wake(consumer)
    site.turn()
    assert len(sink.got) == 8


def test_a_client_that_inspects_the_queue_does_not_wait_for_the_examination() -> None:
    site = Site(resident_limit=400)
    queue = site.queue()
    site.publish("q", *numbered(5000))
    pick = Every(10_000, 9_999)
    site.consume(queue, selects=pick)
    queue.refresh()
    assert len(pick.asked) <= TURN
    site.turn()
    assert len(pick.asked) == 5000


def test_a_drain_ends_when_the_consumer_has_seen_everything() -> None:
    site = Site(resident_limit=400)
    queue = site.queue()
    site.publish("q", *numbered(3000))
    consumer, sink = site.consume(queue, selects=Every(1000, 999), credit=10)
    consumer.drain()
    site.broker.engine.turn.end()
    assert not sink.drains
    site.turn()
    assert sink.contents == [b"999", b"1999", b"2999"]
    assert sink.drains == [(consumer, 7)]


def test_an_expired_message_is_not_delivered_from_behind_one_that_stays() -> None:
    site = Site()
    queue = site.queue()
    site.publish("q", b"1")
    site.publish("q", b"2", ttl=10)
    site.publish("q", b"4")
    site.broker.engine.now += 20
    _, sink = site.consume(queue, selects=Every(2))
    site.turn()
    assert sink.contents == [b"4"]
    assert site.contents() == [b"1"]


def test_a_limit_counts_what_consumers_took_from_the_middle() -> None:
    site = Site()
    queue = site.queue(arguments={"x-max-length-bytes": 5})
    site.consume(queue, selects=Every(2))
    site.publish("q", *numbered(9, 1))
    site.turn()
    assert (queue.bytes, site.contents()) == (5, [b"1", b"3", b"5", b"7", b"9"])


@pytest.mark.rule("SET-13")
def test_an_excluded_link_is_not_offered_the_message_again_and_others_are() -> None:
    site = Site()
    queue = site.queue()
    consumer, mine = site.consume(queue, link="mine", credit=10)
    site.publish("q", b"a", b"b", b"c")
    site.turn()
    site.broker.engine.modify(consumer, [mine.got[1][1]], Modification(failed=True, excluded="mine"))
    site.turn()
    assert mine.contents == [b"a", b"b", b"c"]
    _, other = site.consume(queue, link="other")
    site.turn()
    assert other.contents == [b"b"]


@pytest.mark.rule("SET-13")
def test_an_exclusion_survives_a_restart() -> None:
    site = Site()
    queue = site.queue()
    consumer, mine = site.consume(queue, link="mine", credit=10)
    site.publish("q", b"a", b"b")
    site.turn()
    site.broker.engine.modify(consumer, [mine.got[0][1]], Modification(excluded="mine"))
    site.turn()
    again = site.restart()
    _, mine = again.consume(again.vhost.queue("q"), link="mine")
    again.turn()
    assert mine.contents == [b"b"]


def test_exclusion_ends_with_the_message() -> None:
    site = Site()
    queue = site.queue()
    consumer, mine = site.consume(queue, link="mine", credit=10)
    site.publish("q", b"a")
    site.turn()
    site.broker.engine.modify(consumer, [mine.got[0][1]], Modification(excluded="mine"))
    site.turn()
    other, theirs = site.consume(queue, link="other")
    site.turn()
    site.broker.engine.settle(other, [theirs.got[0][1]], Disposition.ACCEPTED)
    site.turn()
    assert not queue.marks.excluding
    site.broker.engine.unsubscribe(other)
    site.publish("q", b"b")
    site.turn()
    assert mine.contents == [b"a", b"b"]


def test_messages_that_bulk_readers_give_back_are_looked_at_again() -> None:
    site = Site()
    queue = site.queue()
    site.publish("q", *numbered(6))
    pick = Every(2)
    consumer, sink = site.consume(queue, selects=pick, credit=1)
    site.turn()
    found = queue.order.detach(100, 100)
    references = [reference for part in found for reference in queue.order.references()]
    assert not references
    queue.put_back([part.what for part in found if isinstance(part.what, Entry)])
    consumer.allow(10)
    site.turn()
    assert sink.contents == [b"0", b"2", b"4"]


def test_messages_that_were_passed_over_do_not_count_as_delivered_when_later_ones_are_paged_out() -> None:
    site = Site(resident_limit=400)
    queue = site.queue()
    site.publish("q", *numbered(100))
    consumer, sink = site.consume(queue, selects=Every(2, 1))
    site.turn()
    site.broker.engine.unsubscribe(consumer)
    site.broker.engine.requeue(consumer, [entry for _, entry in sink.got])
    assert site.ready(queue) == [(i + 1, b"%d" % i, i % 2 == 1) for i in range(100)]


def test_a_place_that_cannot_be_read_suspends_the_queue_and_is_tried_again() -> None:
    bodies = [b"%02d" % i * 2000 for i in range(30)]
    site = Site(resident_limit=400)
    site.queue()
    for body in bodies:
        site.publish("q", body)
    site.sync()
    site = site.restart(resident_limit=400)
    queue = site.vhost.queue("q")
    for name in site.storage.names():
        at = site.storage.read(name, 0, site.storage.size(name)).find(bodies[20])
        if at >= 0:
            site.storage.faults.unreadable.setdefault(name, set()).add((at + 2000) // 512)
    pager = site.broker.engine.pager
    assert isinstance(pager, LogPager)
    pager._chunks.clear()
    pager._chunk = b""

    def two(queue: Queue, entry: Entry) -> bool:
        return entry.content[:2] in {b"05", b"25"}

    _, sink = site.consume(queue, selects=two)
    site.turn()
    assert [content[:2] for content in sink.contents] == [b"05"]
    assert queue.fault
    site.after(RETRY_MS + 1)
    assert queue.fault, "the place where reading failed is tried, not only the first message"
    site.storage.faults.unreadable.clear()
    site.after(RETRY_MS + 1)
    assert [content[:2] for content in sink.contents] == [b"05", b"25"]
    assert queue.ready == 28


def test_selected_messages_survive_or_leave_as_any_others() -> None:
    site = Site(resident_limit=400)
    queue = site.queue()
    site.publish("q", *numbered(50))
    consumer, sink = site.consume(queue, selects=Every(5))
    site.turn()
    site.broker.engine.settle(consumer, [entry for _, entry in sink.got[:5]], Disposition.ACCEPTED)
    site.turn()
    site.broker.engine.holders[sink] = None
    del sink.got[:5]
    site.snapshot()
    expected = [content for content in numbered(50) if content not in numbered(25)[::5]]
    assert site.restart().contents() == expected
    assert site.live() == len(expected)
    assert site.records(Kind.SETTLE) == []


Plan = list[tuple[str, int]]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["publish", "accept", "requeue", "drop", "join", "turn"]), st.integers(0, 5)),
        max_size=25,
    ),
    st.sampled_from([400, 1 << 20]),
    st.booleans(),
)
def test_every_message_reaches_exactly_the_consumers_that_select_it(plan: Plan, limit: int, priorities: bool) -> None:
    """Compared with the messages themselves: nothing is lost, doubled, or delivered to a consumer that rejects it."""
    site = Site(resident_limit=limit)
    queue = site.queue(arguments={"x-max-priority": 2} if priorities else {})
    picks: list[Callable[[Queue, Entry], bool]] = [Every(2), Every(3, 1), nothing]
    consumers = [site.consume(queue, selects=pick, credit=4) for pick in picks]
    held: list[list[Entry]] = [[] for _ in picks]
    published = 0
    accepted: list[bytes] = []
    for action, number in [*plan, ("turn", 0)]:
        i = number % len(consumers)
        consumer, _ = consumers[i]
        if action == "publish":
            for content in numbered(number + 1, published):
                site.publish("q", content, priority=int(content) % 3)
            published += number + 1
        elif action == "join":
            site.broker.engine.unsubscribe(consumer)
            site.broker.engine.requeue(consumer, held[i])
            held[i] = []
            consumers[i] = site.consume(queue, selects=picks[i], credit=4)
        elif action in {"accept", "requeue"} and held[i]:
            some, held[i] = held[i][:2], held[i][2:]
            if action == "accept":
                site.broker.engine.settle(consumer, some, Disposition.ACCEPTED)
                accepted += [entry.content for entry in some]
            else:
                site.broker.engine.requeue(consumer, some)
        site.turn()
        for j, (_, found) in enumerate(consumers):
            held[j] += [entry for _, entry in found.got]
            found.got.clear()
        for pick, entries in zip(picks, held, strict=True):
            assert all(pick(queue, entry) for entry in entries)
        everything = [*accepted, *(e.content for entries in held for e in entries), *site.contents()]
        assert sorted(everything, key=int) == numbered(published)
        for pick, (consumer, _) in zip(picks, consumers, strict=True):
            left = [entry for _, level in queue.order.levels() for entry in level.scan(0, 1 << 40, 1000)]
            assert consumer.room() == 0 or not any(pick(queue, entry) for entry in left)
