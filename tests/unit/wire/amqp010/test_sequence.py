"""Numbers of commands: comparing across the wrap, and sets of ranges."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.conditions import BrokerError
from escrowmq.wire.amqp010.sequence import LONGEST, MASK, Numbers, counted, unwrapped, wire_ranges


@pytest.mark.parametrize(
    ("number", "near", "expected"),
    [(5, 0, 5), (0, MASK, MASK + 1), (MASK, MASK + 1, MASK), (MASK, 0, -1), (7, (1 << 40) + 3, (1 << 40) + 7)],
)
def test_a_number_is_the_count_next_to_another_one(number: int, near: int, expected: int) -> None:
    assert unwrapped(number, near) == expected


@given(near=st.integers(0, 1 << 50), number=st.integers(0, MASK))
def test_a_count_has_the_number_and_is_near(near: int, number: int) -> None:
    count = unwrapped(number, near)
    assert count & MASK == number
    assert abs(count - near) <= 1 << 31


def test_a_range_may_cross_the_wrap() -> None:
    assert counted(((MASK, 1),), MASK) == [(MASK, MASK + 2)]
    assert wire_ranges([(MASK, MASK + 2)]) == ((MASK, 1),)


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(BrokerError, match="from 5 to 4 is empty"):
        counted(((5, 4),), 0)


def test_the_last_part_of_a_long_range_is_sent() -> None:
    assert wire_ranges([(0, 3 << 32)]) == (((3 << 32) - LONGEST & MASK, 0),)


@given(ranges=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=12))
def test_numbers_are_disjoint_ascending_ranges(ranges: list[tuple[int, int]]) -> None:
    numbers, expected = Numbers(), set[int]()
    for first, more in ranges:
        numbers.add(first, first + more)
        expected |= set(range(first, first + more + 1))
    found = list(numbers)
    assert {count for first, last in found for count in range(first, last + 1)} == expected
    assert all(before[1] + 1 < after[0] for before, after in pairwise(found))
    assert all((count in numbers) == (count in expected) for count in range(51))
    assert (len(numbers), bool(numbers)) == (len(found), bool(found))
    assert numbers.take() == found
    assert not numbers
