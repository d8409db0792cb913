"""The operators of selectors: three truth values, types, arithmetic, patterns."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.selectors import operators
from escrowmq.wire.selectors.operators import Evaluate, constant
from tests.unit.wire.selectors.message import Message

NONE = Message({})
TRUTH = [True, False, None]


def both(one: object, other: object) -> list[Evaluate]:
    return [constant(one), constant(other)]


@pytest.mark.parametrize(("one", "other"), list(itertools.product(TRUTH, TRUTH)))
def test_the_truth_tables(one: object, other: object) -> None:
    expected_and = False if False in (one, other) else None if None in (one, other) else True
    expected_or = True if True in (one, other) else None if None in (one, other) else False
    assert operators.conjunction(both(one, other))(NONE) is expected_and
    assert operators.disjunction(both(one, other))(NONE) is expected_or
    assert operators.negation(constant(one))(NONE) is (None if one is None else not one)


@pytest.mark.parametrize("value", [5, "true", 1.0, b"x"])
def test_a_value_that_is_no_boolean_is_neither_true_nor_false(value: object) -> None:
    assert operators.conjunction(both(value, True))(NONE) is None
    assert operators.disjunction(both(value, False))(NONE) is None
    assert operators.negation(constant(value))(NONE) is None


@pytest.mark.parametrize(
    ("one", "symbol", "other", "result"),
    [
        (1, "=", 1.0, True),
        (1, "=", True, False),
        (1, "<>", True, False),
        ("1", "=", 1, False),
        ("1", "<>", 1, False),
        ("a", "<>", "b", True),
        ("a", "!=", "a", False),
        ("a", "<", "b", False),
        (True, ">", False, False),
        (1, "<", 1.5, True),
        (2, ">=", 2, True),
        (3, "<=", 2, False),
        (None, "=", None, None),
        (None, "<", 1, None),
        (1, "<>", None, None),
        (float("nan"), "=", float("nan"), False),
    ],
)
def test_comparisons(one: object, symbol: str, other: object, result: object) -> None:
    assert operators.compare(symbol, *both(one, other))(NONE) is result


@pytest.mark.parametrize(
    ("one", "symbol", "other", "result"),
    [
        (7, "+", 2, 9),
        (7, "-", 9, -2),
        (7, "*", 0.5, 3.5),
        (7, "/", 2, 3),
        (-7, "/", 2, -3),
        (7.0, "/", 2, 3.5),
        (-7, "%", 3, -1),
        (7.5, "%", 2, 1.5),
        (7, "/", 0, None),
        (7, "%", 0, None),
        (7.0, "/", 0, None),
        (1.0, "%", 0.0, None),
        ("a", "+", "b", None),
        (True, "+", 1, None),
        (None, "+", 1, None),
        (1 << 63, "*", 1 << 63, None),
    ],
)
def test_arithmetic(one: object, symbol: str, other: object, result: object) -> None:
    assert operators.arithmetic(constant(one), [(symbol, constant(other))])(NONE) == result


def test_a_chain_is_calculated_from_left_to_right() -> None:
    assert operators.arithmetic(constant(20), [("/", constant(3)), ("*", constant(3))])(NONE) == 18


@pytest.mark.parametrize(
    ("symbol", "value", "result"), [("-", 5, -5), ("+", 5, 5), ("-", "5", None), ("-", True, None)]
)
def test_signs(symbol: str, value: object, result: object) -> None:
    assert operators.signed(symbol, constant(value))(NONE) == result


def test_null() -> None:
    assert operators.is_null(constant(None))(NONE) is True
    assert operators.is_null(constant(""))(NONE) is False


@pytest.mark.parametrize(
    ("value", "members", "result"),
    [
        ("a", ["b", "a"], True),
        ("c", ["b", "a"], False),
        (1, [1.0], True),
        (1, [True, "1"], False),
        (None, ["a"], None),
        ("a", [None, "a"], True),
        ("b", [None, "a"], None),
    ],
)
def test_lists(value: object, members: list[object], result: object) -> None:
    assert operators.in_list(constant(value), list(map(constant, members)))(NONE) is result


@pytest.mark.parametrize(("value", "result"), [("a", True), ("c", False), (1, False), (None, None)])
def test_lists_of_strings(value: object, result: object) -> None:
    assert operators.in_texts(constant(value), frozenset({"a", "b"}))(NONE) is result


@pytest.mark.parametrize(
    ("value", "pattern", "escape", "result"),
    [
        ("12993", "12%3", "", True),
        ("1234", "12%3", "", False),
        ("lose", "l_se", "", True),
        ("loose", "l_se", "", False),
        ("_foo", "\\_%", "\\", True),
        ("bar", "\\_%", "\\", False),
        ("50%", "50!%", "!", True),
        ("a\nb", "a%b", "", True),
        ("a.b", "a.b", "", True),
        ("axb", "a.b", "", False),
        ("grün", "gr_n", "", True),
        ("", "%", "", True),
        ("", "_", "", False),
        (5, "%", "", False),
        (None, "%", "", None),
    ],
)
def test_patterns(value: object, pattern: str, escape: str, result: object) -> None:
    assert operators.like(constant(value), pattern, escape)(NONE) is result


def test_a_pattern_with_many_wildcards_is_matched_in_linear_time() -> None:
    assert operators.like(constant("a" * 20_000), "%a" * 200 + "b", "")(NONE) is False


@given(st.text(st.sampled_from("ab%_"), max_size=8), st.text(st.sampled_from("ab%_"), max_size=8))
def test_patterns_agree_with_a_slow_definition(value: str, pattern: str) -> None:
    def fits(value: str, pattern: str) -> bool:
        if not pattern:
            return not value
        if pattern[0] == "%":
            return any(fits(value[i:], pattern[1:]) for i in range(len(value) + 1))
        return bool(value) and pattern[0] in {"_", value[0]} and fits(value[1:], pattern[1:])

    assert operators.like(constant(value), pattern, "")(NONE) is fits(value, pattern)
