"""Columns, order and pages of lists."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.admin.http.listing import BadQuery, chosen, is_chosen

ROWS = [{"name": f"q{n}", "messages": n, "stats": {"ack": 10 - n}} for n in (2, 0, 1)]


def names(query: dict[str, str]) -> list[Any]:
    found = chosen(ROWS, query)
    assert isinstance(found, list)
    return [row["name"] for row in found]


def test_without_a_query_the_rows_are_as_they_are() -> None:
    assert chosen(ROWS, {}) == ROWS


def test_rows_are_sorted_by_a_path() -> None:
    assert names({"sort": "messages"}) == ["q0", "q1", "q2"]
    assert names({"sort": "stats.ack"}) == ["q2", "q1", "q0"]
    assert names({"sort": "messages", "sort_reverse": "true"}) == ["q2", "q1", "q0"]
    assert names({"sort": "absent"}) == ["q2", "q0", "q1"]


def test_columns_are_paths() -> None:
    assert chosen(ROWS[:1], {"columns": "name,stats.ack,absent"}) == [{"name": "q2", "stats": {"ack": 8}}]


def test_names_are_searched_without_regard_to_case() -> None:
    assert names({"name": "Q1"}) == ["q1"]


def test_names_are_searched_by_a_regular_expression_if_the_query_says_so() -> None:
    rows = [{"name": name} for name in ("ab", "b", "a.*")]
    assert chosen(rows, {"name": "^a.*", "use_regex": "true"}) == [{"name": "ab"}, {"name": "a.*"}]
    assert chosen(rows, {"name": "a.*", "use_regex": "false"}) == [{"name": "a.*"}]


def test_a_page_says_how_many_there_are() -> None:
    found = chosen(ROWS, {"page": "2", "page_size": "2", "columns": "name"})
    assert found == {
        "total_count": 3,
        "filtered_count": 3,
        "item_count": 1,
        "page": 2,
        "page_size": 2,
        "page_count": 2,
        "items": [{"name": "q1"}],
    }


@pytest.mark.parametrize("query", [{"page": "0"}, {"page": "x"}, {"page": "-1"}, {"page": "1", "page_size": "501"}])
def test_an_invalid_page_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(BadQuery, match="page"):
        chosen(ROWS, query)


def test_of_a_page_without_filter_and_order_only_its_own_rows_are_shaped() -> None:
    shaped: list[int] = []

    def shape(number: int) -> dict[str, Any]:
        shaped.append(number)
        return {"name": f"q{number}"}

    page = chosen(range(9), {"page": "2", "page_size": "3"}, shape)
    assert isinstance(page, dict)
    assert (page["items"], page["total_count"]) == ([{"name": "q3"}, {"name": "q4"}, {"name": "q5"}], 9)
    assert shaped == [3, 4, 5]


def test_rows_that_are_sorted_or_searched_are_shaped_before() -> None:
    assert chosen([0, 2], {"sort": "name"}, lambda number: ROWS[number]) == [ROWS[2], ROWS[0]]
    assert chosen([2, 0], {"name": "q2"}, lambda number: ROWS[number]) == [ROWS[0]]


@pytest.mark.parametrize("query", [{"name": "q"}, {"sort": "name"}, {"columns": "name"}, {"page": "1"}, {"page": ""}])
def test_a_query_may_ask_for_something_else_than_all_rows(query: dict[str, str]) -> None:
    assert is_chosen(query)
    assert not is_chosen({name: "" for name in query if name != "page"} | {"other": "1"})
