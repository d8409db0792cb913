"""Unsettled deliveries, compared with a dictionary of delivery tags."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues import runs
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.discipline import ENTRY_COST
from escrowmq.core.queues.queue import Queue
from escrowmq.core.queues.runs import BLOCK, Stretch
from escrowmq.core.queues.unsettled import Unsettled, by_consumer, entries_by_consumer
from tests.unit.core.site import Sink, Site

RUN = Run(Envelope("", "q"), 1, 0)


def queue() -> Queue:
    return Site().queue()


def entries(count: int) -> list[Entry]:
    return [Entry(1 + i, b"", RUN) for i in range(count)]


CONSUMER = Consumer(queue(), Sink())


def flat(taken: list[Stretch]) -> list[tuple[int, Consumer, Entry]]:
    """Return the deliveries of ranges, one by one, with their tags."""
    return [(tag, consumer, entry) for first, entries, consumer in taken for tag, entry in enumerate(entries, first)]


def one_by_one(unsettled: Unsettled) -> list[tuple[Consumer, Entry]]:
    """Return all deliveries, in order."""
    return [(consumer, entry) for consumer, entries in unsettled.copies() for entry in entries]


class UnsettledMachine(RuleBasedStateMachine):
    """The unsettled deliveries by tag, and those that a transaction has taken and may restore."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(runs, "BLOCK", 4)
        self.unsettled = Unsettled()
        self.consumers = [Consumer(queue(), Sink()) for _ in range(2)]
        self.known: dict[int, tuple[Consumer, Entry]] = {}
        self.next_tag = 1
        self.taken: list[Stretch] = []

    def teardown(self) -> None:
        self.patch.undo()

    def pop(self, tags: list[int]) -> list[tuple[int, Consumer, Entry]]:
        return [(tag, *self.known.pop(tag)) for tag in tags]

    @rule(first=st.integers(0, 1200), size=st.sampled_from([0, 1, 5, 50, 2000]))
    def take_between(self, first: int, size: int) -> None:
        expected = self.pop([tag for tag in sorted(self.known) if first <= tag <= first + size])
        assert flat(self.unsettled.take_between(first, first + size)) == expected

    @rule(count=st.sampled_from([1, 1, 2, 3, 5, 40, 1100]), which=st.integers(0, 1))
    def add(self, count: int, which: int) -> None:
        added = entries(count)
        self.unsettled.add(added, self.consumers[which])
        for entry in added:
            self.known[self.next_tag] = (self.consumers[which], entry)
            self.next_tag += 1

    @rule(counts=st.lists(st.sampled_from([0, 1, 1, 1, 3]), max_size=70), last=st.sampled_from([1, 1, 1, 1100]))
    def add_each(self, counts: list[int], last: int) -> None:
        deliveries = [(self.consumers[i % 2], entries(count)) for i, count in enumerate([*counts, last])]
        added = [(consumer, entry) for consumer, some in deliveries for entry in some]
        assert self.unsettled.add_each(deliveries) == self.next_tag
        for delivery in added:
            self.known[self.next_tag] = delivery
            self.next_tag += 1

    @rule(count=st.integers(1, 3))
    def skip(self, count: int) -> None:
        self.unsettled.skip(count)
        self.next_tag += count

    @rule(back=st.integers(-2, 50))
    def take(self, back: int) -> None:
        self.take_one(self.next_tag - back)

    @rule(tag=st.sampled_from([0, 1, 2, 2**63, 2**64 - 1]))
    def take_one(self, tag: int) -> None:
        one = self.unsettled.take(tag)
        assert flat([one] if one else []) == self.pop([tag] if tag in self.known else [])
        self.taken += [one] if one else []

    @rule(front=st.integers(0, 40), steps=st.lists(st.sampled_from([1, 1, 1, 2, 7, -3]), max_size=60))
    def take_each(self, front: int, steps: list[int]) -> None:
        tag = min(self.known, default=1) + front
        tags = [tag]
        for step in steps:
            tags.append(tags[-1] + step)
        wanted = []
        for tag in tags:
            if tag not in self.known:
                break
            wanted += self.pop([tag])
        taken = self.unsettled.take_each(tags)
        assert flat(taken) == wanted
        self.taken += taken

    @rule(back=st.integers(-2, 60), everything=st.booleans())
    def take_through(self, back: int, everything: bool) -> None:
        tag = 0 if everything else max(self.next_tag - back, 1)
        expected = []
        if tag in self.known or everything:
            expected = self.pop([each for each in sorted(self.known) if each <= tag or everything])
        taken = self.unsettled.take_through(tag)
        assert flat(taken) == expected
        self.taken += taken

    @rule()
    def restore(self) -> None:
        for consumer, tags, entries in by_consumer(self.taken):
            self.unsettled.restore(consumer, tags, entries)
        for tag, consumer, entry in flat(self.taken):
            self.known[tag] = (consumer, entry)
        self.taken = []

    @rule()
    def settle_for_good(self) -> None:
        self.taken = []

    @rule()
    def clear(self) -> None:
        assert flat(self.unsettled.clear()) == self.pop(sorted(self.known))
        self.taken = []

    @rule(most=st.integers(1, 9), settled=st.integers(0, 30))
    def walk(self, most: int, settled: int) -> None:
        """Walk in parts while deliveries in earlier parts are settled."""
        whole = [self.known[tag] for tag in sorted(self.known)]
        found = self.unsettled.part(0, most)
        self.take(self.next_tag - settled)
        while part := self.unsettled.part(len(found), most):
            found += part
        gone = [item for item in whole if item not in found]
        assert len(gone) <= 1
        assert [item for item in whole if item in found] == found
        assert not any(self.known[tag] in gone for tag in self.known)

    @rule()
    def weigh(self) -> None:
        """Compare the size. This is no invariant, because sizes are estimated later than deliveries are added."""
        assert self.unsettled.bytes == sum(ENTRY_COST + len(entry.content) for _, entry in self.known.values())

    @invariant()
    def agrees(self) -> None:
        whole = [self.known[tag] for tag in sorted(self.known)]
        assert self.unsettled.next_tag == self.next_tag
        assert self.unsettled.count == len(self.known)
        assert one_by_one(self.unsettled) == whole
        assert self.unsettled.part(0, 2000) == whole[:2000]
        assert self.unsettled.part(7, 3) == whole[7:10]

    @invariant()
    def memory_is_in_proportion(self) -> None:
        found = list(self.unsettled._runs)
        assert len(found) <= len(self.known)
        assert sum(len(run.entries) for run in found) <= 16 * len(self.known)

    @invariant()
    def blocks_are_small(self) -> None:
        blocks = self.unsettled._runs.blocks
        assert all(0 < len(block.runs) < 8 for block in blocks) or not blocks[0].runs
        assert {consumer.queue for consumer, _ in self.known.values()} <= self.unsettled.queues()


