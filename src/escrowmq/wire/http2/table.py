"""The streams of one connection: those that are open, and those that ended so lately that the client may not know."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from escrowmq.wire.http2 import limits
from escrowmq.wire.http2.frames import ErrorCode, Http2Fault
from escrowmq.wire.http2.limits import Patience
from escrowmq.wire.http2.stream import Stream

_RESET_KEPT: Final = 256
"""The number of streams that we have reset and for which the client may still send."""


class StreamTable:
    """The streams by number. A stream that is not open and not above `highest` is closed; one above it is idle."""

    __slots__ = ("_patience", "_reset", "highest", "open")

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._reset: OrderedDict[int, None] = OrderedDict()
        self.open: dict[int, Stream] = {}
        self.highest = 0

    def is_idle(self, number: int) -> bool:
        """Return whether no request has used the number. A client never opens a stream with an even number."""
        return number > self.highest or not number & 1

    def late(self, number: int) -> None:
        """Judge a frame for a stream that is not open. Raises Http2Fault unless the client may not know of its end."""
        if number in self._reset:
            self._patience.spend(limits.SMALL)
            return
        if self.is_idle(number):
            raise Http2Fault(ErrorCode.PROTOCOL_ERROR, f"a frame for stream {number}, which is not open")
        raise Http2Fault(ErrorCode.STREAM_CLOSED, f"a frame for stream {number}, which has ended")

    def note_reset(self, number: int) -> None:
        """Note that a stream was reset by us."""
        self._reset[number] = None
        if len(self._reset) > _RESET_KEPT:
            self._reset.popitem(last=False)
