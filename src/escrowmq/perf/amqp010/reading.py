"""Counts the transfers in received bytes, mostly many at a time, and hands on all other frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from escrowmq.perf.amqp010.frames import AssemblyReader, ReceivedAssembly, frame_size
from escrowmq.perf.errors import PerfError
from escrowmq.perf.sampling import SAMPLED_BYTES
from escrowmq.wire.amqp010.codec.frames import (
    BODY,
    COMMAND,
    FIRST_FRAME,
    FIRST_SEGMENT,
    HEAD_SIZE,
    HEADER,
    LAST_FRAME,
    LAST_SEGMENT,
)
from escrowmq.wire.amqp010.codec.spec import MessageTransfer

_TRANSFER: Final = MessageTransfer.CODE.to_bytes(2, "big")
_SHORT: Final = 4096
"""The largest size (bytes) of a delivery before others are counted by the octets with which each begins."""

OnContent = Callable[[bytes, bytes, int], None]
"""Gets the header segment, the beginning of the body, and the size of the body."""


class TransferCount:
    """Walks over frames. `count` is the number of complete deliveries so far.

    Deliveries are counted by the frame of their command, with which each begins, and which differs from the others at
    most in the destination. `on_content` gets one delivery of each read, or with `every` each one. `on_received` gets
    everything else.
    """

    def __init__(self, on_received: Callable[[ReceivedAssembly], None], on_content: OnContent, *, every: bool) -> None:
        self.count = 0
        self._reader = AssemblyReader(on_received)
        self._on_content = on_content
        self._every = every
        self._mark = b""  # the beginning of the last command
        self._unit = 0  # size of the last delivery
        self._open = False  # whether a delivery has begun
        self._header = self._body = b""
        self._size = 0

    def feed(self, data: bytearray, end: int) -> int:
        """Take the complete frames in the first `end` bytes of `data`. Returns the number of bytes taken."""
        at, sampled = 0, self._open
        while end - at >= HEAD_SIZE:
            if sampled and not self._open and not self._every:
                skipped = self._skip_marked(data, at, end)
                if skipped:
                    at += skipped
                    continue
            size = frame_size(data, at)
            if end - at < size:
                break
            if self._open:
                self._take_part(data, at, size)
            elif data.startswith(_TRANSFER, at + HEAD_SIZE) and data[at + 1] == COMMAND:
                self._begin(data, at, size)
                sampled = True
            else:
                self._reader.take(data, at, end)
            at += size
        return at

    def _skip_marked(self, data: bytearray, at: int, end: int) -> int:
        """Count deliveries, except the last one, by the mark with which each begins. Returns their length."""
        mark = self._mark
        if not mark or self._unit > _SHORT or not data.startswith(mark, at):
            return 0
        last = data.rfind(mark, at + 1, end)
        if last < 0:
            return 0
        self.count += data.count(mark, at, last)
        return last - at

    def _begin(self, data: bytearray, at: int, size: int) -> None:
        if data[at] & (FIRST_SEGMENT | FIRST_FRAME | LAST_FRAME) != FIRST_SEGMENT | FIRST_FRAME | LAST_FRAME:
            raise PerfError("the broker sent a command in several frames, which the load tool does not support")
        self._mark = bytes(data[at : at + HEAD_SIZE + len(_TRANSFER) + 1])
        self._header = self._body = b""
        self._unit, self._size = size, 0
        self._open = True
        if data[at] & LAST_SEGMENT:
            self._complete()

    def _take_part(self, data: bytearray, at: int, size: int) -> None:
        flags, kind = data[at], data[at + 1]
        if kind not in (HEADER, BODY):
            raise PerfError("the broker sent a message that is cut short")
        begin, behind = at + HEAD_SIZE, at + size
        if kind == HEADER:
            self._header += data[begin:behind]
        else:
            if len(self._body) < SAMPLED_BYTES:
                self._body += data[begin : min(behind, begin + SAMPLED_BYTES - len(self._body))]
            self._size += behind - begin
        self._unit += size
        if flags & LAST_SEGMENT and flags & LAST_FRAME:
            self._complete()

    def _complete(self) -> None:
        self._open = False
        self.count += 1
        self._on_content(self._header, self._body, self._size)