UnsettledMachine.TestCase.settings = settings(stateful_step_count=30, deadline=None)
TestUnsettled = UnsettledMachine.TestCase


@pytest.mark.parametrize("run", [1, 10, 1000])
def test_a_stuck_delivery_uses_no_memory_for_later_ones(run: int) -> None:
    unsettled = Unsettled()
    consumer = Consumer(queue(), Sink())
    unsettled.add(entries(10), consumer)
    for tag in range(2, 11):
        assert unsettled.take(tag) is not None
    for _ in range(20_000 // run):
        first = unsettled.next_tag
        unsettled.add(entries(run), consumer)
        assert len(unsettled.take_each(list(range(first, first + run)))) == 1
    assert unsettled.count == 1
    assert len(list(unsettled._runs)) < 100
    assert sum(len(one.entries) for one in unsettled._runs) == 1


def test_every_tenth_stuck_delivery_uses_little_more_memory_than_its_own() -> None:
    unsettled = Unsettled()
    unsettled.add(entries(10_000), Consumer(queue(), Sink()))
    for tag in range(1, 10_001):
        if tag % 10:
            assert unsettled.take(tag) is not None
    assert unsettled.count == 1000
    assert sum(len(one.entries) for one in unsettled._runs) < 1100


def test_entries_alone_are_grouped_by_consumer_too() -> None:
    one, two = (Consumer(queue(), Sink(), tag) for tag in "ab")
    a, b, c, d = entries(4)
    assert entries_by_consumer([(1, [a], one), (2, [b], two), (5, [c, d], one)]) == {one: [a, c, d], two: [b]}


def test_grouping_by_consumer_keeps_the_order() -> None:
    one, two = (Consumer(queue(), Sink(), tag) for tag in "ab")
    a, b, c, d = entries(4)
    assert by_consumer([]) == []
    assert by_consumer([(3, [a, b], one)]) == [(one, range(3, 5), [a, b])]
    assert by_consumer([(1, [a], one), (2, [b], two), (3, [c], one), (4, [d], two)]) == [
        (one, [1, 3], [a, c]),
        (two, [2, 4], [b, d]),
    ]


def _thousand_rollbacks(unsettled: Unsettled, tag: int) -> float:
    started = time.perf_counter()
    for _ in range(1000):
        taken = unsettled.take(tag)
        assert taken is not None
        first, entries, consumer = taken
        unsettled.restore(consumer, [first], entries)
    return time.perf_counter() - started


@pytest.mark.parametrize("run", [1, 200_000])
@pytest.mark.parametrize("tag", [1, 100_000])
def test_a_rollback_costs_time_for_settled_deliveries_only(run: int, tag: int) -> None:
    """A client with very many deliveries and frequent rollbacks must not delay the turns of all others."""
    unsettled = Unsettled()
    consumer = Consumer(queue(), Sink())
    for _ in range(200_000 // run):
        unsettled.add(entries(run), consumer)
    assert _thousand_rollbacks(unsettled, tag) < 5.0, "some 50 s if each walks through all of them"
    assert unsettled.count == 200_000


def test_copies_are_made_run_by_run_and_stay_as_they_are() -> None:
    unsettled = Unsettled()
    consumer = Consumer(queue(), Sink())
    whole = entries(1000)
    unsettled.add(whole, consumer)
    unsettled.take(2)
    copies = unsettled.copies()
    unsettled.clear()
    assert copies == [(consumer, [whole[0], *whole[2:]])]


def test_deliveries_of_many_runs_are_restored_in_one_call() -> None:
    unsettled = Unsettled()
    consumer = Consumer(queue(), Sink())
    for _ in range(3000):
        unsettled.add(entries(1), consumer)
    whole = one_by_one(unsettled)
    ((_, tags, found),) = by_consumer(unsettled.take_each(list(range(2, 3000))))
    unsettled.restore(consumer, tags, found)
    assert one_by_one(unsettled) == whole
    assert unsettled.take(2) is not None


def test_the_size_of_deliveries_up_to_a_tag_is_estimated_from_a_few_of_each_run() -> None:
    unsettled, one = Unsettled(), Consumer(queue(), Sink())
    for size in (1000, 3000):
        unsettled.add([Entry(1 + i, bytes(size), RUN) for i in range(100)], one)
    assert unsettled.bytes_before(1) == 0
    assert unsettled.bytes_before(51) == 50 * (1000 + ENTRY_COST)
    assert unsettled.bytes_before(201) == 100 * (4000 + 2 * ENTRY_COST)
    unsettled.take_through(100)
    unsettled.take(150)
    assert unsettled.bytes_before(1000) == 99 * (3000 + ENTRY_COST)
    unsettled.clear()
    assert unsettled.bytes_before(1000) == 0


@pytest.mark.rule("FAIR-1")
@pytest.mark.parametrize(
    "change",
    [
        lambda unsettled: unsettled.take(1),
        lambda unsettled: unsettled.take(5),
        lambda unsettled: unsettled.take_through(3),
        lambda unsettled: unsettled.take_between(2, 3),
        lambda unsettled: unsettled.take_between(4, 900),
        lambda unsettled: unsettled.take_each([7, 8, 9]),
        lambda unsettled: unsettled.clear(),
        lambda unsettled: unsettled.add(entries(3), CONSUMER),
        lambda unsettled: unsettled.add_each([(CONSUMER, entries(2))]),
        lambda unsettled: [unsettled.restore(consumer, [tag], some) for tag, some, consumer in [unsettled.take(6)]],
    ],
)
def test_copies_that_were_made_in_advance_are_those_of_the_present_deliveries(
    change: Callable[[Unsettled], object],
) -> None:
    unsettled = Unsettled()
    for _ in range(700):
        unsettled.add(entries(1), CONSUMER)
    unsettled.add(entries(10), CONSUMER)
    costs, at = [], 0
    while True:
        cost, at = unsettled.copy_ahead(at, 1)
        costs.append(cost)
        if not at:
            break
    change(unsettled)
    expected = [(run.consumer, run.living()) for run in unsettled._runs]
    assert unsettled.copies() == expected
    assert unsettled.copies() == expected, "also without copies in advance"


@pytest.mark.rule("FAIR-1")
def test_deliveries_are_copied_in_pieces_in_advance() -> None:
    unsettled = Unsettled()
    for _ in range(5000):
        unsettled.add(entries(1), CONSUMER)
    costs, at = [], 0
    while True:
        cost, at = unsettled.copy_ahead(at, 600)
        costs.append(cost)
        if not at:
            break
    assert max(costs) < 600 + 2 * BLOCK
    assert sum(costs) > 5000
    assert unsettled.copy_ahead(0, 600) == (1, 0), "nothing has changed"
    unsettled.take(1)
    assert unsettled.copy_ahead(0, 600)[0] <= 1 + 2 * BLOCK


@pytest.mark.rule("FAIR-1", "TX-4")
@pytest.mark.parametrize("missing", [None, 5, 1500])
def test_many_deliveries_are_restored_under_their_tags(missing: int | None) -> None:
    unsettled = Unsettled()
    unsettled.add(entries(3000), CONSUMER)
    before = one_by_one(unsettled)
    taken = [(tag, entry) for tag, _, entry in flat(unsettled.clear())]
    if missing is not None:
        del taken[missing]
        del before[missing]
    unsettled.restore(CONSUMER, [tag for tag, _ in taken], [entry for _, entry in taken])
    assert one_by_one(unsettled) == before
    assert unsettled.count == len(before)
    assert [tag for tag, _, _ in flat(list(unsettled.stretches()))] == [tag for tag, _ in taken]


@pytest.mark.rule("FAIR-1")
def test_a_look_at_some_tags_does_not_look_at_the_rest_of_their_run(monkeypatch: pytest.MonkeyPatch) -> None:
    unsettled = Unsettled()
    unsettled.add(entries(1000), CONSUMER)
    for tag in range(2, 1000, 2):
        unsettled.take(tag)
    look, slots = runs.TagRun.stretches, list[int]()

    def watched(run: runs.TagRun, begin: int, end: int) -> Iterator[Stretch]:
        slots.append(end - begin)
        return look(run, begin, end)

    monkeypatch.setattr(runs.TagRun, "stretches", watched)
    assert [tag for tag, _, _ in flat(list(unsettled.stretches(500, 504)))] == [501, 503]
    assert slots == [5]
    assert [tag for tag, _, _ in flat(list(unsettled.stretches(998)))] == [999, 1000]
    assert [*unsettled.stretches(1001, 2000)] == []
