"""The sending side of a connection: responses are cut into frames, within the client's flow-control windows.

Everything of one stream leaves in order. A part that waits for the log holds back later parts of its stream only, since
each stream is a lane of the outbox. DATA that finds no window waits here, and counts as unsent.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from escrowmq.wire.http2.frames import FRAME_SIZE, MOST_WINDOW, WINDOW, ErrorCode, Flag, FrameType, Http2Fault, frame
from escrowmq.wire.http2.limits import Http2Limits, Patience
from escrowmq.wire.http2.stream import Stream, Unsent

_END: Final = Flag.END_STREAM
_END_HEADERS: Final = Flag.END_HEADERS
_HEADERS: Final = bytes((FrameType.HEADERS, _END_HEADERS))
_DATA: Final = bytes((FrameType.DATA, 0))
_TRAILERS: Final = bytes((FrameType.HEADERS, _END_HEADERS | _END))


class ResponseSender:
    """Sends the responses of one connection. `put(lane, data, after)` is that of an `Outbox`."""

    __slots__ = ("_blocked", "_limits", "_patience", "_put", "initial_window", "unsent", "window")

    def __init__(self, put: Callable[[int, bytes, int], None], limits: Http2Limits, patience: Patience) -> None:
        self._put = put
        self._limits = limits
        self._patience = patience
        self._blocked: OrderedDict[int, Stream] = OrderedDict()  # streams that wait for the connection's window
        self.window = WINDOW
        """Octets of DATA that the client still takes on the connection."""
        self.initial_window = WINDOW
        self.unsent = 0
        """Octets of DATA that wait for a window."""

    def respond(self, stream: Stream, head: bytes, body: bytes, trailers: bytes, after: int) -> bool:
        """Send a whole response. Return whether the stream is finished with it."""
        size, number = len(body), stream.number
        if stream.unsent or size > stream.send_window or size > self.window or size > FRAME_SIZE:
            self.headers(stream, head, after, ends=False)
            self.data(stream, body, after)
            return self.headers(stream, trailers, after, ends=True)
        stream.send_window -= size
        self.window -= size
        octets = number.to_bytes(4, "big")
        frames = (
            *(len(head).to_bytes(3, "big"), _HEADERS, octets, head),
            *(size.to_bytes(3, "big"), _DATA, octets, body),
            *(len(trailers).to_bytes(3, "big"), _TRAILERS, octets, trailers),
        )
        self._put(number, b"".join(frames), after)
        return True

    def headers(self, stream: Stream, block: bytes, after: int, *, ends: bool) -> bool:
        """Send a header block. Return whether the stream is finished with it."""
        return self._send(stream, Unsent(block, is_data=False, ends=ends, after=after))

    def data(self, stream: Stream, data: bytes, after: int) -> None:
        """Send DATA.

        Raises:     Http2Fault: the client requests more than it lets the broker send.
        """
        self._send(stream, Unsent(data, is_data=True, ends=False, after=after))

    def _send(self, stream: Stream, part: Unsent) -> bool:
        if stream.unsent:
            self._keep(stream, part)
            return False
        return self._now(stream, part)

    def _now(self, stream: Stream, part: Unsent) -> bool:
        number = stream.number
        if not part.is_data:
            flags = _END_HEADERS | (_END if part.ends else 0)
            self._put(number, frame(FrameType.HEADERS, flags, number, part.block), part.after)
            return part.ends
        data = part.block
        at = 0
        while at < len(data):
            size = min(len(data) - at, FRAME_SIZE, stream.send_window, self.window)
            if size <= 0:
                self._keep(stream, part._replace(block=data[at:] if at else data), first=True)
                return False
            stream.send_window -= size
            self.window -= size
            self._put(number, frame(FrameType.DATA, 0, number, data[at : at + size]), part.after)
            self._patience.sent()
            at += size
        return False

    def _keep(self, stream: Stream, part: Unsent, *, first: bool = False) -> None:
        (stream.unsent.appendleft if first else stream.unsent.append)(part)
        self.unsent += len(part.block)
        self._blocked[stream.number] = stream
        if self.unsent > self._limits.unsent:
            raise Http2Fault(
                ErrorCode.ENHANCE_YOUR_CALM, f"more than {self._limits.unsent} octets wait for flow-control windows"
            )

    def forget(self, stream: Stream) -> None:
        """Drop the unsent parts of a stream that has ended."""
        self.unsent -= sum(len(part.block) for part in stream.unsent)
        stream.unsent.clear()
        self._blocked.pop(stream.number, None)

    def widen(self, octets: int) -> list[Stream]:
        """Note a larger window of the connection. Return the streams that are finished now."""
        self.window += octets
        if self.window > MOST_WINDOW:
            raise Http2Fault(ErrorCode.FLOW_CONTROL_ERROR, "a window beyond 2^31-1")
        return [stream for stream in list(self._blocked.values()) if self.window > 0 and self._go_on(stream)]

    def widen_stream(self, stream: Stream, octets: int) -> bool:
        """Note a larger window of `stream`. Return whether it is finished now."""
        stream.send_window += octets
        if stream.send_window > MOST_WINDOW:
            raise Http2Fault(ErrorCode.FLOW_CONTROL_ERROR, "a window beyond 2^31-1", stream.number)
        return self._go_on(stream)

    def _go_on(self, stream: Stream) -> bool:
        """Send what the windows allow. A stream that is blocked again goes behind the others."""
        if stream.number not in self._blocked:
            return False
        del self._blocked[stream.number]
        finished = False
        while stream.unsent:
            part = stream.unsent.popleft()
            self.unsent -= len(part.block)
            count = len(stream.unsent)
            finished = self._now(stream, part)
            if len(stream.unsent) > count:
                break
        if stream.unsent:
            self._blocked[stream.number] = stream
        return finished
