"""Publishes encoded once, side by side, to be sent in large writes."""

from __future__ import annotations

from itertools import accumulate
from random import Random
from struct import pack_into

from escrowmq.perf import frames

BLOCK_BYTES = 128 * 1024
STAMP_SIZE = 8
_SEED = 1


class PublishBlock:
    """`count` publishes; the first eight bytes of each body can be set to a time.

    Bodies differ, and so do, if wanted, their sizes and message ids. The same figures give the same bytes.
    """

    __slots__ = ("_data", "_offsets", "_uniform", "body_at", "count", "view")

    def __init__(
        self,
        channel: int,
        exchange: str,
        routing_keys: list[str],
        body_size: int,
        persistent: bool,
        frame_max: int,
        count: int = 0,
        spread: int = 0,
        ids: bool = False,
    ) -> None:
        """Encode. The routing keys, all of one length, take turns.

        `count` 0: as many as make up `BLOCK_BYTES`. Body sizes are spread evenly from `body_size - spread` to
        `body_size + spread`. `ids`: each message has a message-id of its own, as many clients send.
        Raises ValueError when the routing keys differ in length.
        """
        if len({len(key.encode()) for key in routing_keys}) != 1:
            raise ValueError("the routing keys of a block must be of one length")
        turns = len(routing_keys)
        head_size = len(frames.publish_prefix(channel, exchange, routing_keys[0], 0, persistent, _message_id(0, ids)))
        unit = head_size + len(frames.body_frames(channel, bytes(body_size), frame_max))
        self.count = count or max(BLOCK_BYTES // (unit * turns), 1) * turns
        self.body_at = head_size + frames.FRAME_HEAD_SIZE
        self._uniform = not spread
        random = Random(_SEED)  # noqa: S311 (not for secrets)
        units = []
        for number in range(self.count):
            size = random.randint(body_size - spread, body_size + spread)
            # The first eight bytes are zero unless a time is set: no time is ever zero.
            body = bytes(min(STAMP_SIZE, size)) + random.randbytes(max(size - STAMP_SIZE, 0))
            key = routing_keys[number % turns]
            head = frames.publish_prefix(channel, exchange, key, size, persistent, _message_id(number, ids))
            units.append(head + frames.body_frames(channel, body, frame_max))
        self._offsets = [0, *accumulate(map(len, units))]
        self._data = bytearray(b"".join(units))
        self.view = memoryview(self._data)

    def slice(self, first: int, number: int) -> memoryview:
        """The bytes of `number` publishes from the one at `first` on."""
        return self.view[self._offsets[first] : self._offsets[first + number]]

    def stamp(self, first: int, number: int, time: int) -> None:
        """Set one time (ns) into `number` bodies; bodies under eight bytes cannot hold one."""
        if not self._uniform:
            self.stamp_each(first, [time] * number)
            return
        unit = self._offsets[1]
        begin = first * unit + self.body_at
        end = (first + number - 1) * unit + self.body_at + 1
        for offset, byte in enumerate(time.to_bytes(STAMP_SIZE, "big")):
            self._data[begin + offset : end + offset : unit] = bytes((byte,)) * number

    def stamp_each(self, first: int, times: list[int]) -> None:
        """Set a time (ns) of its own into each body from the one at `first` on."""
        for number, time in enumerate(times, first):
            pack_into(">Q", self._data, self._offsets[number] + self.body_at, time)


def _message_id(number: int, wanted: bool) -> str | None:
    return f"message-{number:028d}" if wanted else None
