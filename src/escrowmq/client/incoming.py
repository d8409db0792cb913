"""Parses frames and messages from bytes. This is the client's hot path for consuming."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, Protocol

from escrowmq.client.requests import Content
from escrowmq.wire.amqp091 import codes
from escrowmq.wire.amqp091.errors import SyntaxFault
from escrowmq.wire.amqp091.frames import FRAME_HEADER, decode_header, decode_method
from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.spec import BasicDeliver

_END: Final = codes.FRAME_END
_DELIVER: Final = b"\x00\x3c\x00\x3c"
_HEADER_FRAME: Final = struct.Struct(">BHIIQ")  # frame header, class and weight, body size
_HEADER_FRAME_SIZE: Final = _HEADER_FRAME.size
_BASIC: Final = 60 << 16
_QUAD: Final = struct.Struct(">Q")
_LONG: Final = struct.Struct(">I")


class Run:
    """Consecutive deliveries that differ only in delivery tag and body."""

    __slots__ = ("bodies", "deliver", "props", "tags")

    def __init__(self, deliver: BasicDeliver, props: bytes) -> None:
        self.deliver = deliver
        """The method of the first delivery."""
        self.props = props
        self.tags: list[int] = []
        self.bodies: list[bytes] = []


class Sink(Protocol):
    """Receives the methods and deliveries of a channel."""

    def on_method(self, method: Method, content: Content | None) -> None:
        """Handle a method with its complete content, if it has any."""

    def on_deliveries(self, run: Run) -> None:
        """Handle deliveries."""


class _Form:
    """The frames of a delivery without the parts that vary: tag, sizes and body."""

    __slots__ = ("before", "behind", "deliver", "head", "props", "sink")

    def __init__(
        self, sink: Sink, deliver: BasicDeliver, props: bytes, head: bytes, before: bytes, behind: bytes
    ) -> None:
        self.sink = sink
        self.deliver = deliver
        self.props = props
        self.head = head  # frame header, class and method ids, consumer tag
        self.before = before  # from the end of the delivery tag to the body size
        self.behind = behind  # from the end of the body size to the size of the body frame


class _Partial:
    """A method whose content is arriving frame by frame."""

    __slots__ = ("expected", "method", "parts", "props", "received")

    def __init__(self, method: Method) -> None:
        self.method = method
        self.props = b""
        self.expected = -1
        self.received = 0
        self.parts: list[bytes] = []


class Incoming:
    """Parses the bytes of a connection. `sink_of` returns the sink of a channel, or None if the channel is not open.

    Raises SyntaxFault for bytes that are not AMQP 0-9-1; nothing can be read after that.
    """

    __slots__ = ("_form", "_partial", "_rest", "_sink_of", "frame_max")

    def __init__(self, sink_of: Callable[[int], Sink | None]) -> None:
        self.frame_max = 0
        """The largest frame size that was agreed on, in bytes; 0 means no limit."""
        self._sink_of = sink_of
        self._rest = b""
        self._form: _Form | None = None
        self._partial: dict[int, _Partial] = {}

    def feed(self, data: bytes) -> None:
        """Parse all complete frames. The rest is kept until more bytes arrive."""
        buf = self._rest + data if self._rest else data
        at = self._read(buf)
        self._rest = buf[at:] if at else buf

    def forget(self, sink: Sink, number: int) -> None:
        """Drop the state of a channel that is closed."""
        self._partial.pop(number, None)
        if self._form is not None and self._form.sink is sink:
            self._form = None

    def _read(self, buf: bytes) -> int:
        at, end = 0, len(buf)
        startswith, unpack = buf.startswith, FRAME_HEADER.unpack_from
        most = self.frame_max - 8 if self.frame_max else 1 << 62
        while end - at >= 8:
            form = self._form
            if form is not None and startswith(form.head, at):
                behind = self._read_run(form, buf, at, end)
                if behind != at:
                    at = behind
                    continue
            kind, number, size = unpack(buf, at)
            if size > most:
                raise SyntaxFault(
                    codes.FRAME_ERROR, f"frame of {size + 8} bytes exceeds the agreed maximum of {self.frame_max}"
                )
            stop = at + 7 + size
            if stop >= end:
                break
            if buf[stop] != _END:
                raise SyntaxFault(codes.FRAME_ERROR, f"frame ends with 0x{buf[stop]:02x} instead of 0xce")
            if kind == codes.FRAME_METHOD and startswith(_DELIVER, at + 7):
                behind = self._read_delivery(number, buf, at, stop, end)
                if behind:
                    at = behind
                    continue
            self._frame(kind, number, buf[at + 7 : stop])
            at = stop + 1
        return at

    def _read_run(self, form: _Form, buf: bytes, at: int, end: int) -> int:
        """Parse complete deliveries of one form. Returns the offset of the first byte that is not part of one."""
        head, before, behind = form.head, form.before, form.behind
        before_at = len(head) + 8
        size_at = before_at + len(before)
        behind_at = size_at + 8
        frame_at = behind_at + len(behind)
        body_at = frame_at + 4
        head_size = len(head)
        startswith, quad, long = buf.startswith, _QUAD.unpack_from, _LONG.unpack_from
        run = Run(form.deliver, form.props)
        add_tag, add_body = run.tags.append, run.bodies.append
        while (
            end - at > body_at
            and startswith(head, at)
            and startswith(before, at + before_at)
            and startswith(behind, at + behind_at)
        ):
            (size,) = quad(buf, at + size_at)
            stop = at + body_at + size
            if not size or stop >= end or long(buf, at + frame_at)[0] != size or buf[stop] != _END:
                break
            same, step = buf[at + before_at : at + body_at], body_at + size
            while True:
                add_tag(quad(buf, at + head_size)[0])
                add_body(buf[at + body_at : stop])
                at = stop + 1
                stop = at + step
                if (  # the next delivery has the same body size, so comparing slices is enough
                    stop >= end or buf[stop] != _END or not startswith(head, at) or not startswith(same, at + before_at)
                ):
                    break
        if run.tags:
            form.sink.on_deliveries(run)
        return at

    def _read_delivery(self, number: int, buf: bytes, at: int, stop: int, end: int) -> int:
        """Parse a delivery whose header and body take one frame each.

        Returns the offset of the next frame, or 0 if this is not such a delivery.
        """
        header = stop + 1
        if end - header < _HEADER_FRAME_SIZE + 8:
            return 0
        kind, same, size, basic, body_size = _HEADER_FRAME.unpack_from(buf, header)
        body = header + 8 + size
        behind = body + 7 + body_size
        sink = self._sink_of(number)
        if not (
            kind == codes.FRAME_HEADER
            and same == number
            and basic == _BASIC
            and size >= 14
            and body_size
            and behind < end
            and buf[body - 1] == _END == buf[behind]
            and FRAME_HEADER.unpack_from(buf, body) == (codes.FRAME_BODY, number, body_size)
            and sink is not None
            and number not in self._partial
        ):
            return 0
        deliver = BasicDeliver.decode(buf[at + 7 : stop])
        props = buf[header + 19 : body - 1]
        tag_at = at + 12 + buf[at + 11]
        self._form = _Form(
            sink, deliver, props, buf[at:tag_at], buf[tag_at + 8 : header + 11], buf[header + 19 : body + 3]
        )
        run = Run(deliver, props)
        run.tags.append(deliver.delivery_tag)
        run.bodies.append(buf[body + 7 : behind])
        sink.on_deliveries(run)
        return int(behind) + 1

    def _frame(self, kind: int, number: int, payload: bytes) -> None:
        if kind == codes.FRAME_HEARTBEAT:
            if number or payload:
                raise SyntaxFault(codes.FRAME_ERROR, "heartbeat frame on a channel other than 0, or with a payload")
            return
        partial = self._partial.get(number)
        if kind == codes.FRAME_METHOD:
            if partial is not None:
                raise SyntaxFault(
                    codes.UNEXPECTED_FRAME, f"expected the content of {partial.method.NAME}, got a method"
                )
            method = decode_method(payload)
            if method.HAS_CONTENT:
                self._partial[number] = _Partial(method)
            else:
                self._deliver(number, method, None)
        elif kind not in (codes.FRAME_HEADER, codes.FRAME_BODY):
            raise SyntaxFault(codes.FRAME_ERROR, f"unknown frame type {kind}")
        elif partial is None:
            raise SyntaxFault(codes.UNEXPECTED_FRAME, "content frame without a preceding method that has content")
        else:
            self._content(number, partial, kind, payload)

    def _content(self, number: int, partial: _Partial, kind: int, payload: bytes) -> None:
        if kind == codes.FRAME_HEADER:
            if partial.expected >= 0:
                raise SyntaxFault(codes.UNEXPECTED_FRAME, "expected a content body frame, got a second content header")
            partial.expected, partial.props = _content_header(partial.method, payload)
        else:
            partial.received += len(payload)
            if partial.received > partial.expected:
                raise SyntaxFault(codes.UNEXPECTED_FRAME, "body is longer than announced, or has no content header")
            partial.parts.append(payload)
        if partial.received == partial.expected:
            del self._partial[number]
            body = partial.parts[0] if len(partial.parts) == 1 else b"".join(partial.parts)
            self._deliver(number, partial.method, Content(partial.props, body))

    def _deliver(self, number: int, method: Method, content: Content | None) -> None:
        sink = self._sink_of(number)
        if sink is None:
            return  # sent before the broker knew that the channel is closed
        if isinstance(method, BasicDeliver) and content is not None:
            run = Run(method, content.props)
            run.tags.append(method.delivery_tag)
            run.bodies.append(content.body)
            sink.on_deliveries(run)
        else:
            sink.on_method(method, content)


def _content_header(method: Method, payload: bytes) -> tuple[int, bytes]:
    """Return body size and properties. Content of a class other than basic has a header with its own class id."""
    if len(payload) >= 14 and method.CLASS_ID != 60 and payload[:4] == struct.pack(">HH", method.CLASS_ID, 0):
        return _QUAD.unpack_from(payload, 4)[0], payload[12:]
    return decode_header(payload)
