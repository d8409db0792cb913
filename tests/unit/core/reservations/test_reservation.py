"""A hold: numbers, and the references behind them."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.queues.backlog import Backlog
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.references import Range, Reference
from escrowmq.core.records.reservations import HeldRange
from escrowmq.core.records.settling import decode_settle
from escrowmq.core.reservations.reservation import HeldColumns, Hold, HoldSettlement, Part
from tests.unit.core.site import Site

lengths = st.lists(st.integers(1, 5), min_size=1, max_size=12)


def references(sizes: list[int], first: int = 1) -> Backlog:
    """Runs side by side, each in a block of its own."""
    starts = accumulate(sizes, initial=first)
    return Backlog.of(*(Reference(at, size, 1000 * at, 7) for at, size in zip(starts, sizes, strict=False)))


def held(*some: Backlog) -> Hold:
    hold = Hold(Site().queue(), "g")
    for each in some:
        hold.add(each, 0)
    return hold


def numbered(hold: Hold, number: int = 0) -> list[tuple[int, int, int]]:
    """Each message: number, position, block and place in one."""
    at, rows = hold.rows(number)
    found = []
    for first, length, lsn, start, _ in rows:
        found += [(at + i, first + i, lsn + start + i) for i in range(length)]
        at += length
    return found


class TestPart:
    @given(lengths, st.integers(1, 60))
    def test_it_is_read_from_any_number(self, sizes: list[int], number: int) -> None:
        hold = held(references(sizes))
        assert numbered(hold, number) == numbered(hold)[number - 1 :]

    @given(lengths, st.integers(1, 60))
    def test_what_is_below_a_number_is_taken(self, sizes: list[int], number: int) -> None:
        hold = held(references(sizes))
        number = min(number, hold.end)
        before = numbered(hold)
        taken = list(hold.take_below(number))
        assert sum(count for _, count in taken) == number - 1
        assert numbered(hold) == before[number - 1 :]
        assert (hold.first, len(hold)) == (number, len(before) - number + 1)

    @given(lengths, st.data())
    def test_compaction_divides_references_and_numbers_stay(self, sizes: list[int], data: st.DataObject) -> None:
        part = Part()
        for i, reference in enumerate(references(sizes)):
            part.add(Backlog.of(reference), 1 + reference.first - 1, i)
        hold = Hold(Site().queue(), "g")
        hold.parts.append(part)
        hold.end = 1 + sum(sizes)
        before = numbered(hold)
        counts = {row[0] + i: row[4] for row in hold.rows()[1] for i in range(row[1])}
        i = data.draw(st.integers(0, len(sizes) - 1))
        j = data.draw(st.integers(i + 1, len(sizes)))
        pieces = []
        for first, length, lsn, start in (part.at(k) for k in range(i, j)):
            cut = data.draw(st.integers(0, length - 1))
            if cut:
                pieces.append(Reference(first, cut, lsn, start))
            pieces.append(Reference(first + cut, length - cut, lsn, start + cut))
        part.substitute([(i, j, pieces)])
        assert numbered(hold) == before
        assert {row[0] + i: row[4] for row in hold.rows()[1] for i in range(row[1])} == counts
        for number in range(1, hold.end):
            assert numbered(hold, number) == before[number - 1 :]

    def test_many_that_left_leave_no_trace(self) -> None:
        hold = held(references([1] * 10_000))
        assert len(list(hold.take_below(9000))) == 8999
        (part,) = hold.parts
        assert len(part.firsts) == len(part.numbers) == len(part.deliveries) == 1001
        assert numbered(hold, 9500)[0][:2] == (9500, 9500)


class TestHold:
    def test_what_goes_back_in_position_begins_a_part(self) -> None:
        hold = held(references([2, 2], first=10), references([1], first=20), references([3], first=1))
        assert len(hold.parts) == 2
        assert [position for _, position, _ in numbered(hold)] == [10, 11, 12, 13, 20, 1, 2, 3]
        assert hold.ranges(1, 9) == [Range(1, 3), Range(10, 4), Range(20, 1)]
        assert hold.ranges(2, 7) == [Range(1, 1), Range(11, 3), Range(20, 1)]
        assert hold.ranges(3, 3) == []
        assert list(hold.take_below(7)) == [(10_000, 2), (12_000, 2), (20_000, 1), (1000, 1)]
        assert [position for _, position, _ in numbered(hold)] == [2, 3]

    def test_cleared_it_goes_on_with_the_next_number(self) -> None:
        hold = held(references([2, 1]))
        part = hold.parts[0]
        assert hold.clear() == [(Reference(1, 2, 1000, 7), 0), (Reference(3, 1, 3000, 7), 0)]
        assert (hold.first, hold.end, len(hold), len(part)) == (4, 4, 0, 0)
        hold.add(references([1], first=1), 1)
        assert numbered(hold)[0][:2] == (4, 1)
        assert repr(hold) == "<Hold of g on q: 4 to 5>"

    def test_a_snapshot_has_its_ranges_as_they_were(self) -> None:
        hold = held(references([2, 1]), references([4], first=1))
        hold.add(references([2], first=5), 2)
        taken = HeldColumns(hold)
        hold.clear()
        assert taken.held().ranges == [HeldRange(1, 3, 0), HeldRange(1, 4, 0), HeldRange(5, 2, 2)]
        assert taken.held().first == 1


class TestSettlement:
    def test_operations_of_one_record_do_not_overlap(self) -> None:
        hold = held(references([5]))
        before: dict[Hold, int] = {}
        first, second, third = (HoldSettlement(hold, end).operations(before) for end in (3, 5, 4))
        assert [kind for kind, _ in first] == [Kind.SETTLE, Kind.RELEASED]
        assert [decode_settle(operations[0][1][0]).ranges for operations in (first, second)] == [
            [Range(1, 2)],
            [Range(3, 2)],
        ]
        assert not third

    def test_pledges_are_by_branch(self) -> None:
        hold = held(references([5]))
        one, two = HoldSettlement(hold, 3), HoldSettlement(hold, 5)
        one.pledge(1)
        two.pledge(2)
        one.withdraw(1)
        one.withdraw(1)
        assert hold.pledged == {2: 5}

    def test_of_a_deleted_queue_there_is_nothing_to_settle(self) -> None:
        hold = held(references([5]))
        work = HoldSettlement(hold, 9)
        hold.queue.retire()
        work.check()
        assert not work.operations({})

    def test_it_must_be_held(self) -> None:
        work = HoldSettlement(held(references([5])), 7)
        with pytest.raises(Exception, match="cannot settle below 7"):
            work.check()
