"""Parses AMQP 0-9-1 bytes into messages, for clients, transcripts and the simulator's oracle."""

from __future__ import annotations

from dataclasses import dataclass

from escrowmq.wire.amqp091 import codes, frames
from escrowmq.wire.amqp091.method import Method


@dataclass(slots=True)
class Message:
    """One method. If it has content: its properties (in wire format) and body."""

    channel: int
    method: Method
    header: bytes = b""
    body: bytes = b""


class FrameReader:
    """Collects bytes of one direction into whole messages. `heartbeats` counts heartbeat frames."""

    def __init__(self, *, from_client: bool = False) -> None:
        self._expects_protocol_header = from_client
        self._rest = b""
        self._open: dict[int, tuple[Message, int]] = {}
        self.heartbeats = 0
        self.protocol_header: bytes | None = None

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that are now complete. Raises SyntaxFault for bytes that are not AMQP 0-9-1."""
        data = self._rest + data
        at = 0
        if self._expects_protocol_header:
            if len(data) < 8:
                self._rest = data
                return []
            self._expects_protocol_header = False
            at = 8
        elif self.protocol_header is None and data.startswith(b"AMQP") and len(data) >= 8:
            self.protocol_header = data[:8]  # a server of another version answers with its header
            at = 8
        found: list[Message] = []
        while (frame := frames.next_frame(data, at, 0)) is not None:
            kind, channel, payload, at = frame
            message = self._take(kind, channel, payload)
            if message is not None:
                found.append(message)
        self._rest = data[at:]
        return found

    def _take(self, kind: int, channel: int, payload: bytes) -> Message | None:
        if kind == codes.FRAME_HEARTBEAT:
            self.heartbeats += 1
            return None
        if kind == codes.FRAME_METHOD:
            message = Message(channel, frames.decode_method(payload))
            if not message.method.HAS_CONTENT:
                return message
            self._open[channel] = (message, -1)
            return None
        message, size = self._open[channel]
        if kind == codes.FRAME_HEADER:
            size, message.header = frames.decode_header(payload)
        else:
            message.body += payload
        self._open[channel] = (message, size)
        return self._open.pop(channel)[0] if len(message.body) == size else None


def publish_frames(channel: int, method: Method, header: bytes, body: bytes, frame_max: int = 0) -> bytes:
    """Return a method with its content."""
    return frames.method_frame(channel, method) + frames.content_frames(channel, header, body, frame_max)
