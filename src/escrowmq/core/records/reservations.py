"""The records of reservations (docs/internals/records.md)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from escrowmq.core.records.references import Reference

_HELD: Final = struct.Struct("<IHQQII")  # queue id, length of the group's name, settled, first number, ranges, copies
_RANGE: Final = struct.Struct("<QII")  # first position, count, number of deliveries of each message
_RELEASED: Final = struct.Struct("<IHQQ")  # queue id, length of the group's name, settled, first number
_COPY: Final = struct.Struct("<QIQI")  # first position, count, LSN of the block, number of the first message in it

Payload = bytes | memoryview


class HeldRange(NamedTuple):
    """`length` positions, beginning with `first`; each message had been delivered `deliveries` times when it was
    reserved.
    """

    first: int
    length: int
    deliveries: int


class Held(NamedTuple):
    """Messages of a queue that belong to `group` from now on. The first message of `ranges` has the number `first`.

    `copies` are the addresses of contents that were not in the log before. `user` is empty in records of versions that
    did not write it.
    """

    queue: int
    group: str
    settled: int
    first: int
    ranges: list[HeldRange]
    copies: list[Reference]
    user: str = ""


class Released(NamedTuple):
    """The group holds nothing below the number `first`. Messages below `settled` were accepted, the others are ready
    again.
    """

    queue: int
    group: str
    settled: int
    first: int


def encode_held(held: Held) -> list[bytes]:
    """Return the parts of a HELD record."""
    name = held.group.encode("utf-8", "surrogatepass")
    head = _HELD.pack(held.queue, len(name), held.settled, held.first, len(held.ranges), len(held.copies))
    ranges = b"".join([_RANGE.pack(*each) for each in held.ranges])
    copies = b"".join([_COPY.pack(*each) for each in held.copies])
    return [head, name, ranges, copies, held.user.encode("utf-8", "surrogatepass")]


def decode_held(data: Payload) -> Held:
    queue, length, settled, first, number, copied = _HELD.unpack_from(data)
    at = _HELD.size
    group = bytes(data[at : at + length]).decode("utf-8", "surrogatepass")
    at += length
    ranges = [HeldRange(*_RANGE.unpack_from(data, at + i * _RANGE.size)) for i in range(number)]
    at += number * _RANGE.size
    copies = [Reference(*_COPY.unpack_from(data, at + i * _COPY.size)) for i in range(copied)]
    user = bytes(data[at + copied * _COPY.size :]).decode("utf-8", "surrogatepass")
    return Held(queue, group, settled, first, ranges, copies, user)


def encode_released(queue: int, group: str, settled: int, first: int) -> bytes:
    """Return a RELEASED record."""
    name = group.encode("utf-8", "surrogatepass")
    return _RELEASED.pack(queue, len(name), settled, first) + name


def decode_released(data: Payload) -> Released:
    queue, length, settled, first = _RELEASED.unpack_from(data)
    at = _RELEASED.size
    return Released(queue, bytes(data[at : at + length]).decode("utf-8", "surrogatepass"), settled, first)


def joined(ranges: Iterable[HeldRange]) -> list[HeldRange]:
    """Return the same positions in the same order; neighbours that were delivered equally often become one range."""
    found: list[HeldRange] = []
    for each in ranges:
        last = found[-1] if found else None
        if last is not None and each.first == last.first + last.length and each.deliveries == last.deliveries:
            found[-1] = HeldRange(last.first, last.length + each.length, last.deliveries)
        else:
            found.append(each)
    return found
