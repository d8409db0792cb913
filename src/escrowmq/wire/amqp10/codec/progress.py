"""Points in a message, as the delivery state `received` names them: a section by number, and an offset in its octets.

Sections count from 0. A point may lie before the octets that have arrived, but never behind them. Malformed octets and
a section that is cut off belong to the last section.
"""

from __future__ import annotations

from typing import Final

from escrowmq.wire.amqp10.codec.errors import CodecError
from escrowmq.wire.amqp10.codec.sections import section_end
from escrowmq.wire.amqp10.codec.states import Received

_MOST: Final = 1000
"""Sections that are counted, so that the work is bounded."""


def point_at(payload: bytes, offset: int) -> Received:
    """Return the point at `offset` in a message that begins with `payload`, or an earlier one if very many sections
    lie before it.
    """
    number = start = 0
    while number < _MOST:
        try:
            end = section_end(payload, start)
        except CodecError:
            break
        if end > offset:
            break
        number, start = number + 1, end
    return Received(number, offset - start if number < _MOST else 0)


def offset_of(payload: bytes, point: Received) -> int:
    """Return the offset of `point` in a message that begins with `payload`.

    Raises CodecError if it lies behind the end of `payload`.
    """
    start = 0
    if point.section_number > _MOST:
        raise CodecError(f"section {point.section_number} is beyond the first {_MOST}")
    for _ in range(point.section_number):
        start = section_end(payload, start)
    if start + point.section_offset > len(payload):
        raise CodecError("the point lies behind the octets that have arrived")
    return start + point.section_offset
