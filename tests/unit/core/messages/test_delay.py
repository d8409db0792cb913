"""The due time that headers ask for."""

from __future__ import annotations

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.delay import LONGEST, due_time

NOW = 1_700_000_000_000


class Timestamp(int):
    """A time in seconds, as protocols decode it."""


@pytest.mark.parametrize(
    ("headers", "delay"),
    [
        ({}, 0),
        ({"x-delay": 5000}, 5000),
        ({"x-delay": 0}, 0),
        ({"x-delay": -5000}, 0),
        ({"x-delay": "5000"}, 5000),
        ({"x-delay": "-1"}, 0),
        ({"x-delay": 5000.0}, 5000),
        ({"x-delay": LONGEST}, LONGEST),
        ({"x-delay": None}, 0),
        ({"x-opt-delivery-delay": 7}, 7),
        ({"x-opt-delivery-delay": 7, "x-delay": 9}, 7),
        ({"x-opt-delivery-time": NOW + 3}, 3),
        ({"x-opt-delivery-time": NOW + 3, "x-opt-delivery-delay": 7}, 3),
        ({"x-opt-delivery-time": NOW - 3}, 0),
        ({"x-opt-delivery-time": Timestamp(NOW // 1000 + 2)}, 2999),
    ],
)
def test_the_due_time(headers: dict[str, object], delay: int) -> None:
    assert due_time(headers, NOW) == NOW + delay


@pytest.mark.rule("DLY-3")
@pytest.mark.parametrize("name", ["x-delay", "x-opt-delivery-delay", "x-opt-delivery-time"])
@pytest.mark.parametrize("value", ["soon", "", "1.5", "9" * 30, 1.5, float("nan"), True, b"5", [5], {"ms": 5}])
def test_a_delay_that_is_not_understood_is_refused(name: str, value: object) -> None:
    with pytest.raises(BrokerError, match=f"invalid {name}") as caught:
        due_time({name: value}, NOW)
    assert caught.value.condition is Condition.PRECONDITION_FAILED


@pytest.mark.rule("DLY-3")
@pytest.mark.parametrize("headers", [{"x-delay": LONGEST + 1}, {"x-opt-delivery-time": NOW + LONGEST + 1}])
def test_a_delay_beyond_the_limit_is_refused(headers: dict[str, object]) -> None:
    with pytest.raises(BrokerError, match="at most 4294967295 ms"):
        due_time(headers, NOW)
