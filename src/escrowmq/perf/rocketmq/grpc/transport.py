"""The client's side of one HTTP/2 connection, as gRPC uses it: calls out, messages in."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from escrowmq.perf.errors import PerfError
from escrowmq.perf.rocketmq.properties import DIGITS, FIRST_NUMBER, id_prefix, numbered
from escrowmq.wire.http2 import frames
from escrowmq.wire.http2.frames import FRAME_SIZE, HEAD_SIZE, PREFACE, WINDOW, Flag, FrameType, Setting

SERVICE: Final = "/apache.rocketmq.v2.MessagingService/"
MARKER: Final = b"%d" % FIRST_NUMBER
"""The digits in a call that are replaced by its number."""
_WIDE: Final = 1 << 28
_STREAM: Final = struct.Struct(">I")
_LENGTH: Final = struct.Struct(">BI")
_REQUEST_ID: Final = 36


class CallMessage(NamedTuple):
    """A message of a stream, or its end (`message` None)."""

    stream: int
    message: bytes | None


class CallTemplate:
    """An encoded call with one request. Its streams and its numbers are written when it is sent."""

    __slots__ = ("_numbers", "_streams", "_unit", "body_at", "size")

    def __init__(self, block: bytes, request: bytes, *, ends: bool = True, fixed: bool = True) -> None:
        """`block` are the headers. `ends`: the call takes no further requests. `fixed`: the request has no number."""
        data = _LENGTH.pack(0, len(request)) + request
        parts = [frames.frame(FrameType.HEADERS, Flag.END_HEADERS, 0, block)]
        pieces = [data[at : at + FRAME_SIZE] for at in range(0, len(data), FRAME_SIZE)]
        for piece in pieces:
            last = ends and piece is pieces[-1]
            parts.append(frames.frame(FrameType.DATA, Flag.END_STREAM if last else 0, 0, piece))
        self._unit = bytearray(b"".join(parts))
        self._streams: list[int] = []
        at = 0
        for part in parts:
            self._streams.append(at + 5)
            at += len(part)
        self._numbers: list[int] = []
        at = self._unit.find(MARKER, 0, len(parts[0]) if fixed else len(self._unit))
        while at >= 0:
            self._numbers.append(at)
            at = self._unit.find(MARKER, at + 1, len(parts[0]) if fixed else len(self._unit))
        self.size = len(data)
        """Octets of DATA, which the flow-control window of the connection must permit."""
        self.body_at = 0
        """Where the body of the message begins; 0 if it is not known."""

    def locate(self, body: bytes) -> None:
        """Find the body, for its time."""
        self.body_at = self._unit.find(body)

    def call(self, stream: int, number: int, stamp: bytes = b"") -> bytes:
        """Return the call for a stream. `stamp` replaces the beginning of the body."""
        unit, octets, digits = self._unit, _STREAM.pack(stream), b"%d" % (FIRST_NUMBER + number)
        for at in self._streams:
            unit[at : at + 4] = octets
        for at in self._numbers:
            unit[at : at + DIGITS] = digits
        if stamp and self.body_at > 0:
            unit[self.body_at : self.body_at + len(stamp)] = stamp
        return bytes(unit)


class GrpcTransport:
    """The state of one connection. `control` are frames that answer those of the server."""

    def __init__(self, authority: str, client_id: str, request_id: str = "") -> None:
        """All calls have the same `request_id`, by default a random one."""
        self._fields = {
            ":method": "POST",
            ":scheme": "http",
            ":authority": authority,
            "content-type": "application/grpc",
            "te": "trailers",
            "user-agent": "escrowmq-perf",
            "x-mq-client-id": client_id,
            "x-mq-language": "JAVA",
            "x-mq-client-version": "5.2.0",
            "x-mq-protocol": "v2",
        }
        self._request_id = request_id or numbered(id_prefix(_REQUEST_ID).lower(), FIRST_NUMBER)
        self._table: list[tuple[str, str]] = []
        self._blocks: dict[str, bytes] = {}  # by method; they stay the same, since the table does
        self._messages: dict[int, bytearray] = {}
        self._received = 0
        self._stream = -1
        self.window = WINDOW
        """Octets of DATA that the server still takes."""
        self.control = [
            PREFACE
            + frames.settings({Setting.ENABLE_PUSH: 0, Setting.INITIAL_WINDOW_SIZE: _WIDE})
            + frames.window_update(0, _WIDE - WINDOW)
        ]

    def next_stream(self) -> int:
        """Return the number of the next call's stream."""
        self._stream += 2
        return self._stream

    def block(self, method: str) -> bytes:
        """Return the headers of a call. Those that all calls share are kept in the table of HPACK, as clients do.

        The headers of the first call therefore differ from those of the next ones.
        """
        known = self._blocks.get(method)
        if known is not None:
            return known
        is_first = not self._table
        own = {"x-mq-date-time": "20260101T000000Z", "x-mq-request-id": self._request_id, "grpc-timeout": "60S"}
        parts = [b"\x04" + _text(SERVICE + method)]
        parts += [self._field(name, value) for name, value in self._fields.items()]
        parts += [b"\x00" + _text(name) + _text(value) for name, value in own.items()]
        block = b"".join(parts)
        if not is_first:
            self._blocks[method] = block
        return block

    def _field(self, name: str, value: str) -> bytes:
        pair = name, value
        if pair in self._table:
            return _integer(0x80, 7, 62 + len(self._table) - 1 - self._table.index(pair))
        self._table.append(pair)
        return b"\x40" + _text(name) + _text(value)

    def receive(self, data: bytearray, end: int) -> tuple[int, list[CallMessage]]:
        """Take the complete frames in the first `end` bytes. Return how many bytes that are, and the messages."""
        at = 0
        found: list[CallMessage] = []
        while end - at >= HEAD_SIZE:
            length = int.from_bytes(data[at : at + 3], "big")
            after = at + HEAD_SIZE + length
            if after > end:
                break
            kind, flags = data[at + 3], data[at + 4]
            stream = int.from_bytes(data[at + 5 : at + 9], "big")
            if kind == FrameType.DATA:
                self._on_data(stream, data[at + HEAD_SIZE : after], found)
            elif kind != FrameType.HEADERS:
                self._on_control(kind, flags, stream, bytes(data[at + HEAD_SIZE : after]))
            if flags & Flag.END_STREAM and kind in (FrameType.DATA, FrameType.HEADERS):
                self._messages.pop(stream, None)
                found.append(CallMessage(stream, None))
            at = after
        return at, found

    def _on_data(self, stream: int, payload: bytearray, found: list[CallMessage]) -> None:
        self._received += len(payload)
        if self._received > _WIDE // 2:
            self.control.append(frames.window_update(0, self._received))
            self._received = 0
        rest = self._messages.pop(stream, None)
        if rest is not None:
            payload = rest + payload
        while len(payload) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(payload)[1]
            if len(payload) < end:
                break
            found.append(CallMessage(stream, bytes(payload[_LENGTH.size : end])))
            payload = payload[end:]
        if payload:
            self._messages[stream] = payload

    def _on_control(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        match kind:
            case FrameType.SETTINGS if not flags & Flag.ACK:
                self.control.append(frames.frame(FrameType.SETTINGS, Flag.ACK, 0, b""))
            case FrameType.PING if not flags & Flag.ACK:
                self.control.append(frames.frame(FrameType.PING, Flag.ACK, 0, payload))
            case FrameType.WINDOW_UPDATE if not stream:
                self.window += int.from_bytes(payload, "big")
            case FrameType.GOAWAY:
                raise PerfError(f"the server closed the connection: {payload[8:].decode('utf-8', 'replace')}")
            case FrameType.RST_STREAM:
                raise PerfError(f"the server reset a call with error {int.from_bytes(payload, 'big')}")


def _integer(first: int, bits: int, value: int) -> bytes:
    most = (1 << bits) - 1
    if value < most:
        return bytes((first | value,))
    octets, value = [first | most], value - most
    while value >= 128:
        octets.append(value & 127 | 128)
        value >>= 7
    return bytes((*octets, value))


def _text(text: str) -> bytes:
    data = text.encode()
    return _integer(0, 7, len(data)) + data
