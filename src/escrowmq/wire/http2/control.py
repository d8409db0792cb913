"""Frames that carry no request: SETTINGS, PING, WINDOW_UPDATE, PRIORITY, GOAWAY, and those of unknown types.

Each of them costs patience, since a client may send as many as it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from escrowmq.wire.http2 import frames, limits
from escrowmq.wire.http2.frames import FRAME_SIZE, MOST_WINDOW, ErrorCode, Flag, FrameType, Http2Fault, Setting
from escrowmq.wire.http2.limits import Patience
from escrowmq.wire.http2.sending import ResponseSender
from escrowmq.wire.http2.stream import Stream
from escrowmq.wire.http2.table import StreamTable

CONTROL: Final = -1
"""The lane of frames that need no order with others, so that they never wait for the log."""
_LARGEST_FRAME: Final = (1 << 24) - 1


class ControlFrames:
    """Processes such frames of one connection."""

    __slots__ = ("_patience", "_put", "_sender", "_table")

    def __init__(
        self,
        put: Callable[[int, bytes, int], None],
        table: StreamTable,
        sender: ResponseSender,
        patience: Patience,
    ) -> None:
        self._put = put
        self._table = table
        self._sender = sender
        self._patience = patience

    def frame(self, kind: int, flags: int, number: int, payload: bytes) -> Sequence[Stream]:
        """Process one frame. Return the streams whose responses are complete now. Raises Http2Fault.

        Frames of unknown types are ignored (section 4.1).
        """
        handle = _HANDLERS.get(kind)
        if handle is None:
            self._patience.spend(limits.SMALL)
            return ()
        return handle(self, flags, number, payload)

    def _priority(self, flags: int, number: int, payload: bytes) -> Sequence[Stream]:
        self._patience.spend(limits.SMALL)
        if not number:
            raise Http2Fault(ErrorCode.PROTOCOL_ERROR, "PRIORITY for stream 0")
        if len(payload) != 5:
            raise Http2Fault(ErrorCode.FRAME_SIZE_ERROR, "PRIORITY of a wrong length", number)
        if int.from_bytes(payload[:4], "big") & MOST_WINDOW == number:
            raise Http2Fault(ErrorCode.PROTOCOL_ERROR, "a stream that depends on itself", number)
        return ()

    def _settings(self, flags: int, number: int, payload: bytes) -> Sequence[Stream]:
        if number:
            raise Http2Fault(ErrorCode.PROTOCOL_ERROR, "SETTINGS for a stream")
        if flags & Flag.ACK:
            if payload:
                raise Http2Fault(ErrorCode.FRAME_SIZE_ERROR, "an acknowledgement of SETTINGS with a payload")
            self._patience.spend(limits.SMALL)
            return ()
        self._patience.spend(limits.SETTINGS + len(payload) // 6)
        settings = frames.read_settings(payload)
        # The acknowledgement precedes DATA that only the new window lets through.
        self._put(CONTROL, frames.frame(FrameType.SETTINGS, Flag.ACK, 0, b""), 0)
        finished: list[Stream] = []
        for name, value in settings:
            finished += self._set(name, value)
        return finished

    def _set(self, name: int, value: int) -> Sequence[Stream]:
        if name == Setting.INITIAL_WINDOW_SIZE:
            if value > MOST_WINDOW:
                raise Http2Fault(ErrorCode.FLOW_CONTROL_ERROR, "an initial window beyond 2^31-1")
            change, self._sender.initial_window = value - self._sender.initial_window, value
            streams = list(self._table.open.values())
            self._patience.spend(limits.SMALL * len(streams))  # a change for all streams at once costs work for each
            return [stream for stream in streams if self._sender.widen_stream(stream, change)]
        if name == Setting.MAX_FRAME_SIZE and not FRAME_SIZE <= value <= _LARGEST_FRAME:
            raise Http2Fault(ErrorCode.PROTOCOL_ERROR, f"a frame size of {value}")
        if name == Setting.ENABLE_PUSH and value > 1:
            raise Http2Fault(ErrorCode.PROTOCOL_ERROR, f"ENABLE_PUSH is {value}")
        return ()

    def _push_promise(self, flags: int, number: int, payload: bytes) -> Sequence[Stream]:
        raise Http2Fault(ErrorCode.PROTOCOL_ERROR, "a client must not send PUSH_PROMISE")

    def _ping(self, flags: int, number: int, payload: bytes) -> Sequence[Stream]:
        self._patience.spend(limits.SMALL)
        if number:
            raise Http2Fault(ErrorCode.PROTOCOL_ERROR, "PING for a stream")
        if len(payload) != 8:
            raise Http2Fault(ErrorCode.FRAME_SIZE_ERROR, "PING of a wrong length")
        if not flags & Flag.ACK:
            self._put(CONTROL, frames.frame(FrameType.PING, Flag.ACK, 0, payload), 0)
        return ()

    def _go_away(self, flags: int, number: int, payload: bytes) -> Sequence[Stream]:
        self._patience.spend(limits.SMALL)
        if number:
            raise Http2Fault(ErrorCode.PROTOCOL_ERROR, "GOAWAY for a stream")
        if len(payload) < 8:
            raise Http2Fault(ErrorCode.FRAME_SIZE_ERROR, "GOAWAY of a wrong length")
        return ()

    def _window_update(self, flags: int, number: int, payload: bytes) -> Sequence[Stream]:
        self._patience.spend(limits.SMALL)
        if len(payload) != 4:
            raise Http2Fault(ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE of a wrong length")
        octets = int.from_bytes(payload, "big") & MOST_WINDOW
        if not octets:
            raise Http2Fault(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0", number)
        if not number:
            return self._sender.widen(octets)
        found = self._table.open.get(number)
        if found is not None:
            return (found,) if self._sender.widen_stream(found, octets) else ()
        if self._table.is_idle(number):
            raise Http2Fault(ErrorCode.PROTOCOL_ERROR, f"WINDOW_UPDATE for stream {number}, which is not open")
        return ()


_HANDLERS: Final[Mapping[int, Callable[[ControlFrames, int, int, bytes], Sequence[Stream]]]] = MappingProxyType(
    {
        FrameType.PRIORITY: ControlFrames._priority,
        FrameType.SETTINGS: ControlFrames._settings,
        FrameType.PUSH_PROMISE: ControlFrames._push_promise,
        FrameType.PING: ControlFrames._ping,
        FrameType.GOAWAY: ControlFrames._go_away,
        FrameType.WINDOW_UPDATE: ControlFrames._window_update,
    }
)
