"""Values in tables: their type names and their equality."""

from __future__ import annotations

import pytest

from escrowmq.core.messages.values import canonical, canonical_table, is_integer, is_time, shown, type_name


class Short(int):
    """A narrow integer of a protocol."""


class LongL(int):
    """Another wide integer of a protocol."""


class Float(float):
    """A single-precision number of a protocol."""


class Timestamp(int):
    """A protocol's time in seconds."""


class LongStr(bytes):
    """A string that is not UTF-8."""


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (True, "bool"),
        (2**31 - 1, "signedint"),
        (-(2**31), "signedint"),
        (2**31, "long"),
        (-(2**31) - 1, "long"),
        (Short(1), "short"),
        (LongL(1), "long"),
        (1.5, "double"),
        (Float(1.5), "float"),
        ("a", "longstr"),
        (LongStr(b"\xff"), "longstr"),
        (b"a", "binary"),
        (None, "void"),
        ([], "array"),
        ({}, "table"),
        (Timestamp(1), "timestamp"),
    ],
)
def test_types_have_rabbitmqs_names(value: object, name: str) -> None:
    assert type_name(value) == name


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), (False, "false"), (None, "undefined"), (5, "5"), ("a", "a"), (b"a", "a"), (b"\xff", "\ufffd")],
)
def test_values_are_shown_as_by_rabbitmq(value: object, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, Short(1)),
        (1.5, Float(1.5)),
        ("a", b"a"),
        (LongStr(b"\xff"), b"\xff"),
        ({"a": 1, "b": 2}, {"b": Short(2), "a": 1}),
        ([1, {"a": b"x"}], [Short(1), {"a": "x"}]),
        (None, None),
    ],
)
def test_equal_values_have_the_same_canonical_form(one: object, other: object) -> None:
    assert canonical(one) == canonical(other)
    assert hash(canonical(one)) == hash(canonical(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (0, False),
        (1, 1.0),
        (1, "1"),
        (1, Timestamp(1)),
        ("", None),
        ([1, 2], [2, 1]),
        ([1], [True]),
        ({"a": 1}, {"a": True}),
        ({"a": 1}, {"a": 1, "b": 1}),
        ([], {}),
        ([["a", 1]], {"a": 1}),
    ],
)
def test_different_values_have_different_canonical_forms(one: object, other: object) -> None:
    assert canonical(one) != canonical(other)


def test_a_table_keeps_its_keys() -> None:
    assert canonical_table({"a": Short(1), "b": b"x"}) == {"a": 1, "b": "x"}


def test_truth_values_and_times_are_not_integers() -> None:
    assert is_integer(1)
    assert is_integer(Short(1))
    assert not any(map(is_integer, (True, Timestamp(1), 1.0, "1", None)))
    assert is_time(Timestamp(1))
    assert not any(map(is_time, (1, Short(1), "1")))
