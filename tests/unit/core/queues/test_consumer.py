"""Credit, windows that several share, and whose turn it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.queues.consumer import UNLIMITED, Consumer, Consumers, Window
from escrowmq.core.queues.queue import Queue
from escrowmq.core.topology.arguments.consumer import ConsumerOptions
from tests.unit.core.site import Sink, Site


@pytest.fixture(scope="module")
def queue() -> Queue:
    return Site().queue()


def consumer(queue: Queue, tag: str = "", *, priority: int = 0, credit: int = 0, sink: Sink | None = None) -> Consumer:
    return Consumer(queue, sink or Sink(), tag, credit=credit, options=ConsumerOptions(priority=priority))


class TestCredit:
    def test_none_is_unlimited(self, queue: Queue) -> None:
        assert consumer(queue).room() == UNLIMITED

    def test_it_is_spent_and_earned(self, queue: Queue) -> None:
        one = consumer(queue, credit=5)
        one.spend(3)
        assert one.room() == 2
        one.earn(2)
        assert one.room() == 4

    def test_the_smaller_of_its_own_and_the_windows(self, queue: Queue) -> None:
        window = Window(4)
        one, two = (Consumer(queue, Sink(), credit=3, window=window) for _ in range(2))
        one.spend(3)
        assert (one.room(), two.room()) == (0, 1)
        two.spend(1)
        assert two.room() == 0
        one.earn(3)
        assert (one.room(), two.room()) == (3, 2)

    def test_nobody_who_receives_has_no_room(self, queue: Queue) -> None:
        assert queue.getter.room() == 0
        sink = Sink()
        sink.writable = False
        assert consumer(queue, sink=sink).room() == 0

    def test_what_a_member_gives_back_is_for_the_others_first(self, queue: Queue) -> None:
        window = Window(1)
        one, two, three = (Consumer(queue, Sink(), str(i), window=window) for i in range(3))
        window.members += [one, two, three]
        assert window.after(two) == [three, one, two]
        window.members.remove(two)
        assert window.after(two) == [one, three]

    @given(st.lists(st.integers(0, 9), max_size=6), st.integers(0, 20))
    def test_a_window_that_changes_keeps_what_is_in_use(self, limits: list[int], used: int) -> None:
        window = Window(20)
        window.credit -= used
        for limit in limits:
            window.resize(limit)
            assert window.credit == (limit or UNLIMITED) - used
            assert window.limit == limit


class TestTurns:
    def test_in_the_order_in_which_they_came(self, queue: Queue) -> None:
        consumers = Consumers()
        a, b, c = (consumer(queue, tag, credit=1) for tag in "abc")
        for each in (a, b, c):
            consumers.add(each)
        assert consumers.able() == [a, b, c]
        consumers.served(a)
        assert consumers.able() == [b, c, a]
        consumers.served(c)
        assert consumers.able() == [a, b, c]
        b.spend(1)
        assert consumers.able() == [a, c]
        assert list(consumers) == [a, b, c]
        assert len(consumers) == 3

    def test_the_highest_priority_that_has_room(self, queue: Queue) -> None:
        consumers = Consumers()
        low, high = consumer(queue, priority=-1), consumer(queue, priority=7, credit=1)
        consumers.add(low)
        consumers.add(high)
        assert consumers.able() == [high]
        high.spend(1)
        assert consumers.able() == [low]
        assert list(consumers) == [high, low]

    def test_removing(self, queue: Queue) -> None:
        consumers = Consumers()
        a, b = consumer(queue), consumer(queue)
        consumers.add(a)
        consumers.add(b)
        consumers.served(b)
        assert consumers.remove(b)
        assert not consumers.remove(b)
        assert not consumers.remove(consumer(queue, priority=3))
        consumers.served(b)
        assert consumers.able() == [a]
        assert consumers.remove(a)
        assert not consumers
        assert consumers.able() == []

    @given(st.lists(st.tuples(st.sampled_from(["add", "remove", "serve"]), st.integers(0, 5)), max_size=60))
    def test_nobody_is_forgotten(self, steps: list[tuple[str, int]]) -> None:
        queue = Site().queue()
        consumers = Consumers()
        everybody = [consumer(queue, str(i), priority=i % 2) for i in range(6)]
        inside: set[Consumer] = set()
        for what, i in steps:
            each = everybody[i]
            if what == "add" and each not in inside:
                consumers.add(each)
                inside.add(each)
            elif what == "remove":
                assert consumers.remove(each) == (each in inside)
                inside.discard(each)
            elif what == "serve" and each in inside:
                consumers.served(each)
            assert set(consumers) == inside
            assert bool(consumers) == bool(inside)
            highest = max((one.priority for one in inside), default=None)
            assert set(consumers.able()) == {one for one in inside if one.priority == highest}


class TestSingleActive:
    def test_one_alone_is_served_until_it_goes(self, queue: Queue) -> None:
        consumers = Consumers(single=True)
        a, b, c = (consumer(queue, tag, credit=1) for tag in "abc")
        for each in (a, b, c):
            consumers.add(each)
        assert consumers.able() == [a]
        a.spend(1)
        assert consumers.able() == [], "the next in line does not step in for one that is busy"
        consumers.remove(b)
        assert consumers.active is a
        consumers.remove(a)
        assert consumers.able() == [c]
        consumers.remove(c)
        assert consumers.able() == []
        assert consumers.active is None
