"""Publishes as bytes, many at once: what repeats is built once, and the rest is left to `bytes.join`."""

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
"""Bodies that are encoded together have about this size at most: what is in memory twice."""
_CACHE_LIMIT: Final = 4096


class Heads(dict[int, bytes]):
    """All of a publish in front of the body, by the body's size: method, header, head of the body frame."""

    __slots__ = ("_before", "_behind", "_channel")

    def __init__(self, channel: int, method: bytes, props: bytes) -> None:
        super().__init__()
        self._channel = channel
        size = CONTENT_HEADER_SIZE + len(props)
        self._before = method + FRAME_HEADER.pack(codes.FRAME_HEADER, channel, size)
        self._behind = props + FRAME_END

    def bare(self, size: int) -> bytes:
        """Method and header frame, without a body frame."""
        return self._before + CONTENT_HEADER.pack(BASIC_CLASS, 0, size) + self._behind

    def __missing__(self, size: int) -> bytes:
        if len(self) >= _CACHE_LIMIT:
            self.clear()
        head = self[size] = self.bare(size) + FRAME_HEADER.pack(codes.FRAME_BODY, self._channel, size)
        return head


class Encoder:
    """The publishes of one channel. `frame_max` in octets, 0 for no limit."""

    __slots__ = ("_channel", "_frame_max", "_heads", "_room")

    def __init__(self, channel: int, frame_max: int) -> None:
        self._channel = channel
        self._frame_max = frame_max
        self._room = frame_max - FRAME_OVERHEAD if frame_max else 1 << 31
        self._heads: dict[tuple[str, str, bytes, bool], Heads] = {}

    def heads(self, exchange: str, routing_key: str, props: bytes, mandatory: bool) -> Heads:
        """Found again for what was published before. ValueError if a name, or what is in the header, is too long."""
        key = (exchange, routing_key, props, mandatory)
        heads = self._heads.get(key)
        if heads is None:
            if len(self._heads) >= _CACHE_LIMIT:
                self._heads.clear()
            if CONTENT_HEADER_SIZE + len(props) > self._room:
                most = self._room - CONTENT_HEADER_SIZE
                raise ValueError(f"properties and headers of {len(props)} bytes, at most {most} are possible")
            method = method_frame(self._channel, BasicPublish(exchange, routing_key, mandatory))
            heads = self._heads[key] = Heads(self._channel, method, props)
        return heads

    def one(self, heads: Heads, body: bytes) -> bytes:
        """A single publish."""
        size = len(body)
        if 0 < size <= self._room:
            return heads[size] + body + FRAME_END
        return heads.bare(size) + body_frames(self._channel, body, self._frame_max)

    def alike(self, heads: Heads, bodies: Sequence[bytes], sizes: Sequence[int]) -> bytes:
        """Publishes to one address with the same properties."""
        low, high = min(sizes), max(sizes)
        if not 0 < low <= high <= self._room:
            return b"".join([self.one(heads, body) for body in bodies])
        if low == high:
            head = heads[high]
            return b"".join((head, (FRAME_END + head).join(bodies), FRAME_END))
        return b"".join(chain.from_iterable(zip(map(heads.__getitem__, sizes), bodies, repeat(FRAME_END))))

    def mixed(self, heads: Sequence[Heads], bodies: Sequence[bytes], sizes: Sequence[int]) -> bytes:
        """Publishes of which each has heads of its own."""
        if not 0 < min(sizes) <= max(sizes) <= self._room:
            return b"".join([self.one(head, body) for head, body in zip(heads, bodies, strict=True)])
        return b"".join([part for h, s, b in zip(heads, sizes, bodies, strict=True) for part in (h[s], b, FRAME_END)])


def pieces(sizes: Sequence[int], most: int = PIECE_BYTES) -> Iterator[tuple[int, int]]:
    """Cut: (from, to) of what is encoded together, each at least one message, else `most` octets at most."""
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
