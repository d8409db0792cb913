"""One HTTP/2 connection, as its server (RFC 9113): frames in, requests out; responses in, frames out.

The rules, in short. The client's preface and SETTINGS come first. HEADERS with an odd number above all earlier ones
open a stream. A frame for a stream that was never opened, or that has ended, costs the connection, unless we reset the
stream and the client may not know it yet. A header block is one unit: nothing may come between its frames. A fault of
one stream resets the stream; any other fault sends GOAWAY and ends the connection.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

from escrowmq.wire.http2 import frames, limits
from escrowmq.wire.http2.frames import (
    FRAME_SIZE,
    HEAD_SIZE,
    MOST_WINDOW,
    PREFACE,
    WINDOW,
    ErrorCode,
    Flag,
    FrameType,
    Http2Fault,
    Setting,
)
from escrowmq.wire.http2.headers import HeaderReader, Headers, check_request, check_trailers
from escrowmq.wire.http2.limits import Http2Limits, Patience
from escrowmq.wire.http2.sending import ResponseSender
from escrowmq.wire.http2.stream import Stream, StreamState
from escrowmq.wire.outbox import CONNECTION
from escrowmq.wire.unread import Unread

CONTROL: Final = -1
"""The lane of frames that need no order with others, so that they never wait for the log."""
_RESET_KEPT: Final = 256
"""The number of streams that we have reset and for which the client may still send."""
_LARGEST_FRAME: Final = (1 << 24) - 1


class RequestHandler(Protocol):
    """The user of a connection. It answers with `respond`, or `begin`, `send` and `finish`, at once or later."""

    def opened(self, stream: Stream, headers: Headers) -> None:
        """A request has begun."""
        ...

    def data(self, stream: Stream, data: bytes) -> None:
        """A part of the request's body has arrived. Not called after the response is complete."""
        ...

    def ended(self, stream: Stream) -> None:
        """The request is complete."""
        ...

    def cancelled(self, stream: Stream) -> None:
        """The stream has ended before its response was complete."""
        ...


