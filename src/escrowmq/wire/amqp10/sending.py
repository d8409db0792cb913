"""Transfer frames of deliveries. Everything but the size, the number, the tag and the content is built once."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from escrowmq.core.termini.tags import TAG, delivery_tag
from escrowmq.wire.amqp10.additions import additions_to
from escrowmq.wire.amqp10.answers import MASK
from escrowmq.wire.amqp10.codec.encoding import encode
from escrowmq.wire.amqp10.codec.frames import frame_header
from escrowmq.wire.amqp10.codec.performatives import Transfer, encode_performative
from escrowmq.wire.amqp10.codec.sections import Header, encode_header
from escrowmq.wire.amqp10.codec.types import UInt
from escrowmq.wire.amqp10.delivery import sections_of
from escrowmq.wire.amqp10.publication import PROTOCOL
from escrowmq.wire.outbox import LARGE, Piece

if TYPE_CHECKING:
    from escrowmq.core.engine import Engine
    from escrowmq.core.messages.entry import Entry, Run
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.queues.queue import Queue
    from escrowmq.wire.amqp10.codec.states import DeliveryState

_TRANSFER: Final = b"\x00\x53\x14\xc0"
_ANY_TTL: Final = 0x7E7D7C7B  # stands for a TTL where a header is encoded in advance
_UINT, _ZERO = b"\x70", b"\x43"
_TRUE, _FALSE = b"\x41", b"\x42"
_SIZE: Final = struct.Struct(">I")
_TAG_HEAD: Final = b"\xa0\x10"  # the code and the length of a tag
_MOST: Final = 256  # templates that are kept
_SHORT: Final = 8  # entries of a run that is built entry by entry, together with others
_deliveries = attrgetter("deliveries")

Template = Callable[[int, bytes, int, bytes, int, int, int, bytes], bytes]


class TransferFrames:
    """Builds the transfers of one consuming link. `frame_max` is the client's limit for a frame."""

    __slots__ = (
        "_additions",
        "_channel",
        "_engine",
        "_frame_max",
        "_handle",
        "_prefix",
        "_queue",
        "_settled",
        "_templates",
    )

    def __init__(
        self,
        engine: Engine,
        queue: Queue,
        channel: int,
        handle: int,
        frame_max: int,
        *,
        settled: bool,
        origin: bool = False,
    ) -> None:
        """With `origin`, messages carry exchange and routing key."""
        self._additions = additions_to(queue, origin=origin)
        self._engine = engine
        self._queue = queue
        self._channel = channel
        self._handle = handle
        self._frame_max = frame_max
        self._settled = settled
        number = encode(UInt(handle))
        # Offset of the body, type and channel; then five fields: handle, number, tag, format and settled.
        fields = len(number) + 5 + 2 + TAG.size + 1 + 1
        self._prefix = b"\x02\x00" + channel.to_bytes(2, "big") + _TRANSFER + bytes((fields + 1, 5)) + number + _UINT
        self._templates: dict[tuple[bool, int, int, bool], tuple[Template, bytes, int, int]] = {}

    def build(
        self, number: int, entries: list[Entry], link_number: int, state: DeliveryState | None = None
    ) -> tuple[list[Piece], int]:
        """Return the frames of `entries`, and how many frames there are. The deliveries' numbers in the session begin
        with `number`, those at their terminus with `link_number`. `state` is the state of all, if they have one.
        """
        if state is not None or self._additions is not None:
            return self._build_each(number, entries, link_number, state)
        pieces: list[Piece] = []
        frames = 0
        for at, end in _stretches(entries):
            some = entries if end - at == len(entries) else entries[at:end]
            alike = self._alike(number + at, some, link_number + at)
            more, count = ([alike], len(some)) if alike else self._build_each(number + at, some, link_number + at)
            pieces += more
            frames += count
        return pieces, frames

    def _build_each(
        self, number: int, entries: list[Entry], link_number: int, state: DeliveryState | None = None
    ) -> tuple[list[Piece], int]:
        """Do `build` entry by entry."""
        additions = self._additions
        pieces: list[Piece] = []
        parts: list[bytes] = []
        prefix, frame_max, marks = self._prefix, self._frame_max, self._queue.marks
        tag_head, queue, ahead = _TAG_HEAD, self._queue.ident, link_number - number
        template: Template | None = None
        run: Run | None = None
        deliveries = -1
        tail = b""
        fixed = frames = 0
        for entry in entries:
            content = entry.content
            if entry.run is not run or entry.deliveries != deliveries:
                run, deliveries = entry.run, entry.deliveries
                envelope = run.envelope
                template = None
                if envelope.protocol == PROTOCOL and not envelope.deaths:
                    template, tail, fixed = self._template(run, deliveries)
            if additions is not None and template is not None:
                content = additions.content_of(entry)
            size = fixed + len(content)
            if template is None or marks or state is not None or size > frame_max or size >= LARGE:
                if parts:
                    pieces.append(b"".join(parts))
                    parts = []
                frames += self._single(
                    number, entry, delivery_tag(queue, entry.position, number + ahead), pieces, state
                )
            else:
                parts.append(
                    template(
                        size, prefix, number & MASK, tag_head, queue, entry.position, (number + ahead) & MASK, tail
                    )
                )
                parts.append(content)
                frames += 1
            number += 1
        if parts:
            pieces.append(b"".join(parts))
        return pieces, frames

    def _alike(self, number: int, entries: list[Entry], link_number: int) -> bytes:
        """Return the frames of consecutive entries of one run, in fewer steps; empty if that is impossible."""
        count, first, last = len(entries), entries[0], entries[-1]
        run, position = first.run, first.position
        envelope, queue = run.envelope, self._queue
        if (
            last.run is not run
            or last.position - position != count - 1
            or envelope.protocol != PROTOCOL
            or envelope.deaths
            or queue.marks
            or queue.options.max_priority
            or max(number, link_number) + count > MASK
            or any(map(_deliveries, entries))
        ):
            return b""
        template, tail, fixed = self._template(run, 0)
        contents = [entry.content for entry in entries]
        sizes = list(map(len, contents))
        if max(sizes) + fixed > min(self._frame_max, LARGE):
            return b""
        prefix, tag_head, ident = self._prefix, _TAG_HEAD, queue.ident
        parts = [b""] * (2 * count)
        parts[::2] = [
            template(fixed + size, prefix, number + i, tag_head, ident, position + i, link_number + i, tail)
            for i, size in enumerate(sizes)
        ]
        parts[1::2] = contents
        return b"".join(parts)

    def _template(self, run: Run, deliveries: int) -> tuple[Template, bytes, int]:
        """Return how the bytes before a content are packed, the last part of them, and their length. The time that the
        run has spent here is taken off its TTL (section 3.2.1).
        """
        envelope = run.envelope
        timed = envelope.ttl is not None
        key = (envelope.durable, envelope.priority, deliveries, timed)
        found = self._templates.get(key)
        if found is None:
            if len(self._templates) >= _MOST:
                self._templates.clear()
            header = header_of(envelope, deliveries, first=not deliveries, ttl=_ANY_TTL if timed else None)
            tail = _ZERO + (_TRUE if self._settled else _FALSE) + header
            layout = struct.Struct(f">I{len(self._prefix)}sI2sIQI{len(tail)}s")
            place = tail.index(_SIZE.pack(_ANY_TTL)) if timed else 0
            found = self._templates[key] = (layout.pack, tail, layout.size, place)
        pack, tail, size, place = found
        if envelope.ttl is not None:
            left = max(envelope.ttl - max(self._engine.now - run.time, 0), 0)
            tail = tail[:place] + _SIZE.pack(min(left, MASK)) + tail[place + _SIZE.size :]
        return pack, tail, size

    def _single(self, number: int, entry: Entry, tag: bytes, pieces: list[Piece], state: DeliveryState | None) -> int:
        """Append the frames of a delivery that is large, was annotated, has a state, or needs translation. Return their
        number.
        """
        transfer = Transfer(self._handle, number & MASK, tag, 0, self._settled, state=state)
        return divided(transfer, self._message(entry), self._channel, self._frame_max, pieces)

    def again(self, number: int, entry: Entry, tag: bytes, *, resume: bool) -> tuple[list[Piece], int]:
        """Return the frames of a delivery that is sent again, resumed or as a new one, and their number."""
        pieces: list[Piece] = []
        transfer = Transfer(self._handle, number & MASK, tag, 0, False, resume=resume)
        return pieces, divided(transfer, self._message(entry), self._channel, self._frame_max, pieces)

    def outcome(self, number: int, tag: bytes, state: DeliveryState) -> bytes:
        """Return the frame that resumes a delivery without its message, and settles it with the client's outcome."""
        transfer = Transfer(self._handle, number & MASK, tag, 0, True, state=state, resume=True)
        body = encode_performative(transfer)
        return frame_header(self._channel, len(body)) + body

    def _message(self, entry: Entry) -> bytes:
        """Return all sections of a message. The time that it has spent here is taken off its TTL (section 3.2.1)."""
        queue, envelope, additions = self._queue, entry.run.envelope, self._additions
        marks = queue.marks.get(entry.position) if queue.marks else None
        if envelope.protocol == PROTOCOL and not envelope.deaths and (marks is None or not marks.annotations):
            ttl = envelope.ttl
            if ttl is not None:
                ttl = max(ttl - max(self._engine.now - entry.run.time, 0), 0)
            content = entry.content if additions is None else additions.content_of(entry)
            return header_of(envelope, queue.failures(entry), first=not entry.deliveries, ttl=ttl) + content
        payload = sections_of(envelope, entry.content, entry.deliveries, marks)
        return payload if additions is None else additions.to_payload(payload, entry)


