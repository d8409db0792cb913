"""Patterns of names in which a star stands for any text, as the scopes of tokens have them."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote_to_bytes

_MALFORMED: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


class Wildcard:
    """A pattern, in percent-encoding: `%2F` is a slash, `%2A` a star that stands for itself, and `+` a space."""

    __slots__ = ("_first", "_last", "_middle")

    def __init__(self, text: str) -> None:
        """Raises ValueError for a malformed percent-encoding."""
        parts = [_decoded(part) for part in text.split("*")]
        self._first = parts[0]
        self._middle = [part for part in parts[1:-1] if part]
        self._last = parts[-1] if len(parts) > 1 else None  # None: there is no star

    @property
    def is_any(self) -> bool:
        """Whether the pattern matches every name."""
        return not self._first and not self._middle and self._last == ""

    def matches(self, name: str) -> bool:
        """Return whether the whole of `name` fits, in time proportional to the lengths of name and pattern."""
        if self._last is None:
            return name == self._first
        at, end = len(self._first), len(name) - len(self._last)
        if at > end or not name.startswith(self._first) or not name.endswith(self._last):
            return False
        for part in self._middle:
            found = name.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return True


def _decoded(part: str) -> str:
    if _MALFORMED.search(part):
        raise ValueError(f"'{part}' is not percent-encoded")
    return unquote_to_bytes(part.replace("+", " ")).decode()
