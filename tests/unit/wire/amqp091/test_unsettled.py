"""Delivery tags against a dictionary."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.queue import Queue
from escrowmq.wire.amqp091.unsettled import Item, Unsettled, by_consumer
from tests.unit.core.site import Sink, Site

RUN = Run(Envelope("", "q"), 1, 0)


def queue() -> Queue:
    return Site().queue()


def entries(count: int) -> list[Entry]:
    return [Entry(1 + i, b"", RUN) for i in range(count)]


class UnsettledMachine(RuleBasedStateMachine):
    """What is unsettled, by tag; and what a transaction has taken and may put back."""

    def __init__(self) -> None:
        super().__init__()
        self.unsettled = Unsettled()
        self.consumer = Consumer(queue(), Sink())
        self.known: dict[int, Item] = {}
        self.next_tag = 1
        self.taken: list[tuple[int, Item]] = []

    @rule(count=st.integers(1, 5))
    def add(self, count: int) -> None:
        added = entries(count)
        self.unsettled.add(added, self.consumer)
        for entry in added:
            self.known[self.next_tag] = (entry, self.consumer)
            self.next_tag += 1

    @rule(count=st.integers(1, 3))
    def skip(self, count: int) -> None:
        self.unsettled.skip(count)
        self.next_tag += count

    @rule(back=st.integers(-2, 12))
    def take(self, back: int) -> None:
        tag = self.next_tag - back
        item = self.unsettled.take(tag)
        assert item == self.known.pop(tag, None)
        if item is not None:
            self.taken.append((tag, item))

    @rule(tag=st.sampled_from([0, 1, 2**63, 2**64 - 1]))
    def take_strange(self, tag: int) -> None:
        item = self.unsettled.take(tag)
        assert item == self.known.pop(tag, None)
        if item is not None:
            self.taken.append((tag, item))

    @rule(back=st.integers(-2, 12), everything=st.booleans())
    def take_through(self, back: int, everything: bool) -> None:
        tag = 0 if everything else max(self.next_tag - back, 1)
        expected = []
        if tag in self.known or everything:
            expected = [(each, self.known.pop(each)) for each in sorted(self.known) if each <= tag or everything]
        assert self.unsettled.take_through(tag) == expected
        self.taken += expected

    @rule()
    def restore(self) -> None:
        self.unsettled.restore(self.taken)
        self.known.update(self.taken)
        self.taken = []

    @rule()
    def settle_for_good(self) -> None:
        self.taken = []

    @rule()
    def clear(self) -> None:
        assert self.unsettled.clear() == [self.known[tag] for tag in sorted(self.known)]
        self.known.clear()
        self.taken = []

    @invariant()
    def agrees(self) -> None:
        assert self.unsettled.next_tag == self.next_tag
        assert self.unsettled.count == len(self.known)
        assert list(self.unsettled) == [self.known[tag] for tag in sorted(self.known)]
        places = [item for at in range(0, self.unsettled.places, 3) for item in self.unsettled.part(at, 3)]
        assert len(places) == self.unsettled.places
        assert [item for item in places if item] == list(self.unsettled)
        assert not self.unsettled.part(self.unsettled.places, 3)


TestUnsettled = UnsettledMachine.TestCase
TestUnsettled.settings = settings(stateful_step_count=30)


def test_what_is_settled_in_order_leaves_nothing_behind() -> None:
    unsettled = Unsettled()
    consumer = Consumer(queue(), Sink())
    unsettled.add(entries(1000), consumer)
    for tag in range(1, 1000):
        assert unsettled.take(tag) is not None
    assert len(unsettled._slots) == 1


def test_grouping_by_consumer_keeps_the_order() -> None:
    one, two = (Consumer(queue(), Sink(), tag) for tag in "ab")
    a, b, c, d = entries(4)
    assert list(by_consumer([(a, one), (b, one)])) == [(one, [a, b])]
    assert list(by_consumer([(a, one), (b, two), (c, one), (d, two)])) == [(one, [a, c]), (two, [b, d])]


def test_a_rollback_costs_what_was_settled_not_what_is_held() -> None:
    """A client that holds very much and rolls back very often is not to stop the turns of all the others."""
    unsettled = Unsettled()
    unsettled.add(entries(200_000), Consumer(queue(), Sink()))
    started = time.perf_counter()
    for _ in range(1000):
        item = unsettled.take(100_000)
        assert item is not None
        unsettled.restore([(100_000, item)])
    assert time.perf_counter() - started < 5.0, "some 50 s if each walks through all of them"
    assert unsettled.count == 200_000


@given(st.lists(st.booleans(), max_size=12), st.integers(0, 14), st.integers(0, 12))
def test_settling_through_takes_what_taking_through_takes(waits: list[bool], tag: int, gone: int) -> None:
    both = Unsettled(), Unsettled()
    consumer = Consumer(queue(), Sink())
    for unsettled in both:
        for number, wait in enumerate(waits, 1):
            if wait:
                unsettled.add([Entry(number, b"", RUN)], consumer)
            else:
                unsettled.skip(1)
        unsettled.take(gone)
    taken = [item[0].position for _, item in both[0].take_through(tag)]
    assert [item[0].position for item in both[1].settle_through(tag)] == taken
    assert [one.next_tag for one in both] == [both[0].next_tag] * 2
    assert (both[0].count, both[0].places) == (both[1].count, both[1].places)
