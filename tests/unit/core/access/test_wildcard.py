"""Patterns with stars."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.access.wildcard import Wildcard


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("", [""], ["a"]),
        ("*", ["", "a", "a/b", "a\nb"], []),
        ("**", ["", "a"], []),
        ("a", ["a"], ["", "ab", "ba", "A"]),
        ("a*", ["a", "ab", "a*"], ["", "ba"]),
        ("*a", ["a", "ba", "aba"], ["ab"]),
        ("a*a", ["aa", "aba"], ["a"]),
        ("*a*b*", ["ab", "xaybz"], ["ba", "a", "b"]),
        ("a*b*c", ["abc", "axbxc", "abbc"], ["ac", "acb"]),
        ("%2F", ["/"], ["%2F"]),
        ("a%2Ab", ["a*b"], ["axb"]),
        ("a+b", ["a b"], ["a+b", "ab"]),
        ("%C3%A9*", ["é", "és"], ["e"]),
    ],
)
def test_a_star_stands_for_any_text(pattern: str, matching: list[str], others: list[str]) -> None:
    wildcard = Wildcard(pattern)
    assert [name for name in matching + others if wildcard.matches(name)] == matching


@pytest.mark.parametrize("pattern", ["%", "a%2", "%zz*", "*%", "%ff", "\ud800"])
def test_a_malformed_encoding_is_an_error(pattern: str) -> None:
    with pytest.raises(ValueError):
        Wildcard(pattern)


@pytest.mark.parametrize(
    ("pattern", "is_any"), [("*", True), ("***", True), ("", False), ("a*", False), ("*a", False), ("*a*", False)]
)
def test_only_stars_match_every_name(pattern: str, *, is_any: bool) -> None:
    assert Wildcard(pattern).is_any is is_any


@given(st.text("ab*", max_size=8), st.text("ab", max_size=12))
def test_it_matches_what_the_regular_expression_does(pattern: str, name: str) -> None:
    expression = ".*".join(map(re.escape, pattern.split("*")))
    assert Wildcard(pattern).matches(name) is (re.fullmatch(expression, name) is not None)
