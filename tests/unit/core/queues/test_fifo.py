"""The first-in-first-out discipline, compared with a sorted list, with a memory limit that pages out almost
everything.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.discipline import ENTRY_COST, HEAVY, Discipline
from escrowmq.core.queues.fifo import FILL_BYTES, FILL_RUNS, Fifo
from tests.unit.core.site import Site


def no_expiry(envelope: Envelope, time: int) -> int:
    del envelope, time
    return 0


def fifo(site: Site, limit: int = 1 << 20) -> Fifo:
    return Fifo(site.broker.engine.pager, limit, no_expiry)


def loaded_in_parts(order: Discipline, most: int) -> list[Entry]:
    """Return the entries in memory, loaded in parts."""
    found: list[Entry] = []
    while part := order.loaded(len(found), most):
        assert len(part) <= most
        found += part
    return found


class FifoMachine(RuleBasedStateMachine):
    """A Fifo and its expected content. Entries that were taken may be put back in any order."""

    limit = 3 * (ENTRY_COST + 2)

    def __init__(self) -> None:
        super().__init__()
        self.site = Site()
        self.fifo = fifo(self.site, self.limit)
        self.position = 1
        self.inside: list[tuple[int, bytes]] = []
        self.outside: list[Entry] = []

    @rule(count=st.integers(1, 8), size=st.integers(0, 3), header=st.sampled_from([0, 0, 100, HEAVY + 1]))
    def append(self, count: int, size: int, header: int) -> None:
        contents = [bytes([self.position % 256, i])[:size] for i in range(count)]
        envelope = Envelope("", "q", b"%04d" % self.position * (header // 4 + 1) if header else b"")
        self.fifo.append(Run(envelope, self.position, 5), contents)
        self.inside += [(self.position + i, content) for i, content in enumerate(contents)]
        self.position += count

    @rule(most=st.integers(1, 10))
    def take(self, most: int) -> None:
        taken = self.fifo.take(most)
        assert len(taken) <= most
        assert bool(taken) == bool(self.inside)
        self.inside.sort()
        assert [(entry.position, entry.content) for entry in taken] == self.inside[: len(taken)]
        del self.inside[: len(taken)]
        self.outside += taken

    @rule(first=st.integers(0, 40), length=st.integers(1, 40), most=st.integers(1, 10), data=st.data())
    def pluck(self, first: int, length: int, most: int, data: st.DataObject) -> None:
        """Look at entries anywhere, and take some of them out."""
        self.inside.sort()
        expected = [(position, content) for position, content in self.inside if first <= position < first + length]
        found = self.fifo.scan(first, first + length, most)
        assert len(found) <= most
        assert bool(found) == bool(expected)
        assert [(entry.position, entry.content) for entry in found] == expected[: len(found)]
        chosen = data.draw(st.lists(st.booleans(), min_size=len(found), max_size=len(found)))
        plucked = [entry for entry, taken in zip(found, chosen, strict=True) if taken]
        self.fifo.pluck(plucked)
        gone = {entry.position for entry in plucked}
        self.inside = [item for item in self.inside if item[0] not in gone]
        self.outside += plucked

    @precondition(lambda self: self.outside)
    @rule(data=st.data())
    def put_back(self, data: st.DataObject) -> None:
        back = data.draw(st.lists(st.sampled_from(self.outside), unique_by=id, min_size=1))
        self.outside = [entry for entry in self.outside if entry not in back]
        self.fifo.put_back(back)
        self.inside += [(entry.position, entry.content) for entry in back]

    @rule()
    def peek(self) -> None:
        entry = self.fifo.peek()
        assert (entry and (entry.position, entry.content)) == (min(self.inside) if self.inside else None)

    @rule()
    def sync(self) -> None:
        self.site.sync()

    @precondition(lambda self: len(self.inside) > 20)
    @rule()
    def clear(self) -> None:
        gone = self.fifo.withdraw()
        assert [p for p in range(1, self.position) if p in gone] == sorted(p for p, _ in self.inside)
        self.inside.clear()
        assert self.fifo.resident == 0

    @invariant()
    def has_the_expected_content(self) -> None:
        assert len(self.fifo) == len(self.inside)
        held = sorted(r.first + i for r in self.fifo.references() for i in range(r.length))
        assert held == sorted(p for p, _ in self.inside)
        in_memory = [entry.position for entry in self.fifo.in_memory()]
        assert in_memory == sorted(in_memory)
        assert sorted(entry.position for entry in loaded_in_parts(self.fifo, 3)) == in_memory
        weights = {id(entry.run): len(entry.run.envelope.header) for entry in self.fifo.head}
        heavy = sum(weight for weight in weights.values() if weight > HEAVY)
        assert self.fifo.resident == heavy + sum(len(entry.content) + ENTRY_COST for entry in self.fifo.head)


TestFifo = FifoMachine.TestCase


TestFifo.settings = settings(stateful_step_count=40)


@pytest.mark.rule("ORD-5")
@pytest.mark.parametrize("limit", [0, 1, 2, ENTRY_COST, 10 * ENTRY_COST, 1 << 20])
def test_the_order_is_the_same_for_any_memory_limit(limit: int) -> None:
    site = Site()
    order = fifo(site, limit)
    for i in range(100):
        order.append(Run(Envelope("", "q"), 1 + 3 * i, 5), [b"%d" % i] * 3)
    first = order.peek()
    assert first is not None
    assert first.position == 1
    taken: list[Entry] = []
    while len(order):
        taken += order.take(7)
    assert [entry.position for entry in taken] == list(range(1, 301))
    assert order.peek() is None
    assert order.take(1) == []


def test_memory_is_bounded() -> None:
    site = Site()
    limit = 50 * ENTRY_COST
    order = fifo(site, limit)
    for i in range(1000):
        order.append(Run(Envelope("", "q"), 1 + i, 5), [b""])
    assert order.resident <= limit
    assert len(list(order.in_memory())) <= 50
    for _ in range(100):
        order.take(10)
        assert order.resident <= limit


def test_long_headers_count_as_memory() -> None:
    site = Site()
    limit = 1 << 20
    order = fifo(site, limit)
    for i in range(100):
        order.append(Run(Envelope("", "q", b"%04d" % i * 15_000), 1 + i, 5), [b""])
    assert len(list(order.in_memory())) <= limit // 60_000 + 1
    while len(order):
        order.take(3)
        assert order.resident <= limit
    assert order.resident == 0


def test_one_long_header_of_many_messages_counts_once() -> None:
    order = fifo(Site(), 1 << 20)
    envelope = Envelope("", "q", b"h" * 60_000)
    for i in range(100):
        order.append(Run(envelope, 1 + i, 5), [b""])
    assert len(list(order.in_memory())) == 100


def test_delivery_counts_from_recovery_are_set_when_entries_are_loaded() -> None:
    site = Site()
    order = fifo(site)
    lsn = site.broker.engine.pager.store(Run(Envelope("", "q"), 1, 5), [b"a", b"b", b"c", b"d"])
    order.tail.append(1, 4, lsn, 0)
    order.delivered_below = 3
    order.deliveries = {2: 7, 4: 1}
    assert [(entry.content, entry.deliveries) for entry in order.take(4)] == [
        (b"a", 1),
        (b"b", 7),
        (b"c", 0),
        (b"d", 1),
    ]


@pytest.mark.parametrize(("size", "most"), [(0, FILL_RUNS), (FILL_BYTES // 4, 4), (2 * FILL_BYTES, 1)])
def test_one_fill_loads_a_bounded_number_of_bytes(size: int, most: int) -> None:
    site = Site()
    order = fifo(site, 16 << 20)
    for position in range(1, 2 * FILL_RUNS if size == 0 else 10):
        order.tail.append(
            position, 1, site.broker.engine.pager.store(Run(Envelope("", "q"), position, 5), [b"x" * size]), 0
        )
    assert [entry.position for entry in order.take(1)] == [1]
    assert 1 + len(order.head) <= most
