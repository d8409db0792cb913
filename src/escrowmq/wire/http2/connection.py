"""One HTTP/2 connection, as its server (RFC 9113): frames in, requests out; responses in, frames out.

The rules, in short. The client's preface and SETTINGS come first. HEADERS with an odd number above all earlier ones
open a stream. A frame for a stream that was never opened, or that has ended, costs the connection, unless we reset the
stream and the client may not know it yet. A header block is one unit: nothing may come between its frames. A fault of
one stream resets the stream; any other fault sends GOAWAY and ends the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Protocol

from escrowmq.wire.http2 import frames, limits
from escrowmq.wire.http2.blocks import HeaderBlocks
from escrowmq.wire.http2.control import CONTROL, ControlFrames
from escrowmq.wire.http2.frames import WINDOW, ErrorCode, Flag, FrameType, Http2Fault, Setting
from escrowmq.wire.http2.headers import Headers, check_request, check_trailers
from escrowmq.wire.http2.lengths import announced_length, take_announced
from escrowmq.wire.http2.limits import Http2Limits, Patience
from escrowmq.wire.http2.reading import Http2Reader
from escrowmq.wire.http2.sending import ResponseSender
from escrowmq.wire.http2.stream import Stream, StreamState
from escrowmq.wire.http2.table import StreamTable
from escrowmq.wire.outbox import CONNECTION


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
        """`pauses` is asked before each frame whether reading has to stop for now."""
        self._handler = handler
        self._put = put
        self._limits = http2_limits
        self.patience = Patience(http2_limits.patience)
        self.sender = ResponseSender(put, http2_limits, self.patience)
        self.fault: Http2Fault | None = None
        """The fault that has ended the connection."""
        self.is_closed = False
        """Whether GOAWAY was sent, so that nothing more is read."""
        self._table = StreamTable(self.patience)
        self._reader = Http2Reader(pauses)
        self._blocks = HeaderBlocks(http2_limits, self.patience)
        self._control = ControlFrames(put, self._table, self.sender, self.patience)
        self._has_settings = False
        self._window = http2_limits.connection_window

    @property
    def streams(self) -> dict[int, Stream]:
        """The open streams by number."""
        return self._table.open

    # -- input

    def receive(self, data: bytes) -> None:
        """Process bytes from the client. Empty `data` means to continue with those that were kept."""
        try:
            self._reader.receive(data, self)
        except Http2Fault as fault:
            self.end(fault)

    @property
    def unread(self) -> int:
        """The number of bytes that were received and wait to be read."""
        return self._reader.unread

    @property
    def has_unread(self) -> bool:
        """Whether a complete frame may wait because reading was paused."""
        return self._reader.has_unread

    def begun(self) -> None:
        """See `FrameSink.begun`."""
        ours = self._limits
        own = frames.settings(
            {
                Setting.MAX_CONCURRENT_STREAMS: ours.streams,
                Setting.INITIAL_WINDOW_SIZE: ours.stream_window,
                Setting.MAX_HEADER_LIST_SIZE: ours.header_list,
            }
        )
        self._put(CONTROL, own + frames.window_update(0, ours.connection_window - WINDOW), 0)

    def frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        """See `FrameSink.frame`."""
        within = self._blocks.stream
        if within and (kind != FrameType.CONTINUATION or number != within):
            raise Http2Fault(ErrorCode.PROTOCOL_ERROR, "a frame within a header block")
        if not self._has_settings:
            if kind != FrameType.SETTINGS or flags & Flag.ACK:
                raise Http2Fault(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
            self._has_settings = True
        handle = _HANDLERS.get(kind)
        if handle is None:
            for stream in self._control.frame(kind, flags, number, payload):
                self._finish(stream)
        else:
            handle(self, flags, number, payload)

    # -- one function for each type of frame of a request

    def _on_headers(self, flags: int, number: int, payload: bytes) -> None:
        headers = self._blocks.begin(flags, number, payload)
        if headers is not None:
            self._got_headers(number, headers, ends=self._blocks.ends_request)

    def _on_continuation(self, flags: int, number: int, payload: bytes) -> None:
        headers = self._blocks.go_on(flags, payload)
        if headers is not None:
            self._got_headers(number, headers, ends=self._blocks.ends_request)

    def _got_headers(self, number: int, headers: Headers, *, ends: bool) -> None:
        table = self._table
        stream = table.open.get(number)
        if stream is not None:
            if stream.state is StreamState.HALF_CLOSED:
                raise Http2Fault(ErrorCode.STREAM_CLOSED, "HEADERS after the end of a request", number)
            check_trailers(headers, number)
            if not ends:
                raise Http2Fault(ErrorCode.PROTOCOL_ERROR, "trailers that do not end the request", number)
            take_announced(stream, 0, ends=True)
            self._request_ended(stream)
            return
        if number <= table.highest:
            table.late(number)
            return
        table.highest = number
        if len(table.open) >= self._limits.streams:
            raise Http2Fault(ErrorCode.REFUSED_STREAM, "too many streams at once", number)
        check_request(headers, number)
        stream = Stream(number, self.sender.initial_window, self._limits.stream_window)
        stream.announced = announced_length(headers, number)
        take_announced(stream, 0, ends=ends)
        table.open[number] = stream
        self._handler.opened(stream, headers)
        if ends and number in table.open:
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
            self.patience.spend(limits.SMALL)
        stream = self._table.open.get(number)
        if stream is None:
            self._table.late(number)
            return
        if stream.state is StreamState.HALF_CLOSED:
            raise Http2Fault(ErrorCode.STREAM_CLOSED, "DATA after the end of a request", number)
        stream.receive_window -= size
        if stream.receive_window < 0:
            raise Http2Fault(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the stream's window allows", number)
        if not ends and stream.receive_window * 2 <= self._limits.stream_window:
            self._put(CONTROL, frames.window_update(number, self._limits.stream_window - stream.receive_window), 0)
            stream.receive_window = self._limits.stream_window
        take_announced(stream, len(data), ends=ends)
        if data:
            self._handler.data(stream, data)
        if ends and number in self._table.open:
            self._request_ended(stream)

    def _on_reset(self, flags: int, number: int, payload: bytes) -> None:
        self.patience.spend(limits.RESET)
        if len(payload) != 4:
            raise Http2Fault(ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM of a wrong length")
        if self._table.is_idle(number):
            raise Http2Fault(ErrorCode.PROTOCOL_ERROR, f"RST_STREAM for stream {number}, which is not open")
        stream = self._table.open.get(number)
        if stream is not None:
            self._forget(stream)
            self._cancel(stream)

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
        return self._table.open.get(stream.number) is stream and not self.is_closed

    def _finish(self, stream: Stream) -> None:
        """The response is complete. A client that has not ended its request is told to stop (section 8.1)."""
        self._forget(stream)
        stream.call = None
        self.patience.answered()
        if stream.state is StreamState.OPEN:
            self._table.note_reset(stream.number)
            self._put(stream.number, frames.reset(stream.number, ErrorCode.NO_ERROR), 0)

    def reset(self, number: int, code: ErrorCode) -> None:
        """End a stream with an error. It costs the client as much as a reset of its own: it may provoke as many."""
        self.patience.spend(limits.RESET)
        self._table.note_reset(number)
        self._put(number, frames.reset(number, code), 0)
        stream = self._table.open.get(number)
        if stream is not None:
            self._forget(stream)
            self._cancel(stream)

    def _forget(self, stream: Stream) -> None:
        self._table.open.pop(stream.number, None)
        self.sender.forget(stream)

    def _cancel(self, stream: Stream) -> None:
        """Tell the handler that a stream has ended.

        The stream gives up its call, which refers to it, so that neither of them needs the garbage collector.
        """
        self._handler.cancelled(stream)
        stream.call = None

    def end(self, fault: Http2Fault) -> None:
        """Send GOAWAY, and cancel everything."""
        if self.is_closed:
            return
        self.is_closed = True
        self.fault = fault.with_traceback(None)  # whose frames refer to the connection
        self._put(CONNECTION, frames.go_away(self._table.highest, fault.code, fault.text), 0)
        self.abandon()

    def abandon(self) -> None:
        """Cancel all streams, because the connection is lost."""
        self.is_closed = True
        self._reader.close()
        streams = list(self._table.open.values())
        self._table.open.clear()
        for stream in streams:
            self.sender.forget(stream)
            self._cancel(stream)


_HANDLERS: Final[Mapping[int, Callable[[Http2Connection, int, int, bytes], None]]] = MappingProxyType(
    {
        FrameType.DATA: Http2Connection._on_data,
        FrameType.HEADERS: Http2Connection._on_headers,
        FrameType.RST_STREAM: Http2Connection._on_reset,
        FrameType.CONTINUATION: Http2Connection._on_continuation,
    }
)
