"""Credit by mode and event, and windows that several consumers share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.messages.entry import Entry
from escrowmq.core.queues.credit import UNLIMITED, ByteCredit, Credit, Replenishment, Window
from escrowmq.core.queues.outcome import Disposition
from tests.unit.core.site import Site

SETTLEMENT, COMPLETION, RECEIVER = Replenishment

EVENTS: dict[str, Callable[[Credit], object]] = {
    "settled": lambda credit: credit.settled(2),
    "completed": lambda credit: credit.completed(2),
    "granted": lambda credit: credit.grant(2),
    "allowed": lambda credit: credit.allow(2),
    "cancelled": lambda credit: credit.cancel(),
}


@pytest.mark.parametrize(
    ("event", "by", "left"),
    [
        ("settled", SETTLEMENT, 9),
        ("settled", COMPLETION, 7),
        ("settled", RECEIVER, 7),
        ("completed", SETTLEMENT, 7),
        ("completed", COMPLETION, 9),
        ("completed", RECEIVER, 7),
        ("granted", SETTLEMENT, 9),
        ("granted", COMPLETION, 9),
        ("granted", RECEIVER, 9),
        ("allowed", SETTLEMENT, 2),
        ("allowed", COMPLETION, 2),
        ("allowed", RECEIVER, 2),
        ("cancelled", SETTLEMENT, 0),
        ("cancelled", COMPLETION, 0),
        ("cancelled", RECEIVER, 0),
    ],
)
def test_each_event_in_each_mode(event: str, by: Replenishment, left: int) -> None:
    credit = Credit(10, by)
    credit.spend(3)
    EVENTS[event](credit)
    assert credit.left == left


@pytest.mark.parametrize("by", Replenishment)
def test_credit_is_zero_by_default(by: Replenishment) -> None:
    assert Credit(by=by).left == 0


@pytest.mark.parametrize("end", ["allowed", "cancelled"])
@pytest.mark.parametrize(("by", "back"), [(SETTLEMENT, "settled"), (COMPLETION, "completed")])
def test_deliveries_from_before_a_reset_restore_no_credit(end: str, by: Replenishment, back: str) -> None:
    credit = Credit(10, by)
    credit.spend(3)
    EVENTS[end](credit)
    before = credit.left
    EVENTS[back](credit)
    assert credit.left == before


def test_cancelling_returns_the_remaining_credit() -> None:
    credit = Credit(10, RECEIVER)
    credit.spend(3)
    assert credit.cancel() == 7


@given(st.sampled_from(Replenishment), st.lists(st.tuples(st.sampled_from(["spend", *EVENTS]), st.integers(1, 4))))
def test_no_more_credit_is_restored_than_was_spent(by: Replenishment, steps: list[tuple[str, int]]) -> None:
    credit = Credit(5, by)
    total = 5
    for event, count in steps:
        if event == "spend":
            credit.spend(min(count, credit.left))
        else:
            EVENTS[event](credit)
            total = {"granted": total + 2, "allowed": 2, "cancelled": 0}.get(event, total)
        assert 0 <= credit.left <= total


class TestConsumers:
    """The deliveries from a queue of five messages, for each mode of credit."""

    @pytest.mark.parametrize("auto_settle", [False, True])
    @pytest.mark.parametrize("by", Replenishment)
    def test_zero_credit_delivers_nothing(self, by: Replenishment, auto_settle: bool) -> None:
        site = Site()
        queue = site.queue()
        _, sink = site.consume(queue, credit=0, by=by, auto_settle=auto_settle)
        site.publish("q", *[b"x"] * 5)
        site.turn()
        assert sink.got == []
        assert queue.ready == 5

    @pytest.mark.parametrize(
        ("by", "auto_settle", "delivered"),
        [
            (SETTLEMENT, False, 2),
            (SETTLEMENT, True, 5),  # settled when delivered, so the credit is restored immediately
            (COMPLETION, False, 2),
            (COMPLETION, True, 2),
            (RECEIVER, False, 2),
            (RECEIVER, True, 2),
        ],
    )
    def test_deliveries_spend_credit(self, by: Replenishment, auto_settle: bool, delivered: int) -> None:
        site = Site()
        queue = site.queue()
        _, sink = site.consume(queue, credit=2, by=by, auto_settle=auto_settle)
        site.publish("q", *[b"x"] * 5)
        site.turn()
        assert len(sink.got) == delivered

    @pytest.mark.parametrize(
        ("by", "settled", "completed", "granted"),
        [(SETTLEMENT, 3, 3, 4), (COMPLETION, 2, 3, 4), (RECEIVER, 2, 2, 3)],
    )
    def test_credit_is_restored_by_one_kind_of_event_only(
        self, by: Replenishment, settled: int, completed: int, granted: int
    ) -> None:
        site = Site()
        queue = site.queue()
        consumer, sink = site.consume(queue, credit=2, by=by)
        site.publish("q", *[b"x"] * 5)
        site.turn()
        found = []
        site.broker.engine.settle(consumer, [sink.got[0][1]], Disposition.ACCEPTED)
        site.turn()
        found.append(len(sink.got))
        consumer.completed(1)
        site.turn()
        found.append(len(sink.got))
        consumer.grant(1)
        site.turn()
        found.append(len(sink.got))
        assert found == [settled, completed, granted]

    def test_a_new_grant_replaces_the_previous_one(self) -> None:
        site = Site()
        queue = site.queue()
        consumer, sink = site.consume(queue, credit=100, by=RECEIVER)
        consumer.allow(2)
        site.publish("q", *[b"x"] * 5)
        site.turn()
        assert len(sink.got) == 2

    def test_stopping_ends_deliveries_until_the_next_grant(self) -> None:
        site = Site()
        queue = site.queue()
        consumer, sink = site.consume(queue, by=COMPLETION)
        consumer.stop()
        site.publish("q", *[b"x"] * 5)
        site.turn()
        assert sink.got == []
        consumer.grant(3)
        site.turn()
        assert len(sink.got) == 3


class TestDraining:
    @pytest.mark.parametrize("by", Replenishment)
    def test_the_receiver_is_told_once_that_the_queue_is_empty(self, by: Replenishment) -> None:
        site = Site()
        queue = site.queue()
        consumer, sink = site.consume(queue, credit=5, by=by)
        site.publish("q", b"a", b"b")
        site.turn()
        assert sink.drains == []
        consumer.drain()
        site.publish("q", b"c")
        site.turn()
        assert sink.contents == [b"a", b"b", b"c"]
        assert sink.drains == [(consumer, 2)]
        site.publish("q", b"d")
        site.turn()
        assert sink.drains == [(consumer, 2)]
        assert consumer.room() == 0

    def test_a_drain_ends_when_the_credit_is_used_up(self) -> None:
        site = Site()
        consumer, sink = site.consume(site.queue(), credit=2, by=RECEIVER)
        site.publish("q", b"a", b"b", b"c")
        consumer.drain()
        site.turn()
        assert sink.contents == [b"a", b"b"]
        assert sink.drains == [(consumer, 0)]

    def test_a_drain_without_credit_ends_immediately(self) -> None:
        site = Site()
        consumer, sink = site.consume(site.queue(), credit=0)
        site.publish("q", b"a")
        consumer.drain()
        site.turn()
        assert sink.drains == [(consumer, 0)]

    def test_a_drain_waits_for_a_full_receiver(self) -> None:
        site = Site()
        sink = site.consume(site.queue(), credit=5, by=RECEIVER)[1]
        sink.writable = False
        site.publish("q", b"a")
        site.turn()
        (consumer,) = sink.waiting
        consumer.drain()
        site.turn()
        assert sink.drains == []
        sink.writable = True
        site.broker.engine.wake(consumer)
        site.turn()
        assert sink.contents == [b"a"]
        assert sink.drains == [(consumer, 4)]

    def test_a_drain_of_an_inactive_consumer_ends_immediately(self) -> None:
        site = Site()
        queue = site.queue(arguments={"x-single-active-consumer": True})
        site.consume(queue, credit=0)
        second, sink = site.consume(queue, credit=3, by=RECEIVER)
        site.publish("q", b"a")
        second.drain()
        site.turn()
        assert sink.drains == [(second, 3)]

    @pytest.mark.parametrize("how", ["allow", "stop", "unsubscribe"])
    def test_a_drain_can_be_abandoned(self, how: str) -> None:
        site = Site()
        consumer, sink = site.consume(site.queue(), credit=5, by=RECEIVER)
        consumer.drain()
        match how:
            case "allow":
                consumer.allow(7)
            case "stop":
                consumer.stop()
            case _:
                site.broker.engine.unsubscribe(consumer)
        site.turn()
        assert sink.drains == []

    def test_a_drain_on_a_stream_ends_at_the_end_of_the_stream(self) -> None:
        site = Site()
        queue = site.queue("s", {"x-queue-type": "stream"})
        consumer, sink = site.consume(queue, credit=3, by=RECEIVER)
        site.publish("s", b"a", b"b")
        consumer.drain()
        site.turn()
        assert sink.contents == [b"a", b"b"]
        assert sink.drains == [(consumer, 1)]


class TestWindow:
    @given(st.lists(st.integers(0, 9), max_size=6), st.integers(0, 20))
    def test_a_changed_limit_keeps_the_used_part(self, limits: list[int], used: int) -> None:
        window = Window(20)
        window.credit -= used
        for limit in limits:
            window.resize(limit)
            assert window.credit == (limit or UNLIMITED) - used
            assert window.limit == limit

    def test_returned_credit_goes_to_waiting_consumers_first(self) -> None:
        site = Site()
        window = Window(1)
        sinks = [site.consume(site.queue(name), window=window)[1] for name in "abc"]
        for name in "abc":
            site.publish(name, *[name.encode()] * 3)
        order: list[bytes] = []
        for _ in range(9):
            site.turn()
            ((consumer, entry),) = [item for sink in sinks for item in sink.got]
            order.append(entry.content)
            for sink in sinks:
                sink.got.clear()
            site.broker.engine.settle(consumer, [entry], Disposition.ACCEPTED)
        assert order == [b"a", b"b", b"c"] * 3

    def test_credit_that_one_consumer_cannot_use_goes_to_the_next(self) -> None:
        """The window is offered in vain to consumers of a queue that another consumer has emptied meanwhile."""
        site = Site()
        window = Window(1)
        one, two = site.queue("one"), site.queue("two")
        first, sink = site.consume(one, window=window)
        site.publish("one", *[b"x"] * 2)
        site.turn()
        _, rest = site.consume(two, window=window)
        site.publish("two", b"y")
        for _ in range(5):
            site.consume(one, sink, window=window)
        site.turn()
        assert (len(sink.got), len(rest.got)) == (1, 0)
        site.broker.directory.purge(one)
        site.broker.engine.settle(first, [sink.got[0][1]], Disposition.ACCEPTED)
        site.turn()
        assert rest.contents == [b"y"]

    def test_a_larger_limit_wakes_waiting_consumers(self) -> None:
        site = Site()
        window = Window(1)
        _, sink = site.consume(site.queue(), window=window)
        site.publish("q", *[b"x"] * 5)
        site.turn()
        for limit, expected in ((3, 3), (2, 3), (0, 5)):
            site.broker.engine.resize(window, limit)
            site.turn()
            assert len(sink.got) == expected
        assert window.credit == UNLIMITED - 5

    def test_a_cancelled_consumer_no_longer_waits(self) -> None:
        site = Site()
        window = Window(1)
        consumers = [site.consume(site.queue(name), window=window)[0] for name in "ab"]
        for name in "ab":
            site.publish(name, b"x", b"y")
        site.turn()
        assert len(window.waiting) == 2
        site.broker.engine.unsubscribe(consumers[0])
        site.broker.directory.delete_queue(site.vhost.queue("b"))
        assert not window.waiting


def size(entry: Entry) -> int:
    return len(entry.content)


ORDERS = pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 3}, {"x-queue-type": "stream"}])


@ORDERS
@pytest.mark.parametrize("browses", [False, True])
def test_a_message_waits_until_the_credit_in_bytes_is_enough_for_it(
    arguments: dict[str, object], browses: bool
) -> None:
    site = Site()
    queue = site.queue("s", arguments)
    consumer, sink = site.consume(queue, by=COMPLETION, browses=browses)
    consumer.weigh(ByteCredit(size, 5, COMPLETION))
    site.publish("s", b"12", b"123", b"1", b"1234")
    site.turn()
    assert sink.contents == [b"12", b"123"]
    consumer.completed(1, 2)
    site.turn()
    assert sink.contents == [b"12", b"123", b"1"]
    consumer.completed(1, 3)
    site.turn()
    assert len(sink.contents) == 4


@ORDERS
def test_the_selected_messages_wait_for_credit_in_bytes(arguments: dict[str, object]) -> None:
    site = Site()
    queue = site.queue("s", arguments)
    consumer, sink = site.consume(queue, by=RECEIVER, selects=lambda _, entry: entry.content != b"no")
    consumer.weigh(ByteCredit(size, 3, RECEIVER))
    site.publish("s", b"no", b"12", b"no", b"12", b"no", b"1")
    site.turn()
    assert sink.contents == [b"12"]
    assert consumer.byte_credit is not None
    consumer.byte_credit.grant(2)
    consumer.wake()
    site.turn()
    assert sink.contents == [b"12", b"12", b"1"]


def test_a_message_that_another_consumer_takes_holds_nobody_up() -> None:
    site = Site()
    queue = site.queue()
    poor, few = site.consume(queue)
    poor.weigh(ByteCredit(size, 3))
    site.publish("q", b"12345", b"1")
    site.turn()
    assert few.contents == []
    rich, all_ = site.consume(queue, credit=0)
    rich.grant(1)
    site.turn()
    assert (all_.contents, few.contents) == ([b"12345"], [b"1"])


def test_credit_without_a_limit_in_bytes_delivers_everything_again() -> None:
    site = Site()
    queue = site.queue()
    consumer, sink = site.consume(queue)
    consumer.weigh(ByteCredit(size))
    site.publish("q", b"1", b"12")
    site.turn()
    assert sink.contents == []
    consumer.weigh(None)
    site.turn()
    assert sink.contents == [b"1", b"12"]
    assert not queue.consumers.weighing


@ORDERS
@pytest.mark.parametrize("browses", [False, True])
def test_a_drain_ends_when_the_next_message_is_too_large(arguments: dict[str, object], browses: bool) -> None:
    site = Site()
    queue = site.queue("s", arguments)
    consumer, sink = site.consume(queue, credit=10, browses=browses)
    consumer.weigh(ByteCredit(size, 3))
    site.publish("s", b"12", b"12345")
    site.turn()
    consumer.drain()
    site.turn()
    assert [(drained, unused) for drained, unused in sink.drains] == [(consumer, 10 if browses else 9)]
    assert consumer.byte_credit is not None
    assert (consumer.credit.left, consumer.byte_credit.left) == (0, 0)


def test_stopping_cancels_the_credit_in_bytes() -> None:
    site = Site()
    consumer, _ = site.consume(site.queue(), by=COMPLETION)
    consumer.weigh(ByteCredit(size, 3, COMPLETION))
    consumer.stop()
    consumer.completed(1, 3)
    assert consumer.byte_credit is not None
    assert consumer.byte_credit.left == 0


@given(st.lists(st.integers(0, 6), max_size=20), st.lists(st.integers(1, 9), max_size=10))
def test_no_more_bytes_are_delivered_than_were_granted(sizes: list[int], grants: list[int]) -> None:
    site = Site()
    queue = site.queue()
    consumer, sink = site.consume(queue, by=RECEIVER)
    consumer.weigh(credit := ByteCredit(size, 0, RECEIVER))
    for length in sizes:
        site.publish("q", bytes(length))
    granted = 0
    for more in grants:
        credit.grant(more)
        granted += more
        consumer.wake()
        site.turn()
        sent = sum(map(len, sink.contents))
        assert sent <= granted
        rest = sizes[len(sink.contents) :]
        assert not rest or sent == granted or sent + rest[0] > granted
