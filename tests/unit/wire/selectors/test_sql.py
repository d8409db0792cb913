"""Whole expressions: precedence, limits, errors, and any text at all."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from escrowmq.wire.selectors.sql import DEEPEST, LONGEST, jms_selector, sql_filter
from escrowmq.wire.selectors.values import SelectorError
from tests.unit.wire.selectors.message import Message


@pytest.mark.parametrize(
    ("text", "properties", "result"),
    [
        ("a = 1 OR b = 1 AND c = 1", {"a": 1}, True),
        ("(a = 1 OR b = 1) AND c = 1", {"a": 1}, False),
        ("NOT a = 1 AND b = 2", {"a": 2, "b": 2}, True),
        ("NOT (a = 1 AND b = 2)", {"a": 1, "b": 2}, False),
        ("NOT NOT a", {"a": True}, True),
        ("a", {"a": True}, True),
        ("a", {"a": "true"}, False),
        ("a", {}, False),
        ("NOT a", {}, False),
        ("a = TRUE", {"a": True}, True),
        ("1 + 2 * 3 = 7", {}, True),
        ("(1 + 2) * 3 = 9", {}, True),
        ("2 - -1 = 3", {}, True),
        ("a BETWEEN 1 AND 3 AND b = 1", {"a": 2, "b": 1}, True),
        ("a NOT BETWEEN 1 AND 3", {"a": 4}, True),
        ("a NOT BETWEEN 1 AND 3", {}, False),
        ("a BETWEEN 1 AND 3", {"a": "2"}, False),
        ("a IN ('x', 'y')", {"a": "y"}, True),
        ("a NOT IN ('x', 'y')", {"a": "z"}, True),
        ("a NOT IN ('x', 'y')", {}, False),
        ("a IN (1, 2 + 1)", {"a": 3}, True),
        ("a = 'it''s'", {"a": "it's"}, True),
        ("a LIKE 'x!%%' ESCAPE '!'", {"a": "x%y"}, True),
        ("a NOT LIKE 'x%'", {"a": "y"}, True),
        ("a NOT LIKE 'x%'", {}, False),
        ("a IS NULL", {}, True),
        ("a IS NOT NULL", {"a": ""}, True),
        ("A = 1", {"a": 1}, False),
    ],
)
def test_expressions(text: str, properties: dict[str, object], result: bool) -> None:
    assert jms_selector(text)(Message(properties)) is result


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "ends too early, at position 1"),
        ("a =", "ends too early, at position 4"),
        ("(a = 1", "ends too early, at position 7"),
        ("a = 1)", "unexpected ')' at position 6"),
        ("a = = 1", "unexpected '=' at position 5"),
        ("a = 1 AND AND", "unexpected 'AND' at position 11"),
        ("a = 'x", "position 5; the string has no end"),
        ("a ? b", "unexpected '?' at position 3"),
        ("a LIKE 5", "unexpected '5' at position 8"),
        ("a LIKE 'x' ESCAPE 'ab'", "one character"),
        ("a LIKE 'x!' ESCAPE '!'", "ends with its escape character"),
        ("a IN ()", "unexpected ')' at position 7"),
        ("a BETWEEN 1", "ends too early"),
        ("a = b = c", "unexpected '=' at position 7"),
        ("NULL = a", "unexpected 'NULL' at position 1"),
        ("a = 09", "octal"),
        ("-" * 100 + "1 = a", "more than 64 operations"),
        ("a" * 4097, "at most 4096"),
    ],
)
def test_errors_say_what_and_where(text: str, complaint: str) -> None:
    with pytest.raises(SelectorError, match=complaint.replace("?", r"\?").replace(")", r"\)").replace("(", r"\(")):
        jms_selector(text)


def test_the_bounds_can_be_used_up() -> None:
    message = Message({"a": 1})
    assert jms_selector("NOT " * (DEEPEST - 1) + "a = 1")(message) is bool(DEEPEST % 2)
    assert jms_selector("(" * 1000 + "a = 1" + ")" * 1000)(message)
    assert jms_selector(" OR ".join(["a = 2"] * 400 + ["a = 1"]))(message)
    assert jms_selector("a = 0" + " + 1" * 101 + " - 100")(message)
    assert jms_selector("a = 1".ljust(LONGEST))(message)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("header.priority > 4", True),
        ("h.priority > 4", True),
        ("properties.group-id = 'g'", True),
        ("p.group-id <> 'g'", False),
        ("order-type != 'x'", True),
        ("application-properties.order-type = 'express'", True),
        ("a.order-type = 'express'", True),
        ("price.net % 2 = 1", True),
        ("JMSPriority = 5", False),
    ],
)
def test_identifiers_of_an_sql_filter(text: str, result: bool) -> None:
    fields = {"header.priority": 5, "properties.group-id": "g"}
    assert sql_filter(text)(Message({"order-type": "express", "price.net": 3}, fields)) is result


@pytest.mark.parametrize("text", ["header.prio = 1", "properties.subjects = 'a'", "p. = 1"])
def test_unknown_fields_of_an_sql_filter_are_refused(text: str) -> None:
    with pytest.raises(SelectorError, match="unknown"):
        sql_filter(text)


WORDS = (
    "a b JMSPriority 1 0x1f 017 1.5e3 .5 'x' 'it''s' 'a%_' \"q\" ( ) , = <> < > <= >= + - * / % AND OR NOT BETWEEN IN "
    "LIKE ESCAPE IS NULL TRUE FALSE '!' ? ' \" ."
)
PIECES = st.sampled_from(WORDS.split(" "))
VALUES = st.dictionaries(
    st.sampled_from("abq"),
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=3)),
)


@settings(max_examples=400, deadline=None)
@given(st.one_of(st.text(max_size=40), st.lists(PIECES, max_size=14).map(" ".join)), VALUES)
@example("a LIKE '\x00'", {"a": "\x00"})
def test_any_text_is_a_selector_or_refused(text: str, values: dict[str, object]) -> None:
    for compile_text in (jms_selector, sql_filter):
        try:
            matcher = compile_text(text)
        except SelectorError:
            continue
        assert matcher(Message(values)) in (True, False)


OPERANDS = st.sampled_from(["a", "b", "1", "2.5", "'x'", "TRUE", "-3", "a + 1", "b * 2"])
COMPARISONS = st.builds("{} {} {}".format, OPERANDS, st.sampled_from(["=", "<>", "<", ">=", "<", "<="]), OPERANDS)
TESTS = st.one_of(COMPARISONS, st.sampled_from(["a IS NULL", "b IS NOT NULL", "a BETWEEN 1 AND 3", "b IN ('x', 'y')"]))
TREES = st.recursive(
    TESTS,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("(NOT {})".format, inner),
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(TREES, TREES, VALUES)
def test_the_laws_of_three_valued_logic_hold(one: str, other: str, values: dict[str, object]) -> None:
    message = Message(values)

    def truth(text: str) -> str:
        return (
            "true" if jms_selector(text)(message) else "false" if jms_selector(f"NOT ({text})")(message) else "unknown"
        )

    assert truth(f"NOT ({one} AND {other})") == truth(f"(NOT {one}) OR (NOT {other})")
    assert truth(f"NOT (NOT {one})") == truth(one)
    assert truth(f"{one} OR {other}") == truth(f"{other} OR {one}")
    assert truth(f"{one} AND ({one} OR {other})") == truth(one)
