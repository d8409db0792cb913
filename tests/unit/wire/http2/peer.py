"""A server of HTTP/2 under test, and the library h2 as its client, without a socket between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import h2.config
import h2.connection
import h2.events

from escrowmq.wire.http2.connection import Http2Connection
from escrowmq.wire.http2.frames import HEAD_SIZE, PREFACE, ErrorCode, FrameType, frame, settings
from escrowmq.wire.http2.headers import STATUS_200, Headers, encode
from escrowmq.wire.http2.limits import Http2Limits
from escrowmq.wire.http2.stream import Stream
from escrowmq.wire.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Sequence

REQUEST = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/a/B"),
    (b":authority", b"x"),
    (b"te", b"trailers"),
]
OPENING = PREFACE + settings({})
TRAILERS = encode([(b"grpc-status", b"0")])


class Log:
    """A log that is synced as far as the test says."""

    synced_lsn = 0


class Echo:
    """Keeps the requests, and answers each with its own body, unless it `waits`."""

    def __init__(self) -> None:
        self.bodies: dict[int, bytes] = {}
        self.headers: dict[int, Headers] = {}
        self.complete: list[Stream] = []
        self.gone: list[int] = []
        self.waits = False
        self.after = 0
        self.connection: Http2Connection

    def opened(self, stream: Stream, headers: Headers) -> None:
        self.headers[stream.number] = headers
        self.bodies[stream.number] = b""

    def data(self, stream: Stream, data: bytes) -> None:
        self.bodies[stream.number] += data

    def ended(self, stream: Stream) -> None:
        self.complete.append(stream)
        if not self.waits:
            self.connection.respond(stream, STATUS_200, self.bodies[stream.number], TRAILERS, self.after)

    def cancelled(self, stream: Stream) -> None:
        self.gone.append(stream.number)


class Server:
    """The connection under test, with an echo behind it."""

    def __init__(self, **limits: int) -> None:
        self.log = Log()
        self.outbox = Outbox(self.log)
        self.echo = Echo()
        self.paused = False
        self.connection = Http2Connection(self.echo, self.outbox.put, Http2Limits(**limits), lambda: self.paused)
        self.echo.connection = self.connection

    def take(self) -> bytes:
        return b"".join(bytes(piece) for piece in self.outbox.take())

    def feed(self, *data: bytes) -> bytes:
        for each in data:
            self.connection.receive(each)
        return self.take()

    @property
    def code(self) -> ErrorCode | None:
        """The error that has ended the connection."""
        fault = self.connection.fault
        return fault.code if fault is not None else None


class Pair:
    """A client made of h2 and a server under test."""

    def __init__(self, **limits: int) -> None:
        self.server = Server(**limits)
        self.client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding=False))
        self.client.initiate_connection()
        self.events: list[h2.events.Event] = []
        self.exchange()

    def exchange(self) -> None:
        """Pass bytes both ways until none are left."""
        while True:
            up, down = self.client.data_to_send(), self.server.take()
            if not up and not down:
                return
            if up:
                self.server.connection.receive(up)
            if down:
                self.events += self.client.receive_data(down)

    def request(self, body: bytes = b"", headers: Sequence[tuple[bytes, bytes]] = REQUEST) -> int:
        number = self.client.get_next_available_stream_id()
        self.client.send_headers(number, list(headers), end_stream=not body)
        self.exchange()
        at = 0
        while at < len(body):
            size = min(len(body) - at, 16_384, self.client.local_flow_control_window(number))
            self.client.send_data(number, body[at : at + size], end_stream=at + size == len(body))
            at += size
            self.exchange()
        return number

    def body(self, number: int) -> bytes:
        """Return the body of a response, and grant its octets back."""
        return b"".join(
            event.data
            for event in self.events
            if isinstance(event, h2.events.DataReceived) and event.stream_id == number
        )

    def has_ended(self, number: int) -> bool:
        return any(isinstance(event, h2.events.StreamEnded) and event.stream_id == number for event in self.events)


def cut(data: bytes) -> list[tuple[int, int, int, bytes]]:
    """Return the frames in `data`: type, flags, stream, payload."""
    found, at = [], 0
    while at < len(data):
        end = at + HEAD_SIZE + int.from_bytes(data[at : at + 3], "big")
        found.append(
            (data[at + 3], data[at + 4], int.from_bytes(data[at + 5 : at + 9], "big"), data[at + HEAD_SIZE : end])
        )
        at = end
    return found


def headers(number: int, flags: int = 0x5) -> bytes:
    """Return the frame that opens a request; by default it is complete."""
    return frame(FrameType.HEADERS, flags, number, encode(REQUEST))
