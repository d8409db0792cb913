"""The sizes of bodies of AMQP 1.0 messages, column-wise: the sections before a body are skipped by their sizes."""

from __future__ import annotations

from typing import Final

import numpy as np

from escrowmq.pipeline.columns import Bytes, Ints, Rows, integers

SECTIONS: Final = 100
"""The protocol number of envelopes whose contents are sections of AMQP 1.0 (docs/internals/records.md)."""
_BODY: Final = 0x75
"""The descriptor of a section with data. Lower ones are those of the sections before the body."""
_BEFORE: Final = 3
"""The most sections before a body: message annotations, properties, application properties."""
_HEAD: Final = 3
"""Octets of a section's descriptor."""
_FIXED: Final = np.array([0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 0, 0, 0, 0, 0, 0])
"""By the upper half of a constructor: the size of a value that has a fixed one."""


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
        before = _is_section(data, at, end) & (_octets(data, at + 2) < _BODY)
        at = np.where(before, _value_end(data, at + _HEAD), at)
    sound = _is_section(data, at, end) & (at <= end)
    stop = _value_end(data, at + _HEAD)
    single = sound & (_octets(data, at + 2) == _BODY) & (stop == end)
    wide = _octets(data, at + _HEAD) == 0xB0
    found = np.where(single, stop - at - _HEAD - np.where(wide, 5, 2), end - at)
    return np.where(sound | (at == end), found, size)


def _octets(data: Bytes, at: Ints) -> Ints:
    """The octets at `at`, and 0 beyond the end."""
    return np.where(at < len(data), integers(data[np.minimum(at, len(data) - 1)]), 0)


def _is_section(data: Bytes, at: Ints, end: Ints) -> Rows:
    found: Rows = (at + _HEAD < end) & (_octets(data, at) == 0) & (_octets(data, at + 1) == 0x53)
    return found


def _value_end(data: Bytes, at: Ints) -> Ints:
    """The ends of the values at `at`."""
    kind = _octets(data, at) >> 4
    narrow = _octets(data, at + 1)
    wide = narrow << 24 | _octets(data, at + 2) << 16 | _octets(data, at + 3) << 8 | _octets(data, at + 4)
    even = kind % 2 == 0
    return at + 1 + np.where(kind < 10, _FIXED[kind], np.where(even, 1 + narrow, 4 + wide))
