"""Filters of subscriptions."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.publication import PROTOCOL
from escrowmq.wire.rocketmq.content import MessageContent, envelope_of
from escrowmq.wire.rocketmq.filters import LONGEST, SQL92, FilterError, stored_properties, wanted
from escrowmq.wire.rocketmq.properties import render

CONTENT = MessageContent(render({"TAGS": "a", "n": "5", "f": "1.5", "s": "text", "KEYS": "k"}), b"").pack()


def passes(kind: str, expression: str, tag: str = "a") -> bool:
    found = wanted(kind, expression)
    return found is None or found(envelope_of("t", tag), CONTENT)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("*", True),
        ("", True),
        ("a", True),
        ("b", False),
        ("b||a", True),
        (" b || c ", False),
        ("a||*", True),
        ("A", False),
    ],
)
def test_a_filter_names_tags(expression: str, expected: bool) -> None:
    assert passes("TAG", expression) is expected
    assert passes("", expression) is expected


def test_a_message_without_a_tag_passes_no_filter_that_names_tags() -> None:
    assert not passes("TAG", "a", tag="")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("n > 4", True),
        ("n > 5", False),
        ("4 < n AND f <= 1.5", True),
        ("n = 5", True),
        ("n = '5'", True),
        ("n BETWEEN 5 AND 6", True),
        ("n NOT BETWEEN 5 AND 6", False),
        ("s = 'text'", True),
        ("s IN ('text', 'x')", True),
        ("s > 3", False),
        ("missing IS NULL", True),
        ("missing = 1", False),
        ("TAGS = 'a' AND KEYS IS NOT NULL", True),
    ],
)
def test_a_filter_is_an_expression_over_properties(expression: str, expected: bool) -> None:
    assert passes(SQL92, expression) is expected


@pytest.mark.parametrize(
    ("kind", "expression"),
    [
        ("SQL92", "n >"),
        ("SQL92", ""),
        ("XML", "a"),
        ("TAG", "x" * (LONGEST + 1)),
        ("TAG", "||".join(map(str, range(257)))),
    ],
)
def test_a_malformed_filter_is_refused(kind: str, expression: str) -> None:
    with pytest.raises(FilterError):
        wanted(kind, expression)


@given(st.text(max_size=30))
def test_any_expression_is_compiled_or_refused(expression: str) -> None:
    for kind in ("TAG", "SQL92"):
        with contextlib.suppress(FilterError):
            passes(kind, expression)


@pytest.mark.rule("MSG-3")
def test_a_filter_sees_messages_of_other_protocols() -> None:
    envelope = Envelope("t", "k", Properties(headers={"n": 5}).encode(), protocol=PROTOCOL)
    assert stored_properties(envelope, b"") == {"TAGS": "k", "n": "5"}
    found = wanted(SQL92, "n = 5")
    assert found is not None
    assert found(envelope, b"")
