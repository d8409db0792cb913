"""Counting deliveries in a stream of bytes without parsing each one.

The deliveries of a load are all alike: same length of consumer tag and routing key, same exchange, properties and
body size. So once the first has been parsed, a run of k more is k times its length of bytes. That is checked for every
run: a delivery must begin where the first and the last of them should, and their delivery tags, which a channel counts
up by one, must be as far apart as k says. What does not pass is parsed frame by frame.
"""

from __future__ import annotations

from collections.abc import Callable
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

_TAG = Struct(">Q")
_DELIVER_START_SIZE = FRAME_HEAD_SIZE + 4
"""Frame head and method of a basic.deliver."""
_CONTENT_START_SIZE = FRAME_HEAD_SIZE + 12
OnFrame = Callable[[int, memoryview], None]
"""Called with type and payload of each frame that is not part of a delivery."""
OnDeliveries = Callable[[memoryview, Struct], None]
"""Called with a run of deliveries and the struct that takes the first eight bytes of the body out of each."""


class DeliveryCounter:
    """Counts the deliveries of one channel. `count` is also the delivery tag of the last one."""

    __slots__ = (
        "_content",
        "_content_at",
        "_on_deliveries",
        "_on_frame",
        "_stamp",
        "_start",
        "_tag_at",
        "_unit",
        "count",
    )

    def __init__(self, on_frame: OnFrame, on_deliveries: OnDeliveries | None = None) -> None:
        self.count = 0
        self._on_frame = on_frame
        self._on_deliveries = on_deliveries
        self._unit = 0
        self._start = b""
        self._tag_at = 0
        self._content = b""
        """Frame head, class, weight and body size of the content header: they tell a delivery of the same length."""
        self._content_at = 0
        self._stamp = Struct("")

    def feed(self, data: memoryview) -> int:
        """Count what is whole in `data`; returns how many bytes that was. The rest is to be given again, with more.

        Raises PerfError on bytes that are no frames, or on a delivery tag out of order.
        """
        at = 0
        end = len(data)
        while at < end:
            unit = self._unit
            run = (end - at) // unit if unit else 0
            if run and self._is_delivery(data, at, 1) and self._is_delivery(data, at + (run - 1) * unit, run):
                self._deliver(data[at : at + run * unit], run)
                at += run * unit
                continue
            used = self._parse_one(data, at)
            if not used:
                break
            at += used
        return at

    def _is_delivery(self, data: memoryview, at: int, ahead: int) -> bool:
        """Whether the delivery whose tag is `ahead` of the count stands at `at`."""
        return (
            data[at : at + len(self._start)] == self._start
            and data[at + self._content_at : at + self._content_at + len(self._content)] == self._content
            and data[at + self._unit - 1] == FRAME_END
            and _TAG.unpack_from(data, at + self._tag_at)[0] == self.count + ahead
        )

    def _deliver(self, run: memoryview, number: int) -> None:
        self.count += number
        if self._on_deliveries is not None:
            self._on_deliveries(run, self._stamp)

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
        tag_at = FRAME_HEAD_SIZE + 5 + payload[4]
        header_length = _frame_length(data, at + length)
        if not header_length:
            return 0
        if data[at + length] != HEADER:
            raise PerfError("the broker sent a delivery without a content header")
        missing: int = unpack_from(">Q", data, at + length + FRAME_HEAD_SIZE + 4)[0]
        body_at = length + header_length + FRAME_HEAD_SIZE
        whole = length + header_length
        stamped = missing >= 8
        while missing > 0:
            body_length = _frame_length(data, at + whole)
            if not body_length:
                return 0
            if data[at + whole] != BODY:
                raise PerfError("the broker sent a delivery whose body is cut short")
            missing -= body_length - FRAME_OVERHEAD
            whole += body_length
        tag: int = _TAG.unpack_from(data, at + tag_at)[0]
        if tag != self.count + 1:
            raise PerfError(f"the broker sent delivery tag {tag} after {self.count}")
        self._unit = whole
        self._tag_at = tag_at
        self._stamp = Struct(f">{body_at}xQ{whole - body_at - 8}x" if stamped else f">{whole}x")
        self._start = bytes(data[at : at + _DELIVER_START_SIZE])
        self._content_at = length
        self._content = bytes(data[at + length : at + length + _CONTENT_START_SIZE])
        self._deliver(data[at : at + whole], 1)
        return whole


def _frame_length(data: memoryview, at: int) -> int:
    """The length of the frame at `at`, 0 when it is not all there; PerfError when it does not end as a frame does."""
    if len(data) - at < FRAME_OVERHEAD:
        return 0
    size: int = FRAME_HEAD.unpack_from(data, at)[2]
    if size > FRAME_MAX:  # more than was negotiated: garbage, which must not be waited for
        raise PerfError("the broker sent bytes that are not AMQP 0-9-1 frames")
    length = size + FRAME_OVERHEAD
    if len(data) - at < length:
        return 0
    if data[at + length - 1] != FRAME_END:
        raise PerfError("the broker sent bytes that are not AMQP 0-9-1 frames")
    return length
