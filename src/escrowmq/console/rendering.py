"""Templates of the console, and the words and units in them. Everything that is put into a page is escaped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

import jinja2

from escrowmq.human import duration, size

VENDORED: Final = {"htmx": "htmx-2.0.11.min.js", "uplot": "uplot-1.6.32.min.js", "uplot_css": "uplot-1.6.32.min.css"}


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """Return the templates."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("escrowmq.console"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "age": age,
        "size": size,
        "number": number,
        "moment": moment,
        "words": words,
        "path": lambda text: quote(str(text), safe=""),
        "fields": fields,
        "json": lambda value: json.dumps(value, indent=2, ensure_ascii=False),
        "hex": lambda lsn: f"{lsn:#x}",
    }
    made.globals["vendored"] = VENDORED
    return made


def render(template: str, **context: Any) -> str:
    """Return a page."""
    return environment().get_template(template).render(**context)


def age(seconds: float | None) -> str:
    """Format an age in seconds, as in `12 s` or `3.1 d`; nothing for None."""
    return "" if seconds is None else duration(seconds * 1000) if seconds else "0 s"


def number(value: float | None) -> str:
    """Format a number with separators; a dash for None."""
    return "–" if value is None else f"{value:,}"


def moment(time_us: float) -> str:
    """Format a time in µs since the epoch, in UTC."""
    return f"{datetime.fromtimestamp(time_us / 1e6, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]


def words(name: str) -> str:
    """Turn a name such as `heuristic_committed` into words."""
    return name.replace("_", " ").lower()


def fields(values: Mapping[str, Any]) -> str:
    """Format the fields of a record on one line."""
    return " ".join(f"{name}={_brief(value)}" for name, value in values.items())


def _brief(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else text[:119] + "…"
