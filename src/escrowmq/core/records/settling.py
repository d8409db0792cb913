"""The SETTLE record: messages that left a queue, and the reason."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.references import Range

_SETTLE: Final = struct.Struct("<IBI")  # queue id, outcome, number of ranges
_RANGE: Final = struct.Struct("<QI")  # first position, count
_SINGLE: Final = struct.Struct(_SETTLE.format + _RANGE.format[1:])


class Settle(NamedTuple):
    queue: int
    outcome: Outcome
    ranges: list[Range]


def encode_settle(queue: int, outcome: Outcome, ranges: Sequence[tuple[int, int]]) -> bytes:
    """Return a SETTLE record for the positions of `ranges`."""
    if len(ranges) == 1:
        return _SINGLE.pack(queue, outcome, 1, *ranges[0])
    return _SETTLE.pack(queue, outcome, len(ranges)) + b"".join([_RANGE.pack(*r) for r in ranges])


def decode_settle(data: bytes | memoryview) -> Settle:
    queue, outcome, number = _SETTLE.unpack_from(data)
    size = _RANGE.size
    ranges = [Range(*_RANGE.unpack_from(data, _SETTLE.size + i * size)) for i in range(number)]
    return Settle(queue, Outcome(outcome), ranges)
