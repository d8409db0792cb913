"""The bytes of a connection divided into frames (RFC 9113, section 4.1), after the preface of the client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from escrowmq.wire.http2.frames import FRAME_SIZE, HEAD_SIZE, MOST_WINDOW, PREFACE, ErrorCode, Http2Fault
from escrowmq.wire.unread import Unread


class FrameSink(Protocol):
    """Takes the frames of a connection."""

    def begun(self) -> None:
        """The preface has arrived."""
        ...

    def frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        """Process a frame of stream `number`. Raises Http2Fault."""
        ...

    def reset(self, number: int, code: ErrorCode) -> None:
        """End a stream because of a fault in its frames."""
        ...


class Http2Reader:
    """Reads frames until it is closed. It keeps what is incomplete, or has arrived while reading was paused."""

    __slots__ = ("_is_begun", "_is_closed", "_pauses", "_unread")

    def __init__(self, pauses: Callable[[], bool]) -> None:
        """`pauses` is asked before each frame whether reading has to stop for now."""
        self._pauses = pauses
        self._unread = Unread()
        self._is_begun = self._is_closed = False

    def receive(self, data: bytes, sink: FrameSink) -> None:
        """Process bytes. Empty `data` means to continue with those that were kept.

        Raises:     Http2Fault: a fault that ends the connection.
        """
        if self._is_closed:
            return
        unread = self._unread
        if unread:
            unread.add(data, unread.need)
            if not unread.ready:
                return
            data = unread.take()
        at = self._read(data, sink)
        if at < len(data) and not self._is_closed:
            rest = data[at:] if at else data
            need = int.from_bytes(rest[:3], "big") + HEAD_SIZE if len(rest) >= HEAD_SIZE else 0
            unread.add(rest, need if self._is_begun else 0)

    @property
    def unread(self) -> int:
        """The number of bytes that were received and wait to be read."""
        return self._unread.size

    @property
    def has_unread(self) -> bool:
        """Whether a complete frame may wait because reading was paused."""
        return bool(self._unread) and self._unread.ready

    def close(self) -> None:
        """Read nothing more."""
        self._is_closed = True
        self._unread.clear()

    def _read(self, data: bytes, sink: FrameSink) -> int:
        at, size = 0, len(data)
        if not self._is_begun:
            if not PREFACE.startswith(data[: len(PREFACE)]):
                raise Http2Fault(ErrorCode.PROTOCOL_ERROR, "not the preface of HTTP/2")
            if size < len(PREFACE):
                return 0
            at = len(PREFACE)
            self._is_begun = True
            sink.begun()
        while size - at >= HEAD_SIZE and not self._pauses() and not self._is_closed:
            length = int.from_bytes(data[at : at + 3], "big")
            if length > FRAME_SIZE:
                raise Http2Fault(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {length} octets")
            end = at + HEAD_SIZE + length
            if end > size:
                break
            number = int.from_bytes(data[at + 5 : at + 9], "big") & MOST_WINDOW
            try:
                sink.frame(data[at + 3], data[at + 4], number, data[at + HEAD_SIZE : end])
            except Http2Fault as fault:
                if not fault.stream:
                    raise
                sink.reset(fault.stream, fault.code)
            at = end
        return at
