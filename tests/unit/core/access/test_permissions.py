"""Permission patterns."""

from __future__ import annotations

import time

import pytest

from escrowmq.core.access.permissions import Pattern, Permission, TopicPermission, User, unsupported
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
        ("[[:alpha:]]", "7a", True),
        ("^ü$", "ü", True),
        ("^.$", "\udcfe", True),  # a name that is not UTF-8
        ("", "\udcfe", False),
        ("a$", "a\n", False),
    ],
)
def test_a_pattern_matches_anywhere_in_a_name(pattern: str, name: str, found: bool) -> None:
    assert Pattern(pattern).found_in(name) is found


@pytest.mark.parametrize("pattern", ["(", "*", "[a", "(?=a)", "(?<!a)b", r"(a)\1", "a{1001}", "(?>a)"])
def test_invalid_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(BrokerError) as refused:
        Pattern(pattern)
    assert refused.value.condition is Condition.INVALID_ARGUMENT
    assert f"'{pattern}'" in refused.value.text


@pytest.mark.rule("SEC-1")
def test_a_search_takes_linear_time() -> None:
    began = time.thread_time()
    for pattern in ("(a+)+$", "^(a|aa)+$", "(a*)*b", "^(a?){25}a{25}$"):
        assert not Pattern(pattern).found_in("a" * 24 + "!" * 200)
    assert time.thread_time() - began < 0.1


def test_a_pattern_that_needs_much_memory_is_refused() -> None:
    with pytest.raises(BrokerError, match="too large"):
        Pattern(r"((\pL{500}){2}|\pN{1000})" * 20)


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        (User("u", ""), False),
        (Permission("u", "/", ".*", ".*", "^(?!secret)"), True),
        (TopicPermission("u", "/", "x", "(?=a)", ".*"), True),
        (Permission("u", "/", "", "^a", ".*"), False),
    ],
)
def test_patterns_of_another_engine_are_found(entry: User | Permission | TopicPermission, fault: bool) -> None:
    assert (unsupported(entry) is not None) is fault
