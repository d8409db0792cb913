"""Patterns of names and limits."""

from __future__ import annotations

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.permissions import Vhost, checked_limits, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        ("", "", True),
        ("", "q", False),
        (".*", "", True),
        ("b", "abc", True),
        ("^b", "abc", False),
        ("^(a|b)$", "b", True),
        (r"amq\.default", "amq.default", True),
        ("[[a]", "[", True),
    ],
)
def test_patterns_are_searched_for(pattern: str, name: str, found: bool) -> None:
    assert (compile_pattern(pattern).search(name) is not None) is found


@pytest.mark.parametrize("pattern", ["(", "*", "[a", "[[:alpha:]]", "a{99999999999999999999}"])
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(BrokerError) as refused:
        compile_pattern(pattern)
    assert refused.value.condition is Condition.INVALID_ARGUMENT
    assert f"'{pattern}'" in refused.value.text


def test_limits_are_copied() -> None:
    given = {"max-queues": 0, "max-connections": 5}
    kept = checked_limits(given)
    given.clear()
    assert kept == {"max-queues": 0, "max-connections": 5}


@pytest.mark.parametrize("limits", [{"max-users": 1}, {"max-queues": -1}])
def test_what_is_no_limit(limits: dict[str, int]) -> None:
    with pytest.raises(BrokerError) as refused:
        checked_limits(limits)
    assert refused.value.condition is Condition.INVALID_ARGUMENT


def test_without_limits() -> None:
    assert Vhost("/").limits == {}
