"""Values of headers as text: a single value, or the values of one tag in many tables."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from escrowmq.columnar.contents import Extent
from escrowmq.columnar.octets import Octets, bits, numbers


def as_text(value: object) -> str | None:
    """Return the value of a header as text, or None.

    Text stays as it is. Bytes are decoded as UTF-8, or encoded in base64 if they are not valid UTF-8. Numbers are
    decimal, timestamps ISO 8601, tables and arrays JSON.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes | bytearray):
        return _bytes(bytes(value))
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict | list):
        return json.dumps(value, default=_plain, ensure_ascii=False)
    return str(value)


def _plain(value: object) -> str | None:
    return as_text(value)


def _bytes(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()


class Tag(NamedTuple):
    """How the values of a tag are read. `size` is their number of octets, or None if a length precedes them."""

    size: int | None
    texts: Callable[[Octets, Extent], pa.Array]


def _strings(octets: Octets, values: Extent) -> pa.Array:
    found = octets.strings(*values)
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_bytes(value) for value in found.to_pylist()], pa.string())


def _numbers(kind: str) -> Callable[[Octets, Extent], pa.Array]:
    return lambda octets, values: numbers(octets.values(values.starts, kind)).cast(pa.string())


def _floats(kind: str) -> Callable[[Octets, Extent], pa.Array]:
    def texts(octets: Octets, values: Extent) -> pa.Array:
        found: npt.NDArray[Any] = octets.values(values.starts, kind).astype(np.float64)
        return pa.array([str(value) for value in found.tolist()], pa.string())  # Arrow has another form for exponents

    return texts


def _booleans(octets: Octets, values: Extent) -> pa.Array:
    mask = octets.u8(values.starts) != 0
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, bits(mask)]).cast(pa.string())


def _nothing(_: Octets, values: Extent) -> pa.Array:
    return pa.nulls(len(values.starts), pa.string())


TAGS: Final[dict[bytes, Tag]] = {
    b"S": Tag(None, _strings),
    b"x": Tag(None, _strings),
    b"t": Tag(1, _booleans),
    b"b": Tag(1, _numbers("i1")),
    b"B": Tag(1, _numbers("u1")),
    b"s": Tag(2, _numbers("i2")),
    b"u": Tag(2, _numbers("u2")),
    b"I": Tag(4, _numbers("i4")),
    b"i": Tag(4, _numbers("u4")),
    b"l": Tag(8, _numbers("i8")),
    b"L": Tag(8, _numbers("i8")),
    b"T": Tag(8, _numbers("u8")),
    b"f": Tag(4, _floats("f4")),
    b"d": Tag(8, _floats("f8")),
    b"V": Tag(0, _nothing),
}
"""The tags of field tables whose values are read together. Tables with other ones are read one by one."""
