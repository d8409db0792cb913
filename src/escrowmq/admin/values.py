"""Values of JSON that come from outside: how deeply they may be nested, and how long they are."""

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


def size_of(value: Any) -> int:
    """Return the bytes that a value takes at least in a field table of AMQP 0-9-1, whose size clients are told. `value`
    must not be nested (see `is_nested`).
    """
    if isinstance(value, dict):
        return 5 + sum(1 + _length(name) + size_of(item) for name, item in value.items())
    if isinstance(value, list):
        return 5 + sum(map(size_of, value))
    if isinstance(value, str):
        return 5 + _length(value)
    if value is None or isinstance(value, bool | float):
        return 1 if value is None else 2 if isinstance(value, bool) else 5
    return 1 + next((width for width in (1, 2, 4) if value.bit_length() < 8 * width), 8)


def _length(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
