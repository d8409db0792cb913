"""The records of link termini (docs/internals/records.md)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.records.references import Range

_ARRIVED: Final = struct.Struct("<QBI")  # terminus, outcome, number of tags
_FORGOTTEN: Final = struct.Struct("<QI")  # terminus, number of tags
FINGERPRINT_BYTES: Final = 8
_OF_CONTENTS: Final = 0x80  # in the octet of the outcome: the fingerprints are left out
_ACQUIRED: Final = struct.Struct("<QII")  # terminus, queue id, number of ranges
_NUMBERED: Final = struct.Struct("<QQI")  # first delivery number, first position, count
_GIVEN_BACK: Final = struct.Struct("<QII")  # terminus, queue id, number of ranges
_RANGE: Final = struct.Struct("<QI")  # first position, count

_BYTES: Final = tuple(bytes((number,)) for number in range(256))

Payload = bytes | memoryview

_NUMBERS: Final = {
    Disposition.ACCEPTED: 1,
    Disposition.REJECTED: 2,
    Disposition.RELEASED: 3,
    Disposition.MODIFIED: 4,
}
_DISPOSITIONS: Final = {number: disposition for disposition, number in _NUMBERS.items()}


class ArrivedTags(NamedTuple):
    """Messages that arrived at an incoming terminus: their tags, and the fingerprints of their contents.

    Fingerprints of None are those of the contents in the PUBLISH operation that precedes this one in its COMMIT.
    """

    terminus: int
    outcome: Disposition
    tags: list[bytes]
    fingerprints: list[bytes] | None


class Forgotten(NamedTuple):
    """Tags that the sender has settled."""

    terminus: int
    tags: list[bytes]


class NumberedRange(NamedTuple):
    """Deliveries `number` to `number` + `length` - 1 of a terminus: the messages at `first` and the next positions."""

    number: int
    first: int
    length: int


class Acquired(NamedTuple):
    """Messages of a queue that belong to an outgoing terminus from now on."""

    terminus: int
    queue: int
    ranges: list[NumberedRange]


class GivenBack(NamedTuple):
    """Messages of a queue that an outgoing terminus has returned to it."""

    terminus: int
    queue: int
    ranges: list[Range]


def encode_arrived(
    terminus: int, outcome: Disposition, tags: Sequence[bytes], fingerprints: Sequence[bytes] | None
) -> bytes:
    """Return an ARRIVED record. Tags have at most 255 bytes. See `ArrivedTags` for fingerprints of None."""
    if fingerprints is None:
        return _ARRIVED.pack(terminus, _NUMBERS[outcome] | _OF_CONTENTS, len(tags)) + _tags(tags)
    parts = [b""] * (3 * len(tags))
    parts[::3] = _lengths(tags)
    parts[1::3] = tags
    parts[2::3] = fingerprints
    return _ARRIVED.pack(terminus, _NUMBERS[outcome], len(tags)) + b"".join(parts)


def _lengths(tags: Sequence[bytes]) -> list[bytes]:
    """Return the length of each tag, as one byte."""
    return [_BYTES[length] for length in map(len, tags)]


def _tags(tags: Sequence[bytes]) -> bytes:
    """Return each tag, with its length before it."""
    parts = [b""] * (2 * len(tags))
    parts[::2] = _lengths(tags)
    parts[1::2] = tags
    return b"".join(parts)


def _decode_tags(data: Payload, at: int, count: int) -> list[bytes]:
    tags = []
    for _ in range(count):
        end = at + 1 + data[at]
        tags.append(bytes(data[at + 1 : end]))
        at = end
    return tags


def decode_arrived(data: Payload) -> ArrivedTags:
    terminus, outcome, count = _ARRIVED.unpack_from(data)
    at = _ARRIVED.size
    if outcome & _OF_CONTENTS:
        return ArrivedTags(terminus, _DISPOSITIONS[outcome ^ _OF_CONTENTS], _decode_tags(data, at, count), None)
    tags, fingerprints = [], []
    for _ in range(count):
        end = at + 1 + data[at]
        tags.append(bytes(data[at + 1 : end]))
        at = end + FINGERPRINT_BYTES
        fingerprints.append(bytes(data[end:at]))
    return ArrivedTags(terminus, _DISPOSITIONS[outcome], tags, fingerprints)


def encode_forgotten(terminus: int, tags: Sequence[bytes]) -> bytes:
    """Return a FORGOTTEN record."""
    return _FORGOTTEN.pack(terminus, len(tags)) + _tags(tags)


def decode_forgotten(data: Payload) -> Forgotten:
    terminus, count = _FORGOTTEN.unpack_from(data)
    return Forgotten(terminus, _decode_tags(data, _FORGOTTEN.size, count))


def encode_acquired(terminus: int, queue: int, ranges: Sequence[tuple[int, int, int]]) -> bytes:
    """Return an ACQUIRED record for `ranges` (`NumberedRange`)."""
    return _ACQUIRED.pack(terminus, queue, len(ranges)) + b"".join([_NUMBERED.pack(*each) for each in ranges])


def decode_acquired(data: Payload) -> Acquired:
    terminus, queue, count = _ACQUIRED.unpack_from(data)
    ranges = [NumberedRange(*_NUMBERED.unpack_from(data, _ACQUIRED.size + i * _NUMBERED.size)) for i in range(count)]
    return Acquired(terminus, queue, ranges)


def encode_given_back(terminus: int, queue: int, ranges: Sequence[tuple[int, int]]) -> bytes:
    """Return a GIVEN_BACK record for the positions of `ranges`."""
    return _GIVEN_BACK.pack(terminus, queue, len(ranges)) + b"".join([_RANGE.pack(*each) for each in ranges])


def decode_given_back(data: Payload) -> GivenBack:
    terminus, queue, count = _GIVEN_BACK.unpack_from(data)
    ranges = [Range(*_RANGE.unpack_from(data, _GIVEN_BACK.size + i * _RANGE.size)) for i in range(count)]
    return GivenBack(terminus, queue, ranges)


def numbered_ranges(deliveries: Iterable[tuple[int, int]]) -> list[NumberedRange]:
    """Return (number, position) of deliveries, in order of their numbers, as ranges in which both grow together."""
    found: list[NumberedRange] = []
    begin: tuple[int, int] | None = None
    count = 0
    for number, position in deliveries:
        if begin is not None and (number, position) == (begin[0] + count, begin[1] + count):
            count += 1
            continue
        if begin is not None:
            found.append(NumberedRange(*begin, count))
        begin, count = (number, position), 1
    if begin is not None:
        found.append(NumberedRange(*begin, count))
    return found
