"""The values in the body and in the query of a change."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.admin.http.kept_lists import KeptLists
from escrowmq.admin.http.listing import BadQuery
from escrowmq.admin.http.logins import Operator
from escrowmq.admin.http.writing import Writing, parsed
from tests.unit.admin.http.sites import HttpSite


def writing(body: dict[str, Any], query: dict[str, str] | None = None) -> Writing:
    broker = HttpSite().broker
    return Writing(broker, KeptLists(broker), Operator("u", ()), {"name": "amq.default"}, query or {}, {}, body)


@pytest.mark.parametrize("value", [True, "true"])
def test_a_flag_may_be_a_text(value: object) -> None:
    assert writing({"f": value}).flag("f", False)
    assert not writing({}).flag("f", False)
    assert writing({}, {"f": "true"}).asked("f")


@pytest.mark.parametrize("value", [1, 0, "yes", None, [], {}])
def test_other_values_are_no_flags(value: object) -> None:
    with pytest.raises(BadQuery):
        writing({"f": value}).flag("f", False)
    with pytest.raises(BadQuery):
        writing({}, {"f": str(value)}).asked("f")


@pytest.mark.parametrize(("value", "number"), [(7, 7), ("7", 7), (-1, -1), ("-1", -1)])
def test_a_number_may_be_a_text(value: object, number: int) -> None:
    assert writing({"n": value}).number("n") == number


@pytest.mark.parametrize("value", [True, "x", "", "1" * 30, "²", "--5", "-", 1.5, None, []])
def test_other_values_are_no_numbers(value: object) -> None:
    with pytest.raises(BadQuery):
        writing({"n": value}).number("n")


def test_texts_and_tables() -> None:
    assert writing({"t": "x"}).text("t") == "x"
    assert writing({}).text("t", "y") == "y"
    assert writing({"t": []}).table("t") == writing({}).table("t") == {}
    assert writing({"t": {"a": 1}}).table("t") == {"a": 1}
    for bad in ({"t": 1}, {"t": ["x"]}):
        with pytest.raises(BadQuery):
            writing(bad).text("t")
        with pytest.raises(BadQuery):
            writing(bad).table("t")
    with pytest.raises(BadQuery, match="key_missing: t"):
        writing({}).text("t")


def test_the_default_exchange_has_a_name() -> None:
    assert writing({}).name == ""


def test_a_body_is_parsed() -> None:
    assert parsed(b" ") == {}
    assert parsed(b'{"a": [1]}') == {"a": [1]}
    for bad in (b"{", b"\xff", b"[" * 100_000, b"[" * 100 + b"]" * 100):
        with pytest.raises(BadQuery):
            parsed(bad)


@pytest.mark.parametrize("value", ['"\\ud800"', '{"\\udfff": 1}', "NaN", "-Infinity", "1e400", "[[1e999]]"])
def test_texts_and_numbers_that_no_answer_could_show_are_refused(value: str) -> None:
    with pytest.raises(BadQuery, match="the body is not valid JSON"):
        parsed(b'{"x": %s}' % value.encode())


def test_a_pair_of_surrogates_is_a_character() -> None:
    assert parsed(b'{"x": "\\ud83d\\ude00"}') == {"x": "\U0001f600"}
