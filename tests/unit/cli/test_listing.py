"""What of a list is shown, and in which order."""

from __future__ import annotations

import click
import pytest

from escrowmq.cli.listing import ListView, Row, selected, selection_options

ROWS: list[Row] = [
    {"name": "Orders", "ready": 3, "user": None},
    {"name": "bills", "ready": 10, "user": "eve"},
    {"name": "old-orders", "ready": 7, "user": "amy"},
]


def names(selection: ListView) -> list[str]:
    return [row["name"] for row in selected(ROWS, selection, name="name", order=lambda row: -row["ready"])]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (ListView(), ["bills", "old-orders", "Orders"]),
        (ListView(reverse=True), ["Orders", "old-orders", "bills"]),
        (ListView(match="ORDERS"), ["old-orders", "Orders"]),
        (ListView(sort="ready"), ["Orders", "old-orders", "bills"]),
        (ListView(sort="user"), ["Orders", "old-orders", "bills"]),
        (ListView(sort="ready", reverse=True), ["bills", "old-orders", "Orders"]),
        (ListView(page=1, page_size=2), ["bills", "old-orders"]),
        (ListView(page=2, page_size=2), ["Orders"]),
        (ListView(page=3, page_size=2), []),
        (ListView(match="orders", page=1, page_size=1), ["old-orders"]),
    ],
)
def test_rows_are_matched_sorted_and_divided_into_pages(selection: ListView, expected: list[str]) -> None:
    assert names(selection) == expected


def test_a_page_says_how_many_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    names(ListView(page=2, page_size=2))
    assert capsys.readouterr().err == "page 2 of 2, 3 rows\n"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ListView()),
        (["--page-size", "2"], ListView(page=1, page_size=2)),
        (["--page", "3"], ListView(page=3)),
        (["--page", "3", "--page-size", "7"], ListView(page=3, page_size=7)),
    ],
)
def test_a_page_size_alone_shows_the_first_page(options: list[str], expected: ListView) -> None:
    found: list[ListView] = []

    @click.command()
    @selection_options
    def things(selection: ListView) -> None:
        found.append(selection)

    things.main(options, standalone_mode=False)
    assert found == [expected]


def test_one_row_is_not_plural(capsys: pytest.CaptureFixture[str]) -> None:
    names(ListView(match="bills", page=1))
    assert capsys.readouterr().err == "page 1 of 1, 1 row\n"


def test_an_unknown_column_is_told() -> None:
    with pytest.raises(click.UsageError, match="no column 'depth'; the columns are name, ready, user"):
        names(ListView(sort="depth"))
