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
_CACHE_LIMIT: Final = 4096


class Heads(dict[int, bytes]):
    """The bytes of a publish before its body, by body size: method frame, header frame, header of the body frame."""

    __slots__ = ("_before", "_behind", "_channel")

    def __init__(self, channel: int, method: bytes, props: bytes) -> None:
        super().__init__()
        self._channel = channel
        size = CONTENT_HEADER_SIZE + len(props)
        self._before = method + FRAME_HEADER.pack(codes.FRAME_HEADER, channel, size)
        self._behind = props + FRAME_END

    def bare(self, size: int) -> bytes:
        """Return method frame and header frame, without a body frame's header. `size` is the body's, in bytes."""
        return self._before + CONTENT_HEADER.pack(BASIC_CLASS, 0, size) + self._behind

    def __missing__(self, size: int) -> bytes:
        if len(self) >= _CACHE_LIMIT:
            self.clear()
        head = self[size] = self.bare(size) + FRAME_HEADER.pack(codes.FRAME_BODY, self._channel, size)
        return head


class Encoder:
    """Encodes the publishes of one channel. `frame_max` is in bytes; 0 means no limit."""

    __slots__ = ("_channel", "_frame_max", "_heads", "_room")

    def __init__(self, channel: int, frame_max: int) -> None:
        self._channel = channel
        self._frame_max = frame_max
        self._room = frame_max - FRAME_OVERHEAD if frame_max else 1 << 31
        self._heads: dict[tuple[str, str, bytes, bool], Heads] = {}

    def heads(self, exchange: str, routing_key: str, props: bytes, mandatory: bool) -> Heads:
        """Return the heads for this address and these properties, from a cache if possible.

        Raises:
            ValueError: A name is too long, or the properties do not fit into one frame.
        """
        key = (exchange, routing_key, props, mandatory)
        heads = self._heads.get(key)
        if heads is None:
            if len(self._heads) >= _CACHE_LIMIT:
                self._heads.clear()
            if CONTENT_HEADER_SIZE + len(props) > self._room:
                most = self._room - CONTENT_HEADER_SIZE
                raise ValueError(f"properties and headers take {len(props)} bytes; at most {most} fit into a frame")
            method = method_frame(self._channel, BasicPublish(exchange, routing_key, mandatory))
            heads = self._heads[key] = Heads(self._channel, method, props)
        return heads

    def one(self, heads: Heads, body: bytes) -> bytes:
        """Encode a single publish."""
        size = len(body)
        if 0 < size <= self._room:
            return heads[size] + body + FRAME_END
        return heads.bare(size) + body_frames(self._channel, body, self._frame_max)

    def alike(self, heads: Heads, bodies: Sequence[bytes], sizes: Sequence[int]) -> bytes:
        """Encode publishes that share address and properties. `sizes` are the lengths of `bodies`."""
        low, high = min(sizes), max(sizes)
        if not 0 < low <= high <= self._room:
            return b"".join([self.one(heads, body) for body in bodies])
        if low == high:
            head = heads[high]
            return b"".join((head, (FRAME_END + head).join(bodies), FRAME_END))
        return b"".join(chain.from_iterable(zip(map(heads.__getitem__, sizes), bodies, repeat(FRAME_END))))

    def mixed(self, heads: Sequence[Heads], bodies: Sequence[bytes], sizes: Sequence[int]) -> bytes:
        """Encode publishes with heads of their own. `sizes` are the lengths of `bodies`."""
        if not 0 < min(sizes) <= max(sizes) <= self._room:
            return b"".join([self.one(head, body) for head, body in zip(heads, bodies, strict=True)])
        return b"".join([part for h, s, b in zip(heads, sizes, bodies, strict=True) for part in (h[s], b, FRAME_END)])


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
