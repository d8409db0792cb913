"""The segments of transfers to consumers. Everything but times, message properties and body is built once for a run."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from escrowmq.wire.amqp010.codec.commands import encode_command
from escrowmq.wire.amqp010.codec.errors import CodecError
from escrowmq.wire.amqp010.codec.frames import BODY, COMMAND, FRAME_HEAD, HEAD_SIZE, HEADER, assembly
from escrowmq.wire.amqp010.codec.spec import AcceptMode, AcquireMode, DeliveryProperties, MessageTransfer
from escrowmq.wire.amqp010.content import DEFAULT_PRIORITY, EXPIRATION, PROTOCOL, REDELIVERED, TIMESTAMP, extents
from escrowmq.wire.amqp010.headers import with_history
from escrowmq.wire.amqp010.translation import read_properties
from escrowmq.wire.formats import translated
from escrowmq.wire.outbox import LARGE, Piece

if TYPE_CHECKING:
    from escrowmq.core.messages.entry import Entry, Run
    from escrowmq.core.messages.envelope import Envelope

_LONGEST: Final = 255
_CODE: Final = DeliveryProperties.CODE
_HEAD: Final = struct.Struct(">IHH")  # size and code of the struct, and its flags
_TIME: Final = struct.Struct(">Q")
_SIZE: Final = struct.Struct(">I")
# Flags of the struct: the bits of the first octet are the first fields.
_REDELIVERED: Final = 0x0400
_PRIORITY: Final = 0x0800
_FIXED: Final = 0x1000 | 0x0001 | 0x0002  # mode, exchange, routing key
_TTL: Final = 0x2000
_TIMESTAMP: Final = 0x4000
_EXPIRATION: Final = 0x8000
_PERSISTENT: Final = 2
_TRANSIENT: Final = 1
_TEMPLATES: Final = 64
_BODIES: Final = 256  # sizes of bodies whose heads are remembered

Template = tuple[bytes, bytes]
"""The octets of the delivery properties before and behind the times that are in the content."""


class TransferView:
    """An envelope in the form in which AMQP 0-10 delivers it. It is kept with the envelope."""

    __slots__ = ("_tail", "_templates")

    def __init__(self, envelope: Envelope) -> None:
        self._templates: dict[tuple[int, bool, int], Template] = {}
        self._tail = _str8(envelope.exchange) + _str8(envelope.routing_key)

    def template(self, envelope: Envelope, flags: int, redelivered: bool, time: int) -> Template:
        """Return the delivery properties around the times of contents that begin with `flags`, for messages that
        arrived at `time`. The broker sets the expiration of messages with a time to live (section message).
        """
        own = envelope.ttl is not None and not flags & EXPIRATION
        key = (flags, redelivered, time if own else 0)
        found = self._templates.get(key)
        if found is None:
            if len(self._templates) >= _TEMPLATES:
                self._templates.clear()
            found = self._templates[key] = self._make(envelope, flags, redelivered, time if own else None)
        return found

    def _make(self, envelope: Envelope, flags: int, redelivered: bool, time: int | None) -> Template:
        present, ttl, tail = _FIXED, b"", self._tail
        modes = bytes((_PERSISTENT if envelope.durable else _TRANSIENT,))
        if envelope.priority != DEFAULT_PRIORITY:  # qpid-python shows a priority that the publisher has not set
            present |= _PRIORITY
            modes = bytes((envelope.priority & 0xFF,)) + modes
        if redelivered or flags & REDELIVERED:
            present |= _REDELIVERED
        if envelope.ttl is not None:
            present |= _TTL
            ttl = _TIME.pack(envelope.ttl)
        if flags & TIMESTAMP:
            present |= _TIMESTAMP
        if flags & EXPIRATION:
            present |= _EXPIRATION
        elif time is not None and envelope.ttl is not None:
            present |= _EXPIRATION
            tail = _TIME.pack((time + envelope.ttl) // 1000) + tail
        times = 8 * bool(flags & TIMESTAMP) + 8 * bool(flags & EXPIRATION)
        size = _HEAD.size - 4 + len(modes) + len(ttl) + times + len(tail)
        return _HEAD.pack(size, _CODE, present) + modes + ttl, tail


def _str8(text: str) -> bytes:
    octets = text.encode("utf-8", "replace")
    if len(octets) > _LONGEST:  # versions that did not check tags of RocketMQ have stored longer ones
        octets = b""
    return bytes((len(octets),)) + octets


def view_of(envelope: Envelope) -> TransferView:
    """Return the view of an envelope of this protocol, which is kept with it."""
    view = envelope.view
    if view.__class__ is not TransferView:
        view = envelope.view = TransferView(envelope)
    assert isinstance(view, TransferView)
    return view


class OutgoingTransfers:
    """Builds the frames of transfers to one subscription. `frame_max` is that of the connection."""

    __slots__ = ("_bodies", "_channel", "_command", "_frame", "_frame_max", "_most")

    def __init__(self, destination: str, channel: int, frame_max: int, *, explicit: bool, acquired: bool) -> None:
        """The client accepts each transfer if that is `explicit`. It has to acquire those that are not `acquired`."""
        self._channel = channel
        self._frame_max = frame_max
        self._most = min(frame_max - HEAD_SIZE, LARGE - 1)  # octets of a segment that is in one frame, and copied
        self._command = encode_command(
            MessageTransfer(
                destination,
                AcceptMode.EXPLICIT if explicit else AcceptMode.NONE,
                AcquireMode.PRE_ACQUIRED if acquired else AcquireMode.NOT_ACQUIRED,
            )
        )
        self._bodies: dict[int, bytes] = {}  # heads of the frames of bodies, by size
        self._frame = FRAME_HEAD.pack(11, COMMAND, len(self._command) + HEAD_SIZE, 1, channel) + self._command

    def build(self, entries: list[Entry]) -> list[Piece]:
        """Return the frames of `entries`: one piece, or several if there are large bodies."""
        pieces: list[Piece] = []
        parts: list[bytes] = []
        most, unpack, bodies = self._most, _SIZE.unpack_from, self._bodies
        run: Run | None = None
        flags, redelivered, start, fixed = -1, False, 0, 0
        before = behind = b""
        heads: dict[int, bytes] = {}  # everything before the times, by the size of the message properties
        for entry in entries:
            content = entry.content
            if entry.run is not run or (entry.deliveries > 0) is not redelivered or content[0] != flags:
                run, redelivered, flags = entry.run, entry.deliveries > 0, -1
                envelope = run.envelope
                if envelope.protocol == PROTOCOL and not envelope.deaths:
                    flags, start = content[0], extents(content)[0]
                    before, behind = view_of(envelope).template(envelope, flags, redelivered, run.time)
                    fixed = len(before) + start - 1 + len(behind)
                    heads = {}
            if flags >= 0:
                size = unpack(content, start)[0]
                at = start + 4 + size
                body = len(content) - at
                if fixed + 4 + size <= most and body <= most:
                    parts += (
                        heads.get(size) or self._head(heads, size, fixed, before),
                        content[1:start],
                        behind,
                        content[start:at] if size else b"",
                        bodies.get(body) or self._body(body),
                        content[at:],
                    )
                    continue
            if parts:
                pieces.append(b"".join(parts))
                parts = []
            pieces += self._single(entry)
        if parts:
            pieces.append(b"".join(parts))
        return pieces

    def _head(self, heads: dict[int, bytes], size: int, fixed: int, before: bytes) -> bytes:
        """Return the command's frame and the header's up to the times, and remember them in `heads`."""
        own = fixed + 4 + size if size else fixed
        head = FRAME_HEAD.pack(3, HEADER, own + HEAD_SIZE, 1, self._channel)
        found = heads[size] = b"".join((self._frame, head, before))
        return found

    def _body(self, size: int) -> bytes:
        """Return the head of a body's frame, and remember it."""
        if len(self._bodies) >= _BODIES:
            self._bodies.clear()
        found = self._bodies[size] = FRAME_HEAD.pack(7, BODY, size + HEAD_SIZE, 1, self._channel)
        return found

    def _single(self, entry: Entry) -> list[Piece]:
        """Return the frames of a delivery that is large, a dead letter, or of another protocol."""
        header, body = segments_of(entry)
        pieces = assembly(self._channel, [(COMMAND, self._command), (HEADER, header), (BODY, body)], self._frame_max)
        return pieces if len(body) >= LARGE else [b"".join(pieces)]


