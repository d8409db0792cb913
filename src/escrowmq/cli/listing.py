"""Options that shorten a list: names that match, an order, pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Final, NamedTuple

import click

from escrowmq.text import counted

Row = Mapping[str, Any]
LARGEST_PAGE: Final = 10_000
DEFAULT_PAGE: Final = 100


class ListView(NamedTuple):
    """What to show of a list. Without `page`, everything that matches."""

    match: str = ""
    sort: str | None = None
    reverse: bool = False
    page: int | None = None
    page_size: int = DEFAULT_PAGE


def selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command with the options, which become its argument `selection`."""

    @wraps(command)
    def wrapper(
        *args: Any, match: str, sort: str | None, reverse: bool, page: int | None, page_size: int | None, **kwargs: Any
    ) -> Any:
        if page_size is None:
            page_size = DEFAULT_PAGE
        elif page is None:
            page = 1
        return command(*args, selection=ListView(match, sort, reverse, page, page_size), **kwargs)

    options = (
        click.option("--match", default="", metavar="TEXT", help="Only rows whose name contains this text."),
        click.option("--sort", metavar="COLUMN", help="Sort by a column, as it is named in the JSON output."),
        click.option("--reverse", is_flag=True, help="Reverse the order."),
        click.option("--page", type=click.IntRange(min=1), help="Show only this page, from 1.  [default: all rows]"),
        click.option(
            "--page-size",
            type=click.IntRange(1, LARGEST_PAGE),
            help=f"The number of rows in a page; without --page, the first page is shown.  [default: {DEFAULT_PAGE}]",
        ),
    )
    decorated: Callable[..., Any] = wrapper
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


def selected(rows: Sequence[Row], selection: ListView, *, name: str, order: Callable[[Row], Any]) -> Sequence[Row]:
    """Return the rows to show, in order. `name` is the column that is matched, `order` the key of the default order.

    Raises:
        click.UsageError: No row has the column to sort by.
    """
    found = [row for row in rows if selection.match.lower() in str(row.get(name, "")).lower()]
    column = selection.sort
    if column is not None:
        if rows and not any(column in row for row in rows):
            known = ", ".join(rows[0])
            raise click.UsageError(f"there is no column {column!r}; the columns are {known}")
        found.sort(key=lambda row: _key(row.get(column)))
    else:
        found.sort(key=order)
    if selection.reverse:
        found.reverse()
    if selection.page is None:
        return found
    last = max(-(-len(found) // selection.page_size), 1)
    click.echo(f"page {selection.page} of {last}, {counted(len(found), 'row')}", err=True)
    return found[(selection.page - 1) * selection.page_size :][: selection.page_size]


def _key(value: Any) -> tuple[int, Any]:
    """Order values of different types: nothing, numbers, texts."""
    if value is None:
        return 0, 0
    return (1, value) if isinstance(value, int | float) else (2, str(value))
