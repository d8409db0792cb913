"""Permission patterns."""

from __future__ import annotations

import pytest

from escrowmq.core.access.permissions import compile_pattern
from escrowmq.core.conditions import BrokerError, Condition


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
def test_a_pattern_matches_anywhere_in_a_name(pattern: str, name: str, found: bool) -> None:
    assert (compile_pattern(pattern).search(name) is not None) is found


@pytest.mark.parametrize("pattern", ["(", "*", "[a", "[[:alpha:]]", "a{99999999999999999999}"])
def test_invalid_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(BrokerError) as refused:
        compile_pattern(pattern)
    assert refused.value.condition is Condition.INVALID_ARGUMENT
    assert f"'{pattern}'" in refused.value.text
