"""Settled positions: a floor and ranges above it, compared with a set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.groups.settled import Settled

STEPS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 6)), max_size=20)


@given(STEPS, st.integers(1, 45))
def test_it_is_the_set_of_the_positions_that_were_added(steps: list[tuple[int, int]], position: int) -> None:
    settled, model = Settled(), set[int]()
    for first, length in steps:
        expected = model | set(range(first, first + length))
        floor = next(each for each in range(1, 60) if each not in expected)
        assert settled.would_be([(first, length)]) == floor
        settled.add(first, length)
        model = expected
        assert settled.floor == floor
    assert {each for each in range(1, 60) if each in settled} == model
    assert settled.first_open(position) == next(each for each in range(position, 60) if each not in model)
    assert settled.end == max([1, *[each + 1 for each in model]])
    above = [each for first, length in settled.ranges() for each in range(first, first + length)]
    assert above == sorted(each for each in model if each > settled.floor)


@given(STEPS, st.integers(1, 45))
def test_raising_the_floor_settles_everything_before_it(steps: list[tuple[int, int]], floor: int) -> None:
    settled, model = Settled(), set(range(1, floor))
    settled.add_all(steps)
    settled.raise_to(floor)
    for first, length in steps:
        model |= set(range(first, first + length))
    assert {each for each in range(1, 60) if each in settled} == model
    assert settled.floor not in settled


def test_the_floor_never_goes_back() -> None:
    settled = Settled(9)
    settled.raise_to(3)
    settled.add(2, 1)
    assert (settled.floor, settled.ranges()) == (9, [])
