"""Counting deliveries in a stream of bytes without parsing each one.

The deliveries of a load are alike: same length of consumer tag, routing key and properties, same exchange, mostly the
same body size. So once the first has been parsed, there are three ways, the cheapest first:

- a run of k deliveries of the same size is k times its length of bytes. That is checked at both ends: a delivery must
  begin where the first and the last of them should, and their delivery tags, which a channel counts up by one, must be
  as far apart as k says;
- deliveries of which only the body sizes differ are hopped over, reading each size and checking the tag of the last;
- everything else is parsed frame by frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from struct import Struct, unpack_from

from escrowmq.perf.errors import PerfError
from escrowmq.perf.frames import (
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

_LONG_LONG = Struct(">Q")
_CONTENT = Struct(">BHIHHQ")
"""Frame head, class, weight and body size of a content header."""
_DELIVER_START_SIZE = FRAME_HEAD_SIZE + 4
"""Frame head and method of a basic.deliver."""
_ONE_FRAME = FRAME_MAX - FRAME_OVERHEAD
"""A body up to this size comes in one frame, if the broker uses the frame size that was agreed on."""

OnFrame = Callable[[int, memoryview], None]
"""Called with type and payload of each frame that is not part of a delivery."""
OnTimes = Callable[[Iterable[int]], None]
"""Called with the numbers in the first eight bytes of bodies that have as many."""


class DeliveryCounter:
    """Counts the deliveries of one channel. `count` is also the delivery tag of the last one."""

    __slots__ = (
        "_body_at",
        "_content",
        "_content_at",
        "_header_size",
        "_on_frame",
        "_on_times",
        "_start",
        "_tag_at",
        "_unit",
        "count",
    )

    def __init__(self, on_frame: OnFrame, on_times: OnTimes | None = None) -> None:
        self.count = 0
        self._on_frame = on_frame
        self._on_times = on_times
        # What the last delivery that was parsed looked like; places are relative to its beginning.
        self._unit = 0
        self._start = b""
        self._tag_at = 0
        self._content = b""
        self._content_at = 0
        self._header_size = 0
        self._body_at = 0

    def feed(self, data: memoryview) -> int:
        """Count what is whole in `data`; returns how many bytes that was. The rest is to be given again, with more.

        Raises PerfError on bytes that are no frames, or on a delivery tag out of order.
        """
        at = 0
        end = len(data)
        while at < end:
            used = (self._skip_run(data, at) or self._hop(data, at)) if self._unit else 0
            used = used or self._parse_one(data, at)
            if not used:
                break
            at += used
        return at

    def _skip_run(self, data: memoryview, at: int) -> int:
        """Count deliveries of the known size by the bytes they take; returns how many those were."""
        unit = self._unit
        run = (len(data) - at) // unit
        last = at + (run - 1) * unit
        if not run or not self._is_unit(data, at, 1) or (run > 1 and not self._is_unit(data, last, run)):
            return 0
        self.count += run
        if self._on_times is not None:
            before = self._body_at
            if unit - before >= 8 + 1 and self._body_size() >= 8:
                times = Struct(f">{before}xQ{unit - before - 8}x").iter_unpack(data[at : at + run * unit])
                self._on_times(map(itemgetter(0), times))
        return run * unit

    def _body_size(self) -> int:
        size: int = _CONTENT.unpack(self._content)[5]
        return size

    def _is_unit(self, data: memoryview, at: int, ahead: int) -> bool:
        """Whether a delivery of the known size, whose tag is `ahead` of the count, stands at `at`."""
        return (
            self._is_delivery(data, at, ahead)
            and data[at + self._content_at : at + self._content_at + _CONTENT.size] == self._content
            and data[at + self._unit - 1] == FRAME_END
        )

    def _is_delivery(self, data: memoryview, at: int, ahead: int) -> bool:
        return (
            data[at : at + _DELIVER_START_SIZE] == self._start
            and _LONG_LONG.unpack_from(data, at + self._tag_at)[0] == self.count + ahead
        )

    def _hop(self, data: memoryview, at: int) -> int:
        """Count deliveries that differ in body size alone; returns how many bytes they took."""
        content_at, header_size, body_at = self._content_at, self._header_size, self._body_at
        unpack = _CONTENT.unpack_from
        begin = last = at
        number = 0
        times: list[int] | None = None if self._on_times is None else []
        # Far enough for the header, and for the head of a body frame.
        limit = len(data) - body_at
        while at < limit:
            kind, _, size, class_id, _, body_size = unpack(data, at + content_at)
            if kind != HEADER or size != header_size or class_id != 60 or not 0 < body_size <= _ONE_FRAME:
                break
            following = at + body_at + body_size + 1
            if (
                following > len(data)
                or data[following - 1] != FRAME_END
                or data[at + body_at - FRAME_HEAD_SIZE] != BODY
            ):
                break
            if times is not None and body_size >= 8:
                times.append(_LONG_LONG.unpack_from(data, at + body_at)[0])
            number += 1
            last = at
            at = following
        if not number or not self._is_delivery(data, last, number):
            return 0
        self.count += number
        if self._on_times is not None and times:
            self._on_times(times)
        return at - begin

    def _parse_one(self, data: memoryview, at: int) -> int:
        """Parse one whole delivery, or one other frame; returns its length, 0 when it is not all there."""
        length = _frame_length(data, at)
        if not length:
            return 0
        kind, _, size = FRAME_HEAD.unpack_from(data, at)
        payload = data[at + FRAME_HEAD_SIZE : at + FRAME_HEAD_SIZE + size]
        if kind != METHOD or unpack_from(">I", payload)[0] != BASIC_DELIVER:
            self._on_frame(kind, payload)
            return length
        header_length = _frame_length(data, at + length)
        if not header_length:
            return 0
        if data[at + length] != HEADER:
            raise PerfError("the broker sent a delivery without a content header")
        body_size: int = _CONTENT.unpack_from(data, at + length)[5]
        whole = length + header_length
        missing = body_size
        while missing > 0:
            body_length = _frame_length(data, at + whole)
            if not body_length:
                return 0
            if data[at + whole] != BODY:
                raise PerfError("the broker sent a delivery whose body is cut short")
            missing -= body_length - FRAME_OVERHEAD
            whole += body_length
        tag_at = FRAME_HEAD_SIZE + 5 + payload[4]
        tag: int = _LONG_LONG.unpack_from(data, at + tag_at)[0]
        if tag != self.count + 1:
            raise PerfError(f"the broker sent delivery tag {tag} after {self.count}")
        self._unit = whole
        self._tag_at = tag_at
        self._start = bytes(data[at : at + _DELIVER_START_SIZE])
        self._content_at = length
        self._content = bytes(data[at + length : at + length + _CONTENT.size])
        self._header_size = header_length - FRAME_OVERHEAD
        self._body_at = length + header_length + FRAME_HEAD_SIZE
        self.count += 1
        if self._on_times is not None and body_size >= 8:
            self._on_times(_LONG_LONG.unpack_from(data, at + self._body_at))
        return whole


def _frame_length(data: memoryview, at: int) -> int:
    """The length of the frame at `at`, 0 when it is not all there; PerfError when it does not end as a frame does."""
    if len(data) - at < FRAME_OVERHEAD:
        return 0
    size: int = FRAME_HEAD.unpack_from(data, at)[2]
    if size > FRAME_MAX:  # more than was agreed on: garbage, which must not be waited for
        raise PerfError("the broker sent bytes that are not AMQP 0-9-1 frames")
    length = size + FRAME_OVERHEAD
    if len(data) - at < length:
        return 0
    if data[at + length - 1] != FRAME_END:
        raise PerfError("the broker sent bytes that are not AMQP 0-9-1 frames")
    return length
