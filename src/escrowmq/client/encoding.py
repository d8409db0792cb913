"""Encodes publishes in bulk: repeated parts are built once, the rest is joined by `bytes.join`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, repeat
from typing import Final

from escrowmq.wire.amqp091 import codes
from escrowmq.wire.amqp091.frames import (
    BASIC_CLASS,
    CONTENT_HEADER,
    CONTENT_HEADER_SIZE,
    FRAME_END,
    FRAME_HEADER,
    FRAME_OVERHEAD,
    body_frames,
    method_frame,
)
from escrowmq.wire.amqp091.spec import BasicPublish

PIECE_BYTES: Final = 256 * 1024
"""The approximate limit for bodies that are encoded together, in bytes. This much is in memory twice."""
_SIZES: Final = 4096
_PROPERTIES: Final = 256
HEADS: Final = 16_384
"""The number of heads that are remembered. A publisher may use thousands of routing keys in turn."""
_LONGEST_NAME: Final = 255  # octets
_KEY_END: Final = 2  # octets of an encoded publish method from the length of an empty routing key on


class Middle(dict[int, bytes]):
    """The bytes of a publish between its method frame and its body, by body size: header frame and header of the body
    frame. They depend on the properties.
    """

    __slots__ = ("_before", "_behind", "_channel")

    def __init__(self, channel: int, props: bytes) -> None:
        super().__init__()
        self._channel = channel
        self._before = FRAME_HEADER.pack(codes.FRAME_HEADER, channel, CONTENT_HEADER_SIZE + len(props))
        self._behind = props + FRAME_END

    def header_frame(self, size: int) -> bytes:
        """Return the header frame alone. `size` is the body's, in bytes."""
        return self._before + CONTENT_HEADER.pack(BASIC_CLASS, 0, size) + self._behind

    def __missing__(self, size: int) -> bytes:
        if len(self) >= _SIZES:
            self.clear()
        middle = self[size] = self.header_frame(size) + FRAME_HEADER.pack(codes.FRAME_BODY, self._channel, size)
        return middle


class Heads:
    """The bytes of publishes before their bodies: `method` is the method frame, `middle` has the rest."""

    __slots__ = ("method", "middle")

    def __init__(self, method: bytes, middle: Middle) -> None:
        self.method = method
        self.middle = middle


class Encoder:
    """Encodes the publishes of one channel. `frame_max` is in bytes; 0 means no limit."""

    __slots__ = ("_channel", "_frame_max", "_heads", "_middles", "_room", "_templates")

    def __init__(self, channel: int, frame_max: int) -> None:
        self._channel = channel
        self._frame_max = frame_max
        self._room = frame_max - FRAME_OVERHEAD if frame_max else 1 << 31
        self._heads: dict[tuple[str, str, bytes, bool], Heads] = {}
        self._middles: dict[bytes, Middle] = {}
        self._templates: dict[tuple[str, bool], bytes] = {}  # encoded methods with an empty routing key

    def heads(self, exchange: str, routing_key: str, props: bytes, mandatory: bool) -> Heads:
        """Return the heads for this address and these properties, from a cache if possible.

        Raises:
            ValueError: A name is too long, or the properties do not fit into one frame.
        """
        key = (exchange, routing_key, props, mandatory)
        heads = self._heads.get(key)
        if heads is None:
            if len(self._heads) >= HEADS:
                self._heads.clear()
            heads = self._heads[key] = Heads(self._method(exchange, routing_key, mandatory), self._middle(props))
        return heads

    def _middle(self, props: bytes) -> Middle:
        middle = self._middles.get(props)
        if middle is None:
            if len(self._middles) >= _PROPERTIES:
                self._middles.clear()
            if CONTENT_HEADER_SIZE + len(props) > self._room:
                most = self._room - CONTENT_HEADER_SIZE
                raise ValueError(f"properties and headers take {len(props)} bytes; at most {most} fit into a frame")
            middle = self._middles[props] = Middle(self._channel, props)
        return middle

    def _method(self, exchange: str, routing_key: str, mandatory: bool) -> bytes:
        """Return the frame of the method. Where only routing keys differ, they are put into a copy of the method."""
        name = routing_key.encode()
        if len(name) > _LONGEST_NAME:
            return method_frame(self._channel, BasicPublish(exchange, routing_key, mandatory))  # raises ValueError
        template = self._templates.get((exchange, mandatory))
        if template is None:
            if len(self._templates) >= _PROPERTIES:
                self._templates.clear()
            template = self._templates[exchange, mandatory] = BasicPublish(exchange, "", mandatory).encode()
        return b"".join(
            (
                FRAME_HEADER.pack(codes.FRAME_METHOD, self._channel, len(template) + len(name)),
                template[:-_KEY_END],
                bytes((len(name),)),
                name,
                template[-1:],
                FRAME_END,
            )
        )

    def one(self, heads: Heads, body: bytes) -> bytes:
        """Encode a single publish."""
        size = len(body)
        if 0 < size <= self._room:
            return heads.method + heads.middle[size] + body + FRAME_END
        return heads.method + heads.middle.header_frame(size) + body_frames(self._channel, body, self._frame_max)

    def alike(self, heads: Heads, bodies: Sequence[bytes], sizes: Sequence[int]) -> bytes:
        """Encode publishes that share address and properties. `sizes` are the lengths of `bodies`."""
        low, high = min(sizes), max(sizes)
        if not 0 < low <= high <= self._room:
            return b"".join([self.one(heads, body) for body in bodies])
        if low == high:
            head = heads.method + heads.middle[high]
            return b"".join((head, (FRAME_END + head).join(bodies), FRAME_END))
        middles = map(heads.middle.__getitem__, sizes)
        return b"".join(chain.from_iterable(zip(repeat(heads.method), middles, bodies, repeat(FRAME_END))))

    def mixed(self, heads: Sequence[Heads], bodies: Sequence[bytes], sizes: Sequence[int]) -> bytes:
        """Encode publishes with heads of their own. `sizes` are the lengths of `bodies`."""
        if not 0 < min(sizes) <= max(sizes) <= self._room:
            return b"".join([self.one(head, body) for head, body in zip(heads, bodies, strict=True)])
        mixed = zip(heads, sizes, bodies, strict=True)
        return b"".join([part for h, s, b in mixed for part in (h.method, h.middle[s], b, FRAME_END)])


def pieces(sizes: Sequence[int], most: int = PIECE_BYTES) -> Iterator[tuple[int, int]]:
    """Yield the bounds (from, to) of pieces to encode together: at most `most` bytes, but at least one message each."""
    total = sum(sizes)
    if total <= most:
        yield 0, len(sizes)
        return
    start, base = 0, 0
    for at, end in enumerate(accumulate(sizes)):
        if end - base > most and at > start:
            yield start, at
            start, base = at, end - sizes[at]
    yield start, len(sizes)
