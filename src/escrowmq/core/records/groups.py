"""The records of consumer groups (docs/internals/records.md). GROUP_SET and GROUP_DELETED are changes, in JSON."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

_LEASED: Final = struct.Struct("<IIQQI")  # group, stream, generation, due time, number of ranges
_LEASED_RANGE: Final = struct.Struct("<QII")  # first position, count, attempts
_SETTLED: Final = struct.Struct("<IIBQI")  # group, stream, cause, floor, number of ranges
_SETTLED_RANGE: Final = struct.Struct("<QIQ")  # first position, count, generation
_PROGRESS: Final = struct.Struct("<IIBQ")  # group, stream, cause, floor
_LOCKED: Final = struct.Struct("<IIQH")  # group, stream, until, length of the owner

Payload = bytes | memoryview


class SettledCause(IntEnum):
    """Why a message is settled for a group. The numbers are part of the journal's format."""

    HANDLED = 1
    """A member acknowledged it."""
    PASSED = 2
    """The filter of a member passed over it."""
    DEAD = 3
    """It went to the group's dead-letter topic."""
    RETRIED = 4
    """It was published again for a later attempt, by a member that keeps its own position."""


class ProgressCause(IntEnum):
    """Why the floor of a group moved at once. The numbers are part of the journal's format."""

    ADVANCED = 1
    """A member that keeps its own position has handled everything before it."""
    RESET = 2
    """An operator set it, or a snapshot begins with it. Nothing else of the cursor counts any more."""


class LeasedRange(NamedTuple):
    """Messages at `length` positions from `first` on, each leased `attempts` times so far."""

    first: int
    length: int
    attempts: int


class GroupLeased(NamedTuple):
    """Messages of a stream that a member of a group has until `due` (milliseconds since the epoch)."""

    group: int
    stream: int
    generation: int
    due: int
    ranges: list[LeasedRange]


class SettledRange(NamedTuple):
    """Settled messages, and the generation of the lease by which they were settled; 0 if there was none."""

    first: int
    length: int
    generation: int


class GroupSettled(NamedTuple):
    """Messages of a stream that are settled for a group. Every message before `floor` is settled after this."""

    group: int
    stream: int
    cause: SettledCause
    floor: int
    ranges: list[SettledRange]


class GroupProgress(NamedTuple):
    """A new floor of a group in a stream."""

    group: int
    stream: int
    cause: ProgressCause
    floor: int


class GroupLocked(NamedTuple):
    """A member that has the lock of a stream until `until` (milliseconds since the epoch); 0 ends the lock."""

    group: int
    stream: int
    until: int
    owner: str


def encode_leased(group: int, stream: int, generation: int, due: int, ranges: Sequence[LeasedRange]) -> bytes:
    """Return a GROUP_LEASED record."""
    head = _LEASED.pack(group, stream, generation, due, len(ranges))
    return head + b"".join([_LEASED_RANGE.pack(*each) for each in ranges])


def decode_leased(data: Payload) -> GroupLeased:
    group, stream, generation, due, number = _LEASED.unpack_from(data)
    at, size = _LEASED.size, _LEASED_RANGE.size
    ranges = [LeasedRange(*_LEASED_RANGE.unpack_from(data, at + i * size)) for i in range(number)]
    return GroupLeased(group, stream, generation, due, ranges)


def encode_group_settled(
    group: int, stream: int, cause: SettledCause, floor: int, ranges: Sequence[SettledRange]
) -> bytes:
    """Return a GROUP_SETTLED record."""
    head = _SETTLED.pack(group, stream, cause, floor, len(ranges))
    return head + b"".join([_SETTLED_RANGE.pack(*each) for each in ranges])


def decode_group_settled(data: Payload) -> GroupSettled:
    group, stream, cause, floor, number = _SETTLED.unpack_from(data)
    at, size = _SETTLED.size, _SETTLED_RANGE.size
    ranges = [SettledRange(*_SETTLED_RANGE.unpack_from(data, at + i * size)) for i in range(number)]
    return GroupSettled(group, stream, SettledCause(cause), floor, ranges)


def encode_group_progress(group: int, stream: int, cause: ProgressCause, floor: int) -> bytes:
    """Return a GROUP_PROGRESS record."""
    return _PROGRESS.pack(group, stream, cause, floor)


def decode_group_progress(data: Payload) -> GroupProgress:
    group, stream, cause, floor = _PROGRESS.unpack_from(data)
    return GroupProgress(group, stream, ProgressCause(cause), floor)


def encode_locked(group: int, stream: int, until: int, owner: str) -> bytes:
    """Return a GROUP_LOCKED record."""
    name = owner.encode()
    return _LOCKED.pack(group, stream, until, len(name)) + name


def decode_locked(data: Payload) -> GroupLocked:
    group, stream, until, size = _LOCKED.unpack_from(data)
    return GroupLocked(group, stream, until, bytes(data[_LOCKED.size : _LOCKED.size + size]).decode())


def settled_ranges(generations: dict[int, int]) -> list[SettledRange]:
    """Return settled positions, with the generation of each, as ranges."""
    found: list[SettledRange] = []
    for position, generation in sorted(generations.items()):
        last = found[-1] if found else None
        if last is not None and last.generation == generation and last.first + last.length == position:
            found[-1] = SettledRange(last.first, last.length + 1, generation)
        else:
            found.append(SettledRange(position, 1, generation))
    return found


def leased_ranges(attempts: dict[int, int]) -> list[LeasedRange]:
    """Return leased positions, with the number of attempts of each, as ranges."""
    return [LeasedRange(*each) for each in settled_ranges(attempts)]
