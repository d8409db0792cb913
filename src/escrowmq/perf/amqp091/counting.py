"""Counting deliveries in a stream of bytes without parsing each one.

There are three ways, the cheapest first:

- A run of k deliveries of one size is k times as long as one of them. Both ends are checked: the first and the last
  delivery must begin where expected, and their delivery tags, which a channel counts up by one, must differ by k - 1.
- Short deliveries of any size and any property list are counted by a mark that each contains: the method and the
  beginning of the consumer tag. The last one is parsed, and its tag must agree with the count.
- All other deliveries are parsed frame by frame: the first one, the last one of some runs and of each read of short
  deliveries, long deliveries, and all deliveries of a consumer that needs every one.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from escrowmq.perf.amqp091.frames import (
    BASIC_DELIVER,
    BODY,
    FRAME_END,
    FRAME_HEAD,
    FRAME_HEAD_SIZE,
    FRAME_MAX,
    FRAME_OVERHEAD,
    HEADER,
    METHOD,
)
from escrowmq.perf.errors import PerfError
from escrowmq.perf.sampling import SAMPLED_BYTES

CONSUMER_TAG = "perf-"
"""The beginning of each consumer tag. All tags of a channel have the same length."""

_LONG_LONG = Struct(">Q")
_METHOD = Struct(">I")
_CONTENT = Struct(">BHIHHQ")
"""Frame head, class, weight and body size of a content header."""
_START_SIZE = FRAME_HEAD_SIZE + 4
"""Frame head and method."""
_SHORT = 4096
"""Up to this size of a delivery (bytes), searching for the mark is cheaper than parsing three frames."""

_AWAITED = 65536
"""A delivery of up to this size (bytes) is awaited whole; the frames of longer ones are taken one by one."""
_SAMPLE_RUNS = 16
"""One in this number of runs ends with a delivery that is parsed."""

OnFrame = Callable[[int, memoryview], None]
"""Called with type and payload of each frame that is not part of a delivery."""
OnContent = Callable[[bytes, int, bytes], None]
"""Called with the payload of the content header, the size of the body and its first bytes."""


class DeliveryCounter:
    """Counts the deliveries of one channel. `count` is also the delivery tag of the last one."""

    def __init__(
        self,
        on_frame: OnFrame,
        on_content: OnContent,
        every: bool = False,
        method: int = BASIC_DELIVER,
        tagged: bool = True,
    ) -> None:
        """`on_content` gets some deliveries or, with `every`, all of them. Without `every`, frames between deliveries
        may be overlooked.

        `method` is basic.deliver or basic.get-ok. `tagged` is false for direct replies, because not every broker counts
        up their delivery tags.
        """
        self.count = 0
        self._on_frame = on_frame
        self._on_content = on_content
        self.every = every
        self._method = method
        self._tagged = tagged
        self._runs = 0
        # The delivery that is being parsed.
        self._missing = -1
        """Bytes of its body that are still to come; -1 while its content header is awaited."""
        self._parsing = False
        self._header = b""
        self._begin = b""
        # The last delivery that was parsed. Positions are relative to its beginning.
        self._unit = 0
        self._start = b""
        self._mark = b""
        self._tag_at = 0
        self._content = b""
        self._content_at = 0

    def feed(self, data: bytearray, end: int) -> int:
        """Count the complete deliveries in the first `end` bytes. Returns the number of bytes that they take.

        The caller passes the rest again, with more bytes. Raises PerfError for bytes that are not frames, for frames
        out of order, and for a delivery tag out of order.
        """
        at = 0
        while at < end:
            used = 0
            if self._unit and not self._parsing and not self.every:
                used = self._skip_run(data, at, end)
                if not used and self._has_begun(data, at, end):
                    break
                used = used or self._skip_marked(data, at, end)
            used = used or self._take_frame(data, at, end)
            if not used:
                break
            at += used
        return at

    def _skip_run(self, data: bytearray, at: int, end: int) -> int:
        """Count deliveries of the known size by the bytes they take; returns their length.

        The last one of every `_SAMPLE_RUNS`th run is left to be parsed.
        """
        unit = self._unit
        run = (end - at) // unit
        sampled = self._runs % _SAMPLE_RUNS == 0
        if not run or not self._is_unit(data, at, 1) or not self._is_unit(data, at + (run - 1) * unit, run):
            return 0
        self._runs += 1
        run -= sampled
        self.count += run
        return run * unit

    def _has_begun(self, data: bytearray, at: int, end: int) -> bool:
        """Return whether the remaining bytes are the beginning of a delivery of the known size."""
        left = end - at
        if not _START_SIZE <= left < self._unit <= _AWAITED or data[at : at + _START_SIZE] != self._start:
            return False
        content_at, content_end = at + self._content_at, at + self._content_at + _CONTENT.size
        return left < self._content_at + _CONTENT.size or data[content_at:content_end] == self._content

    def _is_unit(self, data: bytearray, at: int, ahead: int) -> bool:
        """Return whether a delivery of the known size, with a tag `ahead` of the count, begins at `at`."""
        content_at = at + self._content_at
        return (
            data[at : at + _START_SIZE] == self._start
            and _LONG_LONG.unpack_from(data, at + self._tag_at)[0] == self.count + ahead
            and data[content_at : content_at + _CONTENT.size] == self._content
            and data[at + self._unit - 1] == FRAME_END
        )

    def _skip_marked(self, data: bytearray, at: int, end: int) -> int:
        """Count deliveries, except the last one, by the mark in each. Returns their length."""
        mark = self._mark
        mark_at = at + FRAME_HEAD_SIZE
        if not mark or self._unit > _SHORT or data[mark_at : mark_at + len(mark)] != mark:
            return 0
        last = data.rfind(mark, mark_at + 1, end)
        if last < 0:
            return 0
        following = last - FRAME_HEAD_SIZE
        if data[following - 1] != FRAME_END or data[following] != METHOD:
            raise PerfError("the broker sent bytes that are not AMQP 0-9-1 frames")
        self.count += data.count(mark, mark_at, last)
        return following - at

    def _take_frame(self, data: bytearray, at: int, end: int) -> int:
        """Take one complete frame. Returns its length, or 0 if it is incomplete."""
        length = _frame_length(data, at, end)
        if not length:
            return 0
        kind = data[at]
        if not self._parsing:
            method = _METHOD.unpack_from(data, at + FRAME_HEAD_SIZE)[0] if length >= _START_SIZE else 0
            if kind == METHOD and method == self._method:
                self._take_method(data, at, length)
            else:
                self._on_frame(kind, memoryview(data)[at + FRAME_HEAD_SIZE : at + length - 1])
        elif self._missing < 0:
            self._take_header(data, at, length)
        else:
            self._take_body(data, at, length)
        return length

    def _take_method(self, data: bytearray, at: int, length: int) -> None:
        tag_at = _START_SIZE
        if self._method == BASIC_DELIVER:
            tag_at += 1 + data[at + _START_SIZE]
            self._mark = bytes(data[at + FRAME_HEAD_SIZE : at + _START_SIZE + 1 + len(CONSUMER_TAG)])
            if not self._mark.endswith(CONSUMER_TAG.encode()):
                self._mark = b""
        tag: int = _LONG_LONG.unpack_from(data, at + tag_at)[0]
        if self._tagged and tag != self.count + 1:
            raise PerfError(f"the broker sent delivery tag {tag} after {self.count}")
        self._parsing = True
        self._missing = -1
        self._tag_at = tag_at
        self._start = bytes(data[at : at + _START_SIZE])
        self._content_at = self._unit = length

    def _take_header(self, data: bytearray, at: int, length: int) -> None:
        if data[at] != HEADER or length < _CONTENT.size + 3:
            raise PerfError("the broker sent a delivery without a content header")
        self._content = bytes(data[at : at + _CONTENT.size])
        self._header = bytes(data[at + FRAME_HEAD_SIZE : at + length - 1])
        self._begin = b""
        self._missing = _CONTENT.unpack_from(data, at)[5]
        self._unit += length
        if not self._missing:
            self._complete()

    def _take_body(self, data: bytearray, at: int, length: int) -> None:
        size = length - FRAME_OVERHEAD
        if data[at] != BODY or size > self._missing:
            raise PerfError("the broker sent a delivery whose body is cut short")
        if not self._begin:
            self._begin = bytes(data[at + FRAME_HEAD_SIZE : at + FRAME_HEAD_SIZE + min(size, SAMPLED_BYTES)])
        self._missing -= size
        self._unit += length
        if not self._missing:
            self._complete()

    def _complete(self) -> None:
        self._parsing = False
        self.count += 1
        self._on_content(self._header, _CONTENT.unpack(self._content)[5], self._begin)


def _frame_length(data: bytearray, at: int, end: int) -> int:
    """Return the length of the frame at `at`, or 0 if it is incomplete. Raises PerfError if it has no frame end."""
    if end - at < FRAME_OVERHEAD:
        return 0
    size: int = FRAME_HEAD.unpack_from(data, at)[2]
    if size > FRAME_MAX:  # more than was agreed, so these bytes are not a frame; waiting for it would never end
        raise PerfError("the broker sent bytes that are not AMQP 0-9-1 frames")
    length = size + FRAME_OVERHEAD
    if end - at < length:
        return 0
    if data[at + length - 1] != FRAME_END:
        raise PerfError("the broker sent bytes that are not AMQP 0-9-1 frames")
    return length