class Http2Connection:
    """The state of one connection. `put(lane, data, after)` is that of an `Outbox`; a stream's number is its lane."""

    def __init__(
        self,
        handler: RequestHandler,
        put: Callable[[int, bytes, int], None],
        http2_limits: Http2Limits,
        pauses: Callable[[], bool],
    ) -> None:
        """`pauses` is asked after each frame whether reading has to stop for now."""
        self._handler = handler
        self._put = put
        self._limits = http2_limits
        self._pauses = pauses
        self.patience = Patience(http2_limits.patience)
        self.sender = ResponseSender(put, http2_limits, self.patience)
        self.streams: dict[int, Stream] = {}
        self.fault: Http2Fault | None = None
        """The fault that has ended the connection."""
        self.is_closed = False
        """Whether GOAWAY was sent, so that nothing more is read."""
        self._unread = Unread()
        self._reader = HeaderReader(http2_limits.header_list)
        self._is_begun = self._has_settings = False
        self._highest = 0
        self._window = http2_limits.connection_window
        self._block: list[bytes] = []  # of the header block that is incomplete
        self._block_size = self._block_stream = self._block_flags = 0
        self._reset: OrderedDict[int, None] = OrderedDict()

    # -- input

    def receive(self, data: bytes) -> None:
        """Process bytes from the client. Empty `data` means to continue with those that were kept."""
        unread = self._unread
        if self.is_closed:
            return
        if unread:
            unread.add(data, unread.need)
            if not unread.ready:
                return
            data = unread.take()
        try:
            at = self._read(data)
        except Http2Fault as fault:
            self.end(fault)
            return
        if at < len(data) and not self.is_closed:
            rest = data[at:] if at else data
            need = int.from_bytes(rest[:3], "big") + HEAD_SIZE if len(rest) >= HEAD_SIZE else 0
            unread.add(rest, need if self._is_begun else 0)

    @property
    def has_unread(self) -> bool:
        """Whether a complete frame may wait because reading was paused."""
        return bool(self._unread) and self._unread.ready

    def _read(self, data: bytes) -> int:
        at, size = 0, len(data)
        if not self._is_begun:
            if not PREFACE.startswith(data[: len(PREFACE)]):
                raise Http2Fault(ErrorCode.PROTOCOL_ERROR, "not the preface of HTTP/2")
            if size < len(PREFACE):
                return 0
            at = len(PREFACE)
            self._begin()
        while size - at >= HEAD_SIZE and not self._pauses():
            length = int.from_bytes(data[at : at + 3], "big")
            if length > FRAME_SIZE:
                raise Http2Fault(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {length} octets")
            end = at + HEAD_SIZE + length
            if end > size:
                break
            number = int.from_bytes(data[at + 5 : at + 9], "big") & MOST_WINDOW
            try:
                self._frame(data[at + 3], data[at + 4], number, data[at + HEAD_SIZE : end])
            except Http2Fault as fault:
                if not fault.stream:
                    raise
                self.reset(fault.stream, fault.code)
            at = end
        return at

    def _begin(self) -> None:
        self._is_begun = True
        ours = self._limits
        own = frames.settings(
            {
                Setting.MAX_CONCURRENT_STREAMS: ours.streams,
                Setting.INITIAL_WINDOW_SIZE: ours.stream_window,
                Setting.MAX_HEADER_LIST_SIZE: ours.header_list,
            }
        )
        self._put(CONTROL, own + frames.window_update(0, ours.connection_window - WINDOW), 0)

    def _frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if self._block_stream and (kind != FrameType.CONTINUATION or number != self._block_stream):
            raise Http2Fault(ErrorCode.PROTOCOL_ERROR, "a frame within a header block")
        if not self._has_settings:
            if kind != FrameType.SETTINGS or flags & Flag.ACK:
                raise Http2Fault(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
            self._has_settings = True
        handle = _HANDLERS.get(kind)
        if handle is None:
            self._spend(limits.SMALL)  # frames of unknown types are ignored (section 4.1)
        else:
            handle(self, flags, number, payload)

    def _spend(self, cost: int) -> None:
        if not self.patience.spend(cost):
            raise Http2Fault(ErrorCode.ENHANCE_YOUR_CALM, "too many frames that carry no request")

    # -- one function for each type of frame

    def _on_headers(self, flags: int, number: int, payload: bytes) -> None:
        if not number & 1:
            raise Http2Fault(ErrorCode.PROTOCOL_ERROR, f"HEADERS for stream {number}")
        payload = frames.unpadded(flags, payload)
        if flags & Flag.PRIORITY:
            if len(payload) < 5:
                raise Http2Fault(ErrorCode.FRAME_SIZE_ERROR, "HEADERS too short for its priority")
            if int.from_bytes(payload[:4], "big") & MOST_WINDOW == number:
                raise Http2Fault(ErrorCode.PROTOCOL_ERROR, "a stream that depends on itself")
            payload = payload[5:]
        self._block_stream, self._block_flags = number, flags
        self._extend_block(flags, payload)

    def _on_continuation(self, flags: int, number: int, payload: bytes) -> None:
        if not self._block_stream:
            raise Http2Fault(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        self._spend(limits.SMALL if payload else limits.RESET)
        self._extend_block(flags, payload)

    def _extend_block(self, flags: int, payload: bytes) -> None:
        self._block.append(payload)
        self._block_size += len(payload)
        if self._block_size > self._limits.header_block:
            raise Http2Fault(ErrorCode.ENHANCE_YOUR_CALM, "a header block beyond the limit")
        if not flags & Flag.END_HEADERS:
            return
        number, first = self._block_stream, self._block_flags
        block = self._block[0] if len(self._block) == 1 else b"".join(self._block)
        self._block, self._block_size, self._block_stream = [], 0, 0
        headers = self._reader.decode(block)  # in any case, since the tables of both sides must stay equal
        self._got_headers(number, headers, ends=bool(first & Flag.END_STREAM))

    def _got_headers(self, number: int, headers: Headers, *, ends: bool) -> None:
        stream = self.streams.get(number)
        if stream is not None:
            if stream.state is StreamState.HALF_CLOSED:
                raise Http2Fault(ErrorCode.STREAM_CLOSED, "HEADERS after the end of a request", number)
            check_trailers(headers, number)
            if not ends:
                raise Http2Fault(ErrorCode.PROTOCOL_ERROR, "trailers that do not end the request", number)
            self._request_ended(stream)
            return
        if number <= self._highest:
            self._late(number)
            return
        self._highest = number
        if len(self.streams) >= self._limits.streams:
            self._spend(limits.RESET)
            raise Http2Fault(ErrorCode.REFUSED_STREAM, "too many streams at once", number)
        check_request(headers, number)
        stream = self.streams[number] = Stream(number, self.sender.initial_window, self._limits.stream_window)
        self._handler.opened(stream, headers)
        if ends and number in self.streams:
            self._request_ended(stream)

    def _request_ended(self, stream: Stream) -> None:
        stream.state = StreamState.HALF_CLOSED
        self._handler.ended(stream)

    def _on_data(self, flags: int, number: int, payload: bytes) -> None:
        size = len(payload)
        self._window -= size
        if self._window < 0:
            raise Http2Fault(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the connection's window allows")
        if self._window * 2 <= self._limits.connection_window:
            self._put(CONTROL, frames.window_update(0, self._limits.connection_window - self._window), 0)
            self._window = self._limits.connection_window
        data = frames.unpadded(flags, payload)
        ends = bool(flags & Flag.END_STREAM)
        if not data and not ends:
            self._spend(limits.SMALL)
        stream = self.streams.get(number)
        if stream is None:
            self._late(number)
            return
        if stream.state is StreamState.HALF_CLOSED:
            raise Http2Fault(ErrorCode.STREAM_CLOSED, "DATA after the end of a request", number)
        stream.receive_window -= size
        if stream.receive_window < 0:
            raise Http2Fault(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the stream's window allows", number)
        if not ends and stream.receive_window * 2 <= self._limits.stream_window:
            self._put(CONTROL, frames.window_update(number, self._limits.stream_window - stream.receive_window), 0)
            stream.receive_window = self._limits.stream_window
        if data:
            self._handler.data(stream, data)
        if ends and number in self.streams:
            self._request_ended(stream)

    def _late(self, number: int) -> None:
        """A frame for a stream that is not open. The client may not know yet that we have reset it."""
        if number in self._reset:
            self._spend(limits.SMALL)
            return
        if number > self._highest or not number & 1:
            raise Http2Fault(ErrorCode.PROTOCOL_ERROR, f"a frame for stream {number}, which is not open")
        raise Http2Fault(ErrorCode.STREAM_CLOSED, f"a frame for stream {number}, which has ended")

    def _on_priority(self, flags: int, number: int, payload: bytes) -> None:
        self._spend(limits.SMALL)
        if not number:
            raise Http2Fault(ErrorCode.PROTOCOL_ERROR, "PRIORITY for stream 0")
        if len(payload) != 5:
            raise Http2Fault(ErrorCode.FRAME_SIZE_ERROR, "PRIORITY of a wrong length", number)
        if int.from_bytes(payload[:4], "big") & MOST_WINDOW == number:
            raise Http2Fault(ErrorCode.PROTOCOL_ERROR, "a stream that depends on itself", number)

    def _on_reset(self, flags: int, number: int, payload: bytes) -> None:
        self._spend(limits.RESET)
        if len(payload) != 4:
            raise Http2Fault(ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM of a wrong length")
        if not number or number > self._highest or not number & 1:
            raise Http2Fault(ErrorCode.PROTOCOL_ERROR, f"RST_STREAM for stream {number}, which is not open")
        stream = self.streams.get(number)
        if stream is not None:
            self._forget(stream)
            self._handler.cancelled(stream)

    def _on_settings(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise Http2Fault(ErrorCode.PROTOCOL_ERROR, "SETTINGS for a stream")
        if flags & Flag.ACK:
            if payload:
                raise Http2Fault(ErrorCode.FRAME_SIZE_ERROR, "an acknowledgement of SETTINGS with a payload")
            self._spend(limits.SMALL)
            return
        self._spend(limits.SETTINGS + len(payload) // 6)
        for name, value in frames.read_settings(payload):
            self._set(name, value)
        self._put(CONTROL, frames.frame(FrameType.SETTINGS, Flag.ACK, 0, b""), 0)

    def _set(self, name: int, value: int) -> None:
        if name == Setting.INITIAL_WINDOW_SIZE:
            if value > MOST_WINDOW:
                raise Http2Fault(ErrorCode.FLOW_CONTROL_ERROR, "an initial window beyond 2^31-1")
            change, self.sender.initial_window = value - self.sender.initial_window, value
            for stream in list(self.streams.values()):
                self._spend(limits.SMALL)  # all streams at once: this costs work for each
                if self.sender.widen_stream(stream, change):
                    self._finish(stream)
        elif name == Setting.MAX_FRAME_SIZE and not FRAME_SIZE <= value <= _LARGEST_FRAME:
            raise Http2Fault(ErrorCode.PROTOCOL_ERROR, f"a frame size of {value}")
        elif name == Setting.ENABLE_PUSH and value > 1:
            raise Http2Fault(ErrorCode.PROTOCOL_ERROR, f"ENABLE_PUSH is {value}")

    def _on_push_promise(self, flags: int, number: int, payload: bytes) -> None:
        raise Http2Fault(ErrorCode.PROTOCOL_ERROR, "a client must not send PUSH_PROMISE")

    def _on_ping(self, flags: int, number: int, payload: bytes) -> None:
        self._spend(limits.SMALL)
        if number:
            raise Http2Fault(ErrorCode.PROTOCOL_ERROR, "PING for a stream")
        if len(payload) != 8:
            raise Http2Fault(ErrorCode.FRAME_SIZE_ERROR, "PING of a wrong length")
        if not flags & Flag.ACK:
            self._put(CONTROL, frames.frame(FrameType.PING, Flag.ACK, 0, payload), 0)

    def _on_go_away(self, flags: int, number: int, payload: bytes) -> None:
        self._spend(limits.SMALL)
        if number:
            raise Http2Fault(ErrorCode.PROTOCOL_ERROR, "GOAWAY for a stream")
        if len(payload) < 8:
            raise Http2Fault(ErrorCode.FRAME_SIZE_ERROR, "GOAWAY of a wrong length")

    def _on_window_update(self, flags: int, number: int, payload: bytes) -> None:
        self._spend(limits.SMALL)
        if len(payload) != 4:
            raise Http2Fault(ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE of a wrong length")
        octets = int.from_bytes(payload, "big") & MOST_WINDOW
        if not octets:
            raise Http2Fault(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0", number)
        if not number:
            for stream in self.sender.widen(octets):
                self._finish(stream)
            return
        found = self.streams.get(number)
        if found is not None:
            if self.sender.widen_stream(found, octets):
                self._finish(found)
        elif number > self._highest or not number & 1:
            raise Http2Fault(ErrorCode.PROTOCOL_ERROR, f"WINDOW_UPDATE for stream {number}, which is not open")

    # -- output

    def respond(self, stream: Stream, head: bytes, body: bytes, trailers: bytes, after: int = 0) -> None:
        """Send a whole response: a header block, DATA, and a header block that ends it, when the log is synced up to
        `after`.
        """
        if self._is_live(stream):
            try:
                finished = self.sender.respond(stream, head, body, trailers, after)
            except Http2Fault as fault:
                self.end(fault)
            else:
                if finished:
                    self._finish(stream)

    def begin(self, stream: Stream, head: bytes, after: int = 0) -> None:
        """Send the header block with which a response begins."""
        if self._is_live(stream):
            self.sender.headers(stream, head, after, ends=False)

    def send(self, stream: Stream, data: bytes, after: int = 0) -> None:
        """Send a part of a response's body."""
        if self._is_live(stream):
            try:
                self.sender.data(stream, data, after)
            except Http2Fault as fault:
                self.end(fault)

    def finish(self, stream: Stream, trailers: bytes, after: int = 0) -> None:
        """Send the header block that ends a response, which may be its only one."""
        if self._is_live(stream) and self.sender.headers(stream, trailers, after, ends=True):
            self._finish(stream)

    def ping(self) -> None:
        """Ask the client for a sign of life."""
        if not self.is_closed:
            self._put(CONTROL, frames.frame(FrameType.PING, 0, 0, bytes(8)), 0)

    def _is_live(self, stream: Stream) -> bool:
        return self.streams.get(stream.number) is stream and not self.is_closed

    def _finish(self, stream: Stream) -> None:
        """The response is complete. A client that has not ended its request is told to stop (section 8.1)."""
        self._forget(stream)
        self.patience.answered()
        if stream.state is StreamState.OPEN:
            self._note_reset(stream.number)
            self._put(stream.number, frames.reset(stream.number, ErrorCode.NO_ERROR), 0)

    def reset(self, number: int, code: ErrorCode) -> None:
        """End a stream with an error."""
        self._note_reset(number)
        self._put(number, frames.reset(number, code), 0)
        stream = self.streams.get(number)
        if stream is not None:
            self._forget(stream)
            self._handler.cancelled(stream)

    def _note_reset(self, number: int) -> None:
        self._reset[number] = None
        if len(self._reset) > _RESET_KEPT:
            self._reset.popitem(last=False)

    def _forget(self, stream: Stream) -> None:
        self.streams.pop(stream.number, None)
        self.sender.forget(stream)

    def end(self, fault: Http2Fault) -> None:
        """Send GOAWAY, and cancel everything."""
        if self.is_closed:
            return
        self.is_closed = True
        self.fault = fault
        self._unread.clear()
        self._put(CONNECTION, frames.go_away(self._highest, fault.code, fault.text), 0)
        self.abandon()

    def abandon(self) -> None:
        """Cancel all streams, because the connection is lost."""
        self.is_closed = True
        streams, self.streams = self.streams, {}
        for stream in streams.values():
            self.sender.forget(stream)
            self._handler.cancelled(stream)


_HANDLERS: Final[dict[int, Callable[[Http2Connection, int, int, bytes], None]]] = {
    FrameType.DATA: Http2Connection._on_data,
    FrameType.HEADERS: Http2Connection._on_headers,
    FrameType.PRIORITY: Http2Connection._on_priority,
    FrameType.RST_STREAM: Http2Connection._on_reset,
    FrameType.SETTINGS: Http2Connection._on_settings,
    FrameType.PUSH_PROMISE: Http2Connection._on_push_promise,
    FrameType.PING: Http2Connection._on_ping,
    FrameType.GOAWAY: Http2Connection._on_go_away,
    FrameType.WINDOW_UPDATE: Http2Connection._on_window_update,
    FrameType.CONTINUATION: Http2Connection._on_continuation,
}
