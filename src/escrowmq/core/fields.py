"""Values in tables of arguments and headers: their names in texts, and when two are the same."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final

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
_NAMES_OF_OTHERS: Final = {"datetime": "timestamp"}


def type_name(value: object) -> str:
    """What RabbitMQ calls the type of `value` in its texts; classes of a protocol's own go by their lower-case name."""
    kind = type(value)
    if kind is int:
        return "signedint" if -(2**31) <= value < 2**31 else "long"  # type: ignore[operator]
    name = _TYPE_NAMES.get(kind)
    if name is None:
        name = kind.__name__.lower()
    return _NAMES_OF_OTHERS.get(name, name)


def shown(value: object) -> str:
    """`value` as it stands in a text."""
    if value is None:
        return "undefined"
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def canonical(value: object) -> Hashable:
    """A form in which two values are equal exactly when they are the same to a broker.

    Integers of any width are alike, and so are strings and binaries; `1`, `True` and `1.0` all differ, and the order of
    the keys of a table does not count.
    """
    kind = type(value)
    if kind is str or kind is int:
        return value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    if isinstance(value, Mapping):
        return ("table", tuple(sorted((key, canonical(field)) for key, field in value.items())))
    if isinstance(value, list | tuple):
        return ("array", tuple(canonical(item) for item in value))
    return (type_name(value), value)


def canonical_table(table: Mapping[str, object]) -> dict[str, Hashable]:
    """Each value of `table` in its canonical form."""
    return {key: canonical(value) for key, value in table.items()}
