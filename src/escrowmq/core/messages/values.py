"""Values in tables of arguments and headers: their names in texts, and when two are the same.

Protocols may use classes of their own, derived from Python's, to tell apart types that are one to Python: integers of
several widths, times.
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
    """What RabbitMQ calls the type of `value` in its texts; classes of a protocol go by their lower-case name."""
    kind = type(value)
    if kind is int:
        return "signedint" if -(2**31) <= value < 2**31 else "long"  # type: ignore[operator]
    name = _TYPE_NAMES.get(kind) or kind.__name__.lower()
    return _ALIASES.get(name, name)


def is_time(value: object) -> TypeGuard[int]:
    """A protocol's class of times is an integer named Timestamp, seconds since the epoch."""
    return isinstance(value, int) and type_name(value) == "timestamp"


def is_integer(value: object) -> TypeGuard[int]:
    """An integer of any width; neither a truth value nor a time."""
    return type(value) is int or (isinstance(value, int) and not isinstance(value, bool) and not is_time(value))


def shown(value: object) -> str:
    """`value` as it stands in a text."""
    if value is None:
        return "undefined"
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def canonical(value: object) -> Hashable:
    """A form in which two values are equal exactly when they are the same to a broker.

    Integers of any width are alike, and so are floats, and strings and binaries; `1`, `True` and `1.0` all differ, and
    the order of the keys of a table does not count.
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
    """Each value of `table` in its canonical form."""
    return {key: canonical(value) for key, value in table.items()}
