"""The COMMIT record: all changes of a transaction branch in one record (TX-5)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from escrowmq.core.records.kinds import Kind

COMMIT: Final = struct.Struct("<QI")  # branch number, number of operations
OPERATION: Final = struct.Struct("<BI")  # kind, length
_LONE: Final = struct.Struct("<QIBI")  # head of a commit of one operation, head of the operation


def encode_commit(branch: int, operations: Sequence[tuple[Kind, Sequence[bytes]]]) -> tuple[list[bytes], list[int]]:
    """Return the parts of a COMMIT record, and for each operation the offset of its payload within the record.

    All changes of a branch are in this one record, so they are atomic by construction (TX-5).
    """
    parts: list[bytes] = [COMMIT.pack(branch, len(operations))]
    offsets = []
    at = COMMIT.size
    for kind, payload in operations:
        length = sum(map(len, payload))
        parts.append(OPERATION.pack(kind, length))
        parts.extend(payload)
        offsets.append(at + OPERATION.size)
        at += OPERATION.size + length
    return parts, offsets


def encode_lone(branch: int, kind: Kind, length: int) -> bytes:
    """Return the head of a COMMIT record of one operation: the same as `encode_commit` does, in one step."""
    return _LONE.pack(branch, 1, kind, length)


def decode_commit(data: bytes | memoryview) -> tuple[int, Iterator[tuple[Kind, int, bytes | memoryview]]]:
    """Return the branch, and its operations as (kind, offset within the record, payload)."""
    branch, number = COMMIT.unpack_from(data)

    def operations() -> Iterator[tuple[Kind, int, bytes | memoryview]]:
        at = COMMIT.size
        for _ in range(number):
            kind, length = OPERATION.unpack_from(data, at)
            at += OPERATION.size
            yield Kind(kind), at, data[at : at + length]
            at += length

    return branch, operations()