def _stretches(entries: list[Entry]) -> Iterator[tuple[int, int]]:
    """Yield the parts of `entries`, as first place and the place behind the last one. Each part is a run, or consists
    of short ones. Only a few entries of a run are looked at.
    """
    count = len(entries)
    if entries[0].run is entries[-1].run:
        yield 0, count
        return
    at = begin = 0
    while at + _SHORT <= count:
        run, end = entries[at].run, at + _SHORT
        if entries[end - 1].run is not run:
            at += 1
            continue
        step = count - end
        while step:
            if entries[end + step - 1].run is run:
                end += step
                step = min(step, count - end)
            else:
                step >>= 1
        if begin < at:
            yield begin, at
        yield at, end
        at = begin = end
    if begin < count:
        yield begin, count


def header_of(envelope: Envelope, failures: int, *, first: bool, ttl: int | None = None) -> bytes:
    """Return the header section of a message of this protocol."""
    return encode_header(
        Header(
            durable=envelope.durable,
            priority=envelope.priority,
            ttl=ttl,
            first_acquirer=first,
            delivery_count=failures,
        )
    )


def divided(transfer: Transfer, message: bytes, channel: int, frame_max: int, pieces: list[Piece]) -> int:
    """Append the frames of a delivery, of which `transfer` begins the first one, each as two pieces. Return their
    number.
    """
    at = frames = 0
    view = memoryview(message)
    while True:
        body = encode_performative(transfer)
        room = frame_max - 8 - len(body)
        if len(message) - at > room and not transfer.more:
            transfer.more = True
            continue
        if len(message) - at <= room and transfer.more:
            transfer.more = False
            body = encode_performative(transfer)
        part = view[at : at + room]
        pieces.append(frame_header(channel, len(body) + len(part)) + body)
        pieces.append(part if len(part) >= LARGE else bytes(part))
        at += len(part)
        frames += 1
        if at >= len(message):
            return frames
        transfer = Transfer(transfer.handle, more=True)


def frames_of(data: bytes) -> list[bytes]:
    """Divide `data` into its frames."""
    found, at = [], 0
    while at < len(data):
        (size,) = _SIZE.unpack_from(data, at)
        found.append(data[at : at + size])
        at += size
    return found
