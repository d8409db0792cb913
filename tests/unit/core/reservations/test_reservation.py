"""A reservation: its numbers, and the references that they stand for."""

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
from escrowmq.core.reservations.reservation import Part, Reservation, ReservationSettlement, ReservedColumns
from tests.unit.core.site import Site

lengths = st.lists(st.integers(1, 5), min_size=1, max_size=12)


def references(sizes: list[int], first: int = 1) -> Backlog:
    """Return runs of adjacent positions, each in a block of its own."""
    starts = accumulate(sizes, initial=first)
    return Backlog.of(*(Reference(at, size, 1000 * at, 7) for at, size in zip(starts, sizes, strict=False)))


def held(*some: Backlog) -> Reservation:
    reservation = Reservation(Site().queue(), "g")
    for each in some:
        reservation.add(each, 0)
    return reservation


def numbered(reservation: Reservation, number: int = 0) -> list[tuple[int, int, int]]:
    """Return number, position, block and index of each message."""
    at, rows = reservation.rows(number)
    found = []
    for first, length, lsn, start, _ in rows:
        found += [(at + i, first + i, lsn + start + i) for i in range(length)]
        at += length
    return found


class TestPart:
    @given(lengths, st.integers(1, 60))
    def test_a_part_is_read_from_any_number(self, sizes: list[int], number: int) -> None:
        reservation = held(references(sizes))
        assert numbered(reservation, number) == numbered(reservation)[number - 1 :]

    @given(lengths, st.integers(1, 60))
    def test_messages_below_a_number_are_taken(self, sizes: list[int], number: int) -> None:
        reservation = held(references(sizes))
        number = min(number, reservation.end)
        before = numbered(reservation)
        taken = list(reservation.take_below(number))
        assert sum(count for _, count in taken) == number - 1
        assert numbered(reservation) == before[number - 1 :]
        assert (reservation.first, len(reservation)) == (number, len(before) - number + 1)

    @given(lengths, st.data())
    def test_compaction_divides_references_and_numbers_stay(self, sizes: list[int], data: st.DataObject) -> None:
        part = Part()
        for i, reference in enumerate(references(sizes)):
            part.add(Backlog.of(reference), 1 + reference.first - 1, i)
        reservation = Reservation(Site().queue(), "g")
        reservation.parts.append(part)
        reservation.end = 1 + sum(sizes)
        before = numbered(reservation)
        counts = {row[0] + i: row[4] for row in reservation.rows()[1] for i in range(row[1])}
        i = data.draw(st.integers(0, len(sizes) - 1))
        j = data.draw(st.integers(i + 1, len(sizes)))
        pieces = []
        for first, length, lsn, start in (part.at(k) for k in range(i, j)):
            cut = data.draw(st.integers(0, length - 1))
            if cut:
                pieces.append(Reference(first, cut, lsn, start))
            pieces.append(Reference(first + cut, length - cut, lsn, start + cut))
        part.substitute([(i, j, pieces)])
        assert numbered(reservation) == before
        assert {row[0] + i: row[4] for row in reservation.rows()[1] for i in range(row[1])} == counts
        for number in range(1, reservation.end):
            assert numbered(reservation, number) == before[number - 1 :]

    def test_settled_messages_use_no_memory(self) -> None:
        reservation = held(references([1] * 10_000))
        assert len(list(reservation.take_below(9000))) == 8999
        (part,) = reservation.parts
        assert len(part.firsts) == len(part.numbers) == len(part.deliveries) == 1001
        assert numbered(reservation, 9500)[0][:2] == (9500, 9500)


class TestHold:
    def test_a_lower_position_begins_a_new_part(self) -> None:
        reservation = held(references([2, 2], first=10), references([1], first=20), references([3], first=1))
        assert len(reservation.parts) == 2
        assert [position for _, position, _ in numbered(reservation)] == [10, 11, 12, 13, 20, 1, 2, 3]
        assert reservation.ranges(1, 9) == [Range(1, 3), Range(10, 4), Range(20, 1)]
        assert reservation.ranges(2, 7) == [Range(1, 1), Range(11, 3), Range(20, 1)]
        assert reservation.ranges(3, 3) == []
        assert list(reservation.take_below(7)) == [(10_000, 2), (12_000, 2), (20_000, 1), (1000, 1)]
        assert [position for _, position, _ in numbered(reservation)] == [2, 3]

    def test_numbers_continue_after_clearing(self) -> None:
        reservation = held(references([2, 1]))
        part = reservation.parts[0]
        assert reservation.clear() == [(Reference(1, 2, 1000, 7), 0), (Reference(3, 1, 3000, 7), 0)]
        assert (reservation.first, reservation.end, len(reservation), len(part)) == (4, 4, 0, 0)
        reservation.add(references([1], first=1), 1)
        assert numbered(reservation)[0][:2] == (4, 1)
        assert repr(reservation) == "<Reservation of g on q: 4 to 5>"

    def test_a_snapshot_contains_the_ranges_unchanged(self) -> None:
        reservation = held(references([2, 1]), references([4], first=1))
        reservation.add(references([2], first=5), 2)
        taken = ReservedColumns(reservation)
        reservation.clear()
        assert taken.held().ranges == [HeldRange(1, 3, 0), HeldRange(1, 4, 0), HeldRange(5, 2, 2)]
        assert taken.held().first == 1


class TestSettlement:
    def test_operations_of_one_record_do_not_overlap(self) -> None:
        reservation = held(references([5]))
        before: dict[Reservation, int] = {}
        first, second, third = (ReservationSettlement(reservation, end).operations(before) for end in (3, 5, 4))
        assert [kind for kind, _ in first] == [Kind.SETTLE, Kind.RELEASED]
        assert [decode_settle(operations[0][1][0]).ranges for operations in (first, second)] == [
            [Range(1, 2)],
            [Range(3, 2)],
        ]
        assert not third

    def test_pledges_are_recorded_by_branch(self) -> None:
        reservation = held(references([5]))
        one, two = ReservationSettlement(reservation, 3), ReservationSettlement(reservation, 5)
        one.pledge(1)
        two.pledge(2)
        one.withdraw(1)
        one.withdraw(1)
        assert reservation.pledged == {2: 5}

    def test_settling_a_deleted_queue_does_nothing(self) -> None:
        reservation = held(references([5]))
        work = ReservationSettlement(reservation, 9)
        reservation.queue.retire()
        work.check()
        assert not work.operations({})

    def test_unreserved_messages_cannot_be_settled(self) -> None:
        work = ReservationSettlement(held(references([5])), 7)
        with pytest.raises(Exception, match="cannot settle below 7"):
            work.check()
