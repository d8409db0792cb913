"""Filters of lists by name."""

from __future__ import annotations

import pytest

from escrowmq.admin.http import name_filters
from escrowmq.admin.http.name_filters import LONGEST, BadQuery, matching

NAMES = ["orders", "orders.eu", "bills", "a|b", "Orders-7"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("^orders", ["orders", "orders.eu"]),
        (r"\.eu$", ["orders.eu"]),
        ("^(orders|bills)$", ["orders", "bills"]),
        ("(?:b|O).*[0-9]$", ["Orders-7"]),
        ("[Oo]rders-?", ["orders", "orders.eu", "Orders-7"]),
        (r"a\|b", ["a|b"]),
        ("[]|]", ["a|b"]),
        ("l{2}", ["bills"]),
        (".*", NAMES),
    ],
)
def test_names_in_which_an_expression_is_found(pattern: str, found: list[str]) -> None:
    assert [name for name in NAMES if matching(pattern)(name)] == found


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(", "no regular expression"),
        ("a" * (LONGEST + 1), "at most 200 characters"),
        ("(a+)+", "behind a group"),
        ("(a|a)*", "behind a group"),
        (r"(a)\1", "not supported"),
        ("(?=a)b", "not supported"),
        ("a*a*a*b", "too many"),
        ("a?" * 20 + "b", "too many"),
        ("(a|aa)" * 20, "too many"),
        ("a{1,99}" * 3, "too many"),
    ],
)
def test_an_expression_that_is_invalid_or_could_take_long_is_refused(pattern: str, text: str) -> None:
    with pytest.raises(BadQuery, match=text):
        matching(pattern)


def test_a_search_ends_after_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_filters, "SECONDS", -1.0)
    with pytest.raises(BadQuery, match="takes too long"):
        matching("a")("a")
