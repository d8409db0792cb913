"""Records about topology and access: changes as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from escrowmq.core.messages.values import is_time


class Timestamp(int):
    """A time that was read back from a client's table (see `core.fields`)."""

    __slots__ = ()


_encode: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_MARKS: Final = frozenset({"$bytes", "$time", "$decimal", "$text", "$table"})
_PLAIN: Final = frozenset({str, bool, int, float, type(None)})
"""Types of values that JSON has. Most values have one of them, and so have the items of most tables."""


def encode_change(**fields: Any) -> bytes:
    """Encode a change of topology or access as JSON, because such changes are few, small, and then readable by any
    tool.

    Values that JSON lacks are objects with one key: `$bytes`, `$time`, `$decimal`, `$text` (any other value, as text),
    and `$table` for a table that would look like one of these.
    """
    return _encode(_to_json(fields)).encode("utf-8", "surrogatepass")


def decode_change(data: bytes | memoryview) -> dict[str, Any]:
    fields: dict[str, Any] = _from_json(json.loads(bytes(data).decode("utf-8", "surrogatepass")))
    return fields


def _to_json(value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    if type(value) is dict and _PLAIN.issuperset(map(type, value.values())) and _MARKS.isdisjoint(value):
        return value
    if value is None or isinstance(value, str | bool | float):
        return value
    if isinstance(value, int):
        return {"$time": int(value)} if is_time(value) else int(value)
    if isinstance(value, Mapping):
        table = {key: _to_json(item) for key, item in value.items()}
        return {"$table": table} if len(table) == 1 and not _MARKS.isdisjoint(table) else table
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return {"$bytes": bytes(value).hex()}
    return {"$decimal" if isinstance(value, Decimal) else "$text": str(value)}


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((mark, inner),) = value.items()
        if mark == "$bytes":
            return bytes.fromhex(inner)
        if mark == "$time":
            return Timestamp(inner)
        if mark == "$decimal":
            return Decimal(inner)
        if mark == "$text":
            return inner
        if mark == "$table":
            value = inner
    return {key: _from_json(item) for key, item in value.items()}
