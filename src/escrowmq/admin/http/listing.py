"""What a query can ask of a list: columns, order, pages, and names that match."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from escrowmq.admin.http.name_filters import BadQuery, containing, matching

__all__ = ["BadQuery", "chosen", "is_chosen", "value_at"]

Row = Mapping[str, Any]
LARGEST_PAGE: Final = 500
_DEFAULT_PAGE: Final = 100


def is_chosen(query: Mapping[str, str]) -> bool:
    """Return whether a query asks for anything but all rows as they are."""
    return any(query.get(name) for name in ("name", "sort", "columns")) or "page" in query


def chosen(
    rows: Sequence[Any], query: Mapping[str, str], shape: Callable[[Any], Row] | None = None
) -> list[Any] | dict[str, Any]:
    """Return the rows, as `name`, `use_regex`, `sort`, `sort_reverse`, `page`, `page_size` and `columns` of the query
    ask for them. With a page, the answer also says how many there are. Raises BadQuery.

    `shape` makes the rows from `rows`. Without filter and order, it makes those of the page only.
    """
    total = len(rows)
    if shape is not None and (query.get("name") or query.get("sort")):
        rows, shape = [shape(row) for row in rows], None
    if query.get("name"):
        wanted = matching(query["name"]) if query.get("use_regex") == "true" else containing(query["name"])
        rows = [row for row in rows if wanted(str(row.get("name", "")))]
    if query.get("sort"):
        rows = sorted(rows, key=lambda row: _key(value_at(row, query["sort"])))
        if query.get("sort_reverse") == "true":
            rows = rows[::-1]
    columns = [column for column in query.get("columns", "").split(",") if column]
    if "page" not in query:
        return [_with(row if shape is None else shape(row), columns) for row in rows]
    page, size = _number(query, "page", 1), _number(query, "page_size", _DEFAULT_PAGE)
    if size > LARGEST_PAGE:
        raise BadQuery(f"page_size is at most {LARGEST_PAGE}")
    items = rows[(page - 1) * size : page * size]
    return {
        "total_count": total,
        "filtered_count": len(rows),
        "item_count": len(items),
        "page": page,
        "page_size": size,
        "page_count": max(-(-len(rows) // size), 1),
        "items": [_with(row if shape is None else shape(row), columns) for row in items],
    }


def value_at(row: Row, path: str) -> Any:
    """Return the value at a path such as `message_stats.publish`; None if there is none."""
    value: Any = row
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _with(row: Row, columns: Sequence[str]) -> Row:
    if not columns:
        return row
    found: dict[str, Any] = {}
    for column in columns:
        value = value_at(row, column)
        if value is None:
            continue
        *parents, name = column.split(".")
        into = found
        for parent in parents:
            into = into.setdefault(parent, {})
        into[name] = value
    return found


def _key(value: Any) -> tuple[int, Any]:
    """Order values of different types: nothing, numbers, texts."""
    if value is None:
        return 0, 0
    if isinstance(value, (int, float)):
        return 1, value
    return 2, str(value)


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, "") or str(default)
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0):
        raise BadQuery(f"{name} is not a number above 0")
    return int(text)
