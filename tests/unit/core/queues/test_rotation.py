"""The order in which consumers are served."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.credit import UNLIMITED, Credit, Replenishment, Window
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.queue import Queue
from escrowmq.core.queues.rotation import Consumers
from escrowmq.core.topology.arguments.consumer import ConsumerOptions
from tests.unit.core.site import Sink, Site


@pytest.fixture(scope="module")
def queue() -> Queue:
    return Site().queue()


def consumer(queue: Queue, tag: str = "", *, priority: int = 0, credit: int = UNLIMITED) -> Consumer:
    return Consumer(queue, Sink(), tag, credit=Credit(credit), options=ConsumerOptions(priority=priority))


def filled(consumers: Consumers, *some: Consumer) -> Consumers:
    for one in some:
        consumers.add(one)
    return consumers


class TestTurns:
    def test_consumers_are_served_in_the_order_in_which_they_subscribed(self, queue: Queue) -> None:
        a, b, c = (consumer(queue, tag, credit=1) for tag in "abc")
        consumers = filled(Consumers(), a, b, c)
        assert consumers.next(1) == [a]
        assert consumers.next(3) == [b, c, a]
        assert consumers.next(2) == [b, c]
        b.spend(1)
        assert consumers.next(9) == [a, c]
        assert list(consumers) == [a, b, c]
        assert len(consumers) == 3

    def test_a_consumer_that_has_room_again_joins_the_end(self, queue: Queue) -> None:
        a, b, c = (consumer(queue, tag, credit=1) for tag in "abc")
        consumers = filled(Consumers(), a, b, c)
        a.spend(1)
        assert consumers.next(1) == [b]
        assert consumers.in_line(0) == 2
        consumers.admit(a)
        consumers.admit(a)
        assert consumers.in_line(0) == 3
        a.credit.grant(1)
        assert consumers.next(3) == [c, b, a]

    def test_the_highest_priority_with_room_is_served(self, queue: Queue) -> None:
        low, high = consumer(queue, priority=-1), consumer(queue, priority=7, credit=1)
        consumers = filled(Consumers(), low, high)
        assert consumers.next(2) == [high]
        high.spend(1)
        assert consumers.next(2) == [low]
        assert list(consumers) == [high, low]

    def test_consumers_that_got_one_message_more_come_after_the_others(self, queue: Queue) -> None:
        a, b, c, d = (consumer(queue, tag) for tag in "abcd")
        consumers = filled(Consumers(), d, a, b, c)
        assert consumers.next(1) == [d]
        consumers.defer(consumers.next(3), 2)
        assert consumers.next(4) == [d, c, a, b]

    def test_a_consumer_without_room_leaves_the_rotation(self, queue: Queue) -> None:
        a, b = (consumer(queue, tag) for tag in "ab")
        consumers = filled(Consumers(), a, b)
        assert consumers.next(1) == [a]
        consumers.rest(a)
        assert consumers.next(2) == [b]
        consumers.admit(a)
        assert consumers.next(2) == [b, a]

    def test_a_removed_consumer_is_not_served(self, queue: Queue) -> None:
        a, b = consumer(queue), consumer(queue)
        consumers = filled(Consumers(), a, b)
        assert consumers.remove(b)
        assert not consumers.remove(b)
        assert not consumers.remove(consumer(queue, priority=3))
        consumers.admit(b)
        assert consumers.next(2) == [a]
        assert consumers.remove(a)
        assert not consumers
        assert consumers.next(2) == []

    def test_cancelled_consumers_leave_nothing_behind(self, queue: Queue) -> None:
        consumers = filled(Consumers(), consumer(queue))
        for _ in range(100):
            one = consumer(queue)
            consumers.add(one)
            consumers.remove(one)
        assert consumers.in_line(0) < 20

    @given(st.lists(st.tuples(st.sampled_from(["add", "remove", "serve", "settle"]), st.integers(0, 5)), max_size=60))
    def test_no_consumer_is_forgotten(self, steps: list[tuple[str, int]]) -> None:
        queue = Site().queue()
        consumers = queue.consumers
        everybody = [consumer(queue, str(i), priority=i % 2, credit=2) for i in range(6)]
        inside: set[Consumer] = set()
        for what, i in steps:
            each = everybody[i]
            if what == "add" and each not in inside:
                consumers.add(each)
                inside.add(each)
            elif what == "remove":
                assert consumers.remove(each) == (each in inside)
                inside.discard(each)
            elif what == "serve":
                for one in consumers.next(i + 1):
                    assert one.room() > 0
                    one.spend(1)
            elif what == "settle":
                each.settled(1)
            assert set(consumers) == inside
            assert len(consumers) == len(inside)
            assert bool(consumers) == bool(inside)
            able = {one for one in inside if one.room() > 0}
            highest = max((one.priority for one in able), default=None)
            assert set(consumers.next(10)) == {one for one in able if one.priority == highest}


class TestExclusive:
    def test_the_exclusive_consumer_is_served(self, queue: Queue) -> None:
        one = Consumer(queue, Sink(), exclusive=True)
        consumers = filled(Consumers(), one)
        assert consumers.exclusive is one
        consumers.remove(one)
        assert consumers.exclusive is None


class TestSingleActive:
    def test_the_active_consumer_is_served_until_it_is_cancelled(self, queue: Queue) -> None:
        a, b, c = (consumer(queue, tag, credit=1) for tag in "abc")
        consumers = filled(Consumers(single=True), a, b, c)
        assert consumers.next(3) == [a]
        a.spend(1)
        assert consumers.next(3) == [], "the next in line does not step in for one that is busy"
        consumers.remove(b)
        assert consumers.active is a
        consumers.remove(a)
        assert consumers.next(3) == [c]
        consumers.remove(c)
        assert consumers.next(3) == []
        assert consumers.active is None


class ServingMachine(RuleBasedStateMachine):
    """Queues, one of them a stream, whose consumers of every kind subscribe, cancel, stop reading and settle."""

    def __init__(self) -> None:
        super().__init__()
        self.site = Site()
        arguments: list[dict[str, object]] = [{}, {"x-single-active-consumer": True}, {"x-queue-type": "stream"}]
        self.queues = [self.site.queue(name, some) for name, some in zip("abs", arguments, strict=True)]
        self.sinks = [Sink(), Sink()]
        self.window = Window(3)
        self.consumers: list[Consumer] = []

    @rule(which=st.integers(0, 2), count=st.sampled_from([1, 2, 3, 70]))
    def publish(self, which: int, count: int) -> None:
        self.site.publish(self.queues[which].name, *[b"x"] * count)

    @rule(
        which=st.integers(0, 2),
        sink=st.integers(0, 1),
        credit=st.sampled_from([1, 0, 2, UNLIMITED]),
        by=st.sampled_from(Replenishment),
        priority=st.sampled_from([0, 0, 1]),
        auto_settle=st.booleans(),
        shared=st.booleans(),
    )
    def consume(
        self,
        which: int,
        sink: int,
        credit: int,
        by: Replenishment,
        priority: int,
        *,
        auto_settle: bool,
        shared: bool,
    ) -> None:
        consumer, _ = self.site.consume(
            self.queues[which],
            self.sinks[sink],
            credit=credit,
            by=by,
            window=self.window if shared and not auto_settle else None,
            auto_settle=auto_settle,
            options=ConsumerOptions(priority=priority),
        )
        self.consumers.append(consumer)

    @rule(which=st.integers(0, 5))
    def unsubscribe(self, which: int) -> None:
        if which < len(self.consumers):
            self.site.broker.engine.unsubscribe(self.consumers.pop(which))

    @rule(which=st.integers(0, 5), count=st.integers(0, 3), how=st.sampled_from(["grant", "allow", "completed"]))
    def receive(self, which: int, count: int, how: str) -> None:
        if which < len(self.consumers):
            getattr(self.consumers[which], how)(count)

    @rule(which=st.integers(0, 5))
    def drain(self, which: int) -> None:
        if which < len(self.consumers):
            self.consumers[which].drain()

    @rule(sink=st.integers(0, 1), at=st.integers(0, 1), requeue=st.booleans())
    def settle(self, sink: int, at: int, *, requeue: bool) -> None:
        unsettled = [item for item in self.sinks[sink].got if not item[0].auto_settle]
        if at < len(unsettled):
            consumer, entry = unsettled[at]
            self.sinks[sink].got.remove((consumer, entry))
            if requeue:
                self.site.broker.engine.requeue(consumer, [entry])
            else:
                self.site.broker.engine.settle(consumer, [entry], Disposition.ACCEPTED)

    @rule(sink=st.integers(0, 1), writable=st.booleans())
    def reads(self, sink: int, *, writable: bool) -> None:
        self.sinks[sink].writable = writable
        if writable:
            waiting, self.sinks[sink].waiting = self.sinks[sink].waiting, []
            for consumer in waiting:
                self.site.broker.engine.wake(consumer)

    @rule(limit=st.integers(0, 5))
    def resize(self, limit: int) -> None:
        self.site.broker.engine.resize(self.window, limit)

    @invariant()
    def no_message_waits_while_a_consumer_has_room(self) -> None:
        self.site.turn()
        for consumer in self.consumers:
            receiver, queue = consumer.receiver, consumer.queue
            assert receiver is not None
            if queue.has_for(consumer):
                assert consumer.room() <= 0 or not receiver.writable
            if consumer.draining:
                assert queue.has_for(consumer)
                assert consumer.room() <= 0 or not receiver.writable


ServingMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestServing = ServingMachine.TestCase
