"""Values in tables of arguments and headers: their type names in error texts, and their equality.

Protocols may derive classes from Python's to distinguish types that Python does not, such as times and integers of
several widths.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final, TypeGuard

_TYPE_NAMES: Final[dict[type, str]] = {
    bool: "bool",
    float: "double",
    str: "longstr",
    bytes: "binary",
    type(None): "void",
    list: "array",
    tuple: "array",
    dict: "table",
}
_ALIASES: Final = {"longl": "long"}


def type_name(value: object) -> str:
    """Return RabbitMQ's name for the type of `value`; a protocol's class has its own name in lower case."""
    kind = type(value)
    if kind is int:
        return "signedint" if -(2**31) <= value < 2**31 else "long"  # type: ignore[operator]
    name = _TYPE_NAMES.get(kind) or kind.__name__.lower()
    return _ALIASES.get(name, name)


def is_time(value: object) -> TypeGuard[int]:
    """Return whether `value` is a time: an integer (seconds since the epoch) of a protocol's class named Timestamp."""
    return isinstance(value, int) and type_name(value) == "timestamp"


def is_integer(value: object) -> TypeGuard[int]:
    """Return whether `value` is an integer of any width, and neither a truth value nor a time."""
    return type(value) is int or (isinstance(value, int) and not isinstance(value, bool) and not is_time(value))


def shown(value: object) -> str:
    """Return `value` in the form in which error texts show it."""
    if value is None:
        return "undefined"
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def canonical(value: object) -> Hashable:
    """Return a form in which two values are equal exactly if they are the same to a broker.

    Integers of any width are alike, and so are floats, and strings and binaries. `1`, `True` and `1.0` all differ, and
    the order of the keys of a table does not matter.
    """
    kind = type(value)
    if kind is str or kind is int:
        return value
    if is_integer(value):
        return int(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return bytes(value)
    if isinstance(value, float):
        return ("float", float(value))
    if isinstance(value, Mapping):
        return ("table", tuple(sorted((key, canonical(field)) for key, field in value.items())))
    if isinstance(value, list | tuple):
        return ("array", tuple(canonical(item) for item in value))
    return (type_name(value), value)


def canonical_table(table: Mapping[str, object]) -> dict[str, Hashable]:
    """Return `table` with each value in its canonical form."""
    return {key: canonical(value) for key, value in table.items()}
