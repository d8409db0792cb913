"""The paths of the management API: segments separated by slashes, in which a name may contain any encoded character.

A virtual host's name is often `/`, written `%2F`. Paths are therefore divided before they are decoded, and a segment is
only ever a name: `..` or `%2E%2E` leads nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Generic, TypeVar
from urllib.parse import unquote_to_bytes

from starlette.convertors import Convertor, register_url_convertor

T = TypeVar("T")
LONGEST_PATH: Final = 4096
"""Bytes. A name has at most 255 characters, each of which takes up to 12 when it is encoded."""


def segments(raw: bytes) -> list[str] | None:
    """Return the decoded segments of an encoded path; None if it is no path of names."""
    if len(raw) > LONGEST_PATH:
        return None
    try:
        return [unquote_to_bytes(part).decode() for part in raw.partition(b"?")[0].split(b"/")[1:]]
    except UnicodeDecodeError:
        return None


class _Rest(Convertor[str]):
    """The rest of a path, `{rest:rest}` in a route. Unlike Starlette's `path`, it may have line feeds, since names of
    objects may.
    """

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        """Return the text that was found."""
        return value

    def to_string(self, value: str) -> str:
        """Return the text for a path."""
        return value


register_url_convertor("rest", _Rest())


class PathTable(Generic[T]):
    """Finds what belongs to a path. Patterns are texts such as `queues/{vhost}/{name}`."""

    def __init__(self, table: Mapping[str, T]) -> None:
        self._by_length: dict[int, list[tuple[Sequence[str], T]]] = {}
        for pattern, found in table.items():
            parts = pattern.split("/")
            self._by_length.setdefault(len(parts), []).append((parts, found))

    def find(self, given: Sequence[str]) -> tuple[T, dict[str, str]] | None:
        """Return what belongs to a path, and the names in it."""
        return next(self.find_all(given), None)

    def find_all(self, given: Sequence[str]) -> Iterator[tuple[T, dict[str, str]]]:
        """Yield everything that belongs to a path, in the order of the table."""
        for parts, found in self._by_length.get(len(given), ()):
            names: dict[str, str] = {}
            for part, text in zip(parts, given, strict=True):
                if part.startswith("{"):
                    names[part[1:-1]] = text
                elif part != text:
                    break
            else:
                yield found, names
