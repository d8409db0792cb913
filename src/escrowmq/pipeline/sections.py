"""The sections of AMQP 1.0 messages, column-wise: the sizes of bodies, and the first fields of the properties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from escrowmq.pipeline.columns import Bytes, Ints, Rows, integers

SECTIONS: Final = 100
"""The protocol number of envelopes whose contents are sections of AMQP 1.0 (docs/internals/records.md)."""
_ANNOTATIONS: Final = 0x72
_PROPERTIES: Final = 0x73
_APPLICATION: Final = 0x74
_BODY: Final = 0x75
"""The descriptor of a section with data. Lower ones are those of the sections before the body."""
_BEFORE: Final = 3
"""The most sections before a body: message annotations, properties, application properties."""
HEAD: Final = 3
"""The octets of a section's descriptor."""
_LISTS: Final = {0xC0: 1, 0xD0: 4}
"""Constructors of lists, with the width of their size and count."""
_EMPTY: Final = 0x45
_NULL: Final = 0x40
_SHORT: Final = (0xA0, 0xA1)
_LONG: Final = (0xB0, 0xB1)
"""Constructors of octets and texts, by the width of their size."""
_FIXED: Final = np.array([0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 0, 0, 0, 0, 0, 0])
"""By the upper half of a constructor: the size of a value that has a fixed one."""


class TextField(NamedTuple):
    """A field of many messages: where its value begins and ends, and which messages have it."""

    starts: Ints
    ends: Ints
    present: Rows


def body_sizes(data: Bytes, begin: Ints, size: Ints) -> Ints:
    """Return the number of octets in the body of each message.

    A body that is not one data section counts with the descriptors of its sections, as in the translation to other
    protocols. If sections are malformed, the whole content counts.

    Args:
        data: the bytes that contain the messages.
        begin: the offset of each content.
        size: the length of each content.
    """
    at, end = begin.copy(), begin + size
    for _ in range(_BEFORE):
        before = is_section(data, at, end) & (octets_at(data, at + 2) < _BODY)
        at = np.where(before, value_end(data, at + HEAD), at)
    sound = is_section(data, at, end) & (at <= end)
    stop = value_end(data, at + HEAD)
    single = sound & (octets_at(data, at + 2) == _BODY) & (stop == end)
    wide = octets_at(data, at + HEAD) == 0xB0
    found = np.where(single, stop - at - HEAD - np.where(wide, 5, 2), end - at)
    return np.where(sound | (at == end), found, size)


def text_fields(data: Bytes, begin: Ints, size: Ints, wanted: Mapping[int, bool]) -> tuple[list[TextField], Rows]:
    """Return some of the first fields of the properties of messages.

    Args:
        data: the bytes that contain the messages.
        begin: the offset of each content.
        size: the length of each content.
        wanted: the numbers of the fields, and whether each is a text. Otherwise it is octets.

    Returns the fields, and which messages have them as they should be. In others, the sections do not agree with the
    end of the content, or a field has another type. What is inside other sections is not read.
    """
    at, end = begin, begin + size
    before = is_section(data, at, end) & (octets_at(data, at + 2) == _ANNOTATIONS)
    at = np.where(before, value_end(data, at + HEAD), at)
    some = is_section(data, at, end) & (octets_at(data, at + 2) == _PROPERTIES)
    kind = octets_at(data, at + HEAD)
    width = np.where(kind == 0xC0, _LISTS[0xC0], _LISTS[0xD0])
    count = np.where(width == 1, octets_at(data, at + HEAD + 2), _wide(data, at + HEAD + 5))
    stop = value_end(data, at + HEAD)
    listed = some & np.isin(kind, list(_LISTS))
    sound = (listed | (some & (kind == _EMPTY)) | ~some) & _ends(data, np.where(some, stop, at), end)
    found = []
    place = at + HEAD + 1 + 2 * width
    for number in range(max(wanted) + 1):
        there = listed & (number < count)
        follows = np.where(there, value_end(data, place), place)
        sound &= follows <= np.where(there, stop, follows)
        kind = octets_at(data, place)
        sound &= ~there | (kind >= _NULL)
        if number in wanted:
            short, long = (kind == pair[wanted[number]] for pair in (_SHORT, _LONG))
            present = there & (short | long)
            sound &= present | ~there | (kind == _NULL)
            found.append(TextField(place + np.where(short, 2, 5), follows, present))
        place = follows
    return [_restricted(each, begin, sound) for each in found], sound


def _ends(data: Bytes, at: Ints, end: Ints) -> Rows:
    """Whether sections at `at` are a body of one section, which may follow application properties, and end at `end`."""
    before = is_section(data, at, end) & (octets_at(data, at + 2) == _APPLICATION)
    at = np.where(before, value_end(data, at + HEAD), at)
    found: Rows = is_section(data, at, end) & (octets_at(data, at + 2) >= _BODY) & (value_end(data, at + HEAD) == end)
    return found


def _restricted(found: TextField, begin: Ints, sound: Rows) -> TextField:
    """The field of the `sound` messages. In others it is empty, at the beginning of the content."""
    starts, ends, present = found
    present = present & sound
    return TextField(np.where(present, starts, begin), np.where(present, ends, begin), present)


def _wide(data: Bytes, at: Ints) -> Ints:
    """The numbers of four octets at `at`."""
    high = octets_at(data, at) << 24 | octets_at(data, at + 1) << 16
    return high | octets_at(data, at + 2) << 8 | octets_at(data, at + 3)


def octets_at(data: Bytes, at: Ints) -> Ints:
    """The octets at `at`, and 0 beyond the end."""
    return np.where(at < len(data), integers(data[np.minimum(at, len(data) - 1)]), 0)


def is_section(data: Bytes, at: Ints, end: Ints) -> Rows:
    found: Rows = (at + HEAD < end) & (octets_at(data, at) == 0) & (octets_at(data, at + 1) == 0x53)
    return found


def value_end(data: Bytes, at: Ints) -> Ints:
    """The ends of the values at `at`."""
    kind = octets_at(data, at) >> 4
    narrow = octets_at(data, at + 1)
    wide = _wide(data, at + 1)
    even = kind % 2 == 0
    return at + 1 + np.where(kind < 10, _FIXED[kind], np.where(even, 1 + narrow, 4 + wide))
