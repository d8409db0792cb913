"""A steady rate: no message is due early, and none late."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.perf.pace import SECOND, Pace


@given(rate=st.floats(0.1, 1e6), start=st.integers(0, 10**15), number=st.integers(0, 10**7))
def test_a_message_is_due_at_its_time(rate: float, start: int, number: int) -> None:
    pace = Pace(rate, start)
    assert abs(pace.due(pace.time_of(number)) - (number + 1)) <= 1


def test_nothing_is_due_before_the_start() -> None:
    assert Pace(10, SECOND).due(SECOND - 1) == 0
    assert Pace(10, SECOND).due(SECOND) == 1


def test_one_second_makes_the_rates_number_of_messages_due() -> None:
    assert Pace(5000, 0).due(SECOND - 1) == 5000
