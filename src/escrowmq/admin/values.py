"""Values of JSON that come from outside: how deeply they may be nested."""

from __future__ import annotations

from typing import Any, Final

DEEPEST: Final = 32
"""Levels of objects and arrays. Code that walks values recursively relies on it."""
NESTED: Final = f"objects and arrays are nested more than {DEEPEST} levels deep"


def is_nested(value: Any) -> bool:
    """Return whether a value has more than `DEEPEST` levels."""
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [
            item
            for each in level
            if isinstance(each, dict | list)
            for item in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return True
