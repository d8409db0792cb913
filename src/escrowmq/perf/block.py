"""Publishes encoded once, side by side, to be sent in large writes."""

from __future__ import annotations

from struct import pack_into

from escrowmq.perf import frames

BLOCK_BYTES = 128 * 1024
STAMP_SIZE = 8


class PublishBlock:
    """`count` publishes of equal length; the first eight bytes of each body can be set to a time."""

    __slots__ = ("_data", "body_at", "count", "unit", "view")

    def __init__(
        self,
        channel: int,
        exchange: str,
        routing_keys: list[str],
        body_size: int,
        persistent: bool,
        frame_max: int,
        count: int = 0,
    ) -> None:
        """Encode. The routing keys, all of one length, take turns. `count` 0: as many as make up `BLOCK_BYTES`.

        Raises ValueError when the routing keys differ in length.
        """
        if len({len(key.encode()) for key in routing_keys}) != 1:
            raise ValueError("the routing keys of a block must be of one length")
        # The first eight bytes are zero unless a time is set: no time is ever zero.
        body = bytes(min(STAMP_SIZE, body_size)) + bytes(33 + i % 90 for i in range(body_size - STAMP_SIZE))
        tail = frames.body_frames(channel, body, frame_max)
        units = [frames.publish_prefix(channel, exchange, key, body_size, persistent) + tail for key in routing_keys]
        self.unit = len(units[0])
        self.body_at = self.unit - len(tail) + frames.FRAME_HEAD_SIZE
        turns = len(routing_keys)
        self.count = count or max(BLOCK_BYTES // (self.unit * turns), 1) * turns
        self._data = bytearray(b"".join(units[i % turns] for i in range(self.count)))
        self.view = memoryview(self._data)

    def slice(self, first: int, number: int) -> memoryview:
        """The bytes of `number` publishes from the one at `first` on."""
        return self.view[first * self.unit : (first + number) * self.unit]

    def stamp(self, first: int, number: int, time: int) -> None:
        """Set one time (ns) into `number` bodies; bodies under eight bytes cannot hold one."""
        begin = first * self.unit + self.body_at
        end = (first + number - 1) * self.unit + self.body_at + 1
        for offset, byte in enumerate(time.to_bytes(STAMP_SIZE, "big")):
            self._data[begin + offset : end + offset : self.unit] = bytes((byte,)) * number

    def stamp_each(self, first: int, times: list[int]) -> None:
        """Set a time (ns) of its own into each body from the one at `first` on."""
        at = first * self.unit + self.body_at
        for time in times:
            pack_into(">Q", self._data, at, time)
            at += self.unit
