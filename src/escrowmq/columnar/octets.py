"""Octets of many messages back to back: numbers at given places, and strings between given places."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Places: TypeAlias = npt.NDArray[np.int64]
"""Offsets of octets, one for each row."""
Mask: TypeAlias = npt.NDArray[np.bool_]

ROOM: Final = 8
"""How many octets must follow a place at which `u64` or a smaller number is read."""
_WORD: Final = 8


class Octets:
    """Octets as a buffer of Arrow and of numpy.

    Places are not checked. A caller keeps them within the octets, with ROOM behind those at which it reads numbers.
    """

    def __init__(self, data: bytes | memoryview) -> None:
        self.size = len(data)
        self._buffer = pa.py_buffer(data)
        self._u8 = np.frombuffer(data, np.uint8)
        # Each view has one number for each octet, which begins there.
        self._u16, self._u32, self._u64 = (
            np.ndarray((max(self.size - width + 1, 0),), f">u{width}", self._u8, strides=(1,)) for width in (2, 4, 8)
        )

    def u8(self, at: Places) -> Places:
        return self._u8[at].astype(np.int64)

    def u16(self, at: Places) -> Places:
        return self._u16[at].astype(np.int64)

    def u32(self, at: Places) -> Places:
        return self._u32[at].astype(np.int64)

    def u64(self, at: Places) -> npt.NDArray[np.uint64]:
        return self._u64[at].astype(np.uint64)

    def values(self, at: Places, kind: str) -> npt.NDArray[Any]:
        """Return the numbers at these places. `kind` is a numpy type of at most eight octets, without its byte order,
        such as "i4".
        """
        width = np.dtype(kind).itemsize
        view = np.ndarray((max(self.size - width + 1, 0),), f">{kind}", self._u8, strides=(1,))
        found = view[at]
        return found.astype(found.dtype.newbyteorder("="))

    def piece(self, start: int, end: int) -> bytes:
        return self._u8[start:end].tobytes()

    def equal(self, at: Places, wanted: bytes) -> Mask:
        """Return where the octets from each place on are `wanted`. ROOM must follow these octets."""
        same = np.ones(len(at), np.bool_)
        for begin in range(0, len(wanted), _WORD):
            part = wanted[begin : begin + _WORD]
            shift = np.uint64(8 * (_WORD - len(part)))
            same &= (self.u64(at + begin) >> shift) == np.uint64(int.from_bytes(part, "big"))
        return same

    def strings(self, starts: Places, ends: Places) -> pa.Array:
        """Return the octets from `starts` to `ends` as an array of binaries.

        The places must ascend: each end is at least its start, and at most the next start.
        """
        count = len(starts)
        if not count:
            return pa.array([], pa.binary())
        # Arrow's `take` copies the strings between the gaps. Their offsets, and those of the gaps, ascend.
        offsets = np.empty(2 * count, np.int32)
        offsets[0::2], offsets[1::2] = starts, ends
        with_gaps = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), self._buffer])
        return with_gaps.take(numbers(np.arange(0, 2 * count, 2, dtype=np.int32)))


def with_nulls(values: pa.Array, present: Mask) -> pa.Array:
    """Return `values`, which has no nulls and begins at the start of its buffers, with nulls where not `present`."""
    if present.all():
        return values
    if not present.any():
        return pa.nulls(len(values), values.type)
    return pa.Array.from_buffers(values.type, len(values), [bits(present), *values.buffers()[1:]])


def bits(mask: Mask) -> pa.Buffer:
    """Return a mask in the form that Arrow's validity and booleans have."""
    return pa.py_buffer(np.packbits(mask, bitorder="little"))


def numbers(values: npt.NDArray[Any], kind: pa.DataType | None = None) -> pa.Array:
    """Return numbers as an array, of another type `kind` of the same width if it is given. Nothing is copied.

    `pa.array` would do the same, but imports pandas, which takes a third of a second in each new worker.
    """
    own = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind or own, len(values), [None, pa.py_buffer(values)])


def scalar(value: bytes, kind: pa.DataType) -> pa.Scalar:
    """Return a binary or a string as a scalar. `pa.scalar` would do the same, but imports pandas (see `numbers`)."""
    ends = pa.py_buffer(np.array([0, len(value)], np.int32))
    return pa.Array.from_buffers(kind, 1, [None, ends, pa.py_buffer(value)])[0]


def as_utf8(values: pa.Array) -> pa.Array:
    """Return binaries as strings. Octets that are not UTF-8 become replacement characters, as with `bytes.decode`."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([value.decode("utf-8", "replace") for value in values.to_pylist()], pa.string())
