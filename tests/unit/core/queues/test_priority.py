"""The priority discipline, compared with a sorted list, with a memory limit that pages out almost everything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.discipline import ENTRY_COST, Discipline
from escrowmq.core.queues.fifo import Fifo
from escrowmq.core.queues.priority import Priority
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


class TestPriority:
    def make(self, site: Site, highest: int, limit: int = 1 << 20) -> Priority:
        return Priority(highest, site.broker.engine.pager, lambda: fifo(site, limit))

    @pytest.mark.rule("ORD-6")
    @given(
        st.lists(st.tuples(st.integers(0, 12), st.integers(1, 3)), max_size=30),
        st.sampled_from([0, 2 * ENTRY_COST, 1 << 20]),
        st.integers(1, 5),
    )
    def test_higher_priorities_come_first_and_each_priority_is_in_order(
        self, plan: list[tuple[int, int]], limit: int, most: int
    ) -> None:
        site = Site()
        order = self.make(site, 9, limit)
        expected: list[tuple[int, int]] = []
        position = 1
        for priority, count in plan:
            order.append(Run(Envelope("", "q", priority=priority), position, 5), [b"x"] * count)
            expected += [(-min(priority, 9), position + i) for i in range(count)]
            position += count
        expected.sort()
        assert len(order) == len(expected)
        out: list[Entry] = []
        while len(order):
            head = order.peek()
            assert head is not None
            assert head.position == expected[len(out)][1]
            taken = order.take(most)
            assert 1 <= len(taken) <= most
            out += taken
        assert [entry.position for entry in out] == [position for _, position in expected]
        order.put_back(out[::-1])
        assert len(order) == len(out)
        loaded = loaded_in_parts(order, most)
        if limit > 2 * ENTRY_COST:  # otherwise those that the log has are not kept in memory
            assert sorted(loaded) == sorted(out)
        assert {entry.position for entry in loaded} <= {entry.position for entry in out}
        again: list[Entry] = []
        while len(order):
            again += order.take(most)
        assert [entry.position for entry in again] == [position for _, position in expected]

    def test_clearing_returns_everything(self) -> None:
        site = Site()
        order = self.make(site, 3)
        for position in range(1, 10):
            order.append(Run(Envelope("", "q", priority=position % 4), position, 5), [b""])
        assert sorted(r.first for r in order.references()) == list(range(1, 10))
        gone = order.withdraw()
        assert [position for position in range(20) if position in gone] == list(range(1, 10))
        assert len(order) == 0
        assert order.peek() is None
        assert order.take(5) == []
