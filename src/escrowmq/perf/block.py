"""Publishes that are encoded once and lie side by side, so that they can be sent in large writes."""

from __future__ import annotations

from itertools import accumulate
from struct import pack_into

from escrowmq.perf.messages import STAMP_SIZE

WRITE_BYTES = 128 * 1024
"""The target size of one write, which always consists of complete messages."""


class PublishBlock:
    """Encoded publishes, used in a cycle. The first eight bytes of each body can be set to a time."""

    __slots__ = ("_body_at", "_data", "_offsets", "_unit", "count", "view", "write_count")

    def __init__(self, units: list[bytes], bodies_at: list[int]) -> None:
        """`units` are complete publishes; `bodies_at` says where in each unit the body begins."""
        self.count = len(units)
        self._offsets = [0, *accumulate(map(len, units))]
        self._body_at = bodies_at
        self._data = bytearray(b"".join(units))
        self.view = memoryview(self._data)
        self.write_count = max(self.count * WRITE_BYTES // len(self._data), 1)
        """The number of messages that make up about `WRITE_BYTES`."""
        alike = len(set(map(len, units))) == 1 and len(set(bodies_at)) == 1
        self._unit = len(units[0]) if alike else 0
        """The length of every unit; 0 if the lengths differ."""

    def slice(self, first: int, number: int) -> memoryview:
        """Return the bytes of `number` publishes from the one at `first` on."""
        return self.view[self._offsets[first] : self._offsets[first + number]]

    def stamp(self, first: int, number: int, time: int) -> None:
        """Write one time (ns) into `number` bodies. Bodies under eight bytes cannot hold one."""
        unit = self._unit
        if not unit:
            self.stamp_each(first, [time] * number)
            return
        begin = first * unit + self._body_at[0]
        end = (first + number - 1) * unit + self._body_at[0] + 1
        for offset, byte in enumerate(time.to_bytes(STAMP_SIZE, "big")):
            self._data[begin + offset : end + offset : unit] = bytes((byte,)) * number

    def stamp_each(self, first: int, times: list[int]) -> None:
        """Write a separate time (ns) into each body from the one at `first` on."""
        for number, time in enumerate(times, first):
            pack_into(">Q", self._data, self._offsets[number] + self._body_at[number], time)