def segments_of(entry: Entry) -> tuple[bytes, Piece]:
    """Return the payloads of the header segment and of the body segment of a delivery."""
    run, content = entry.run, entry.content
    envelope = run.envelope
    if envelope.protocol != PROTOCOL:
        envelope, content = translated(envelope, content, PROTOCOL)
    if envelope.deaths:
        content = _dead(envelope, content)
    start, at = extents(content)
    before, behind = view_of(envelope).template(envelope, content[0], entry.deliveries > 0, run.time)
    properties = content[start:at] if at - start > 4 else b""
    body: Piece = memoryview(content)[at:] if len(content) - at >= LARGE else content[at:]
    return b"".join((before, content[1:start], behind, properties)), body


def _dead(envelope: Envelope, content: bytes) -> bytes:
    """Return the content of a dead letter with its history, and without an expiration that counts no more."""
    start, at = extents(content)
    flags, times = content[0], content[1:start]
    if flags & EXPIRATION:
        flags, times = flags & ~EXPIRATION, times[:-8]
    encoded = content[start:at]
    try:
        properties = read_properties(encoded if len(encoded) > 4 else b"")
        properties.application_headers = with_history(envelope, properties.application_headers or {})
        encoded = properties.write()
    except CodecError:
        pass  # it was stored by no endpoint, so it is delivered as it is
    return bytes((flags,)) + times + encoded + content[at:]


def size_of(entry: Entry) -> int:
    """Return the octets of header and body of a delivery, which byte credit counts."""
    header, body = segments_of(entry)
    return len(header) + len(body)
