"""Counts the deliveries in received bytes, mostly many at a time, and hands on all other frames."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from escrowmq.perf.errors import PerfError
from escrowmq.wire.amqp10.codec import hot
from escrowmq.wire.amqp10.codec.errors import CodecError
from escrowmq.wire.amqp10.codec.performatives import Transfer, decode_performative

_SHORTEST_RUN: Final = 4
_HEAD: Final = 14  # frame header, descriptor, size and count of the list
_TRANSFER: Final = b"\x02\x00\x00\x00\x00\x53\x14\xc0"  # data offset, type, channel 0, descriptor, list8


class TransferWalk:
    """Walks over frames. `count` is the number of complete deliveries so far, `transfers` that of their frames.

    `on_payload` gets one delivery of each read, or with `every` each one; `on_frame` gets everything but transfers.
    """

    def __init__(self, on_frame: Callable[[Any], None], on_payload: Callable[[bytes], None], *, every: bool) -> None:
        self.count = 0
        self.transfers = 0
        self.first: int | None = None
        """The delivery-id of the first delivery."""
        self._on_frame = on_frame
        self._on_payload = on_payload
        self._every = every
        self._parts: list[bytes] = []
        # Of the last transfer that was a whole delivery: its size and the octets around its number and tag.
        self._head = self._tail = b""
        self._unpack: Callable[[bytearray, int], tuple[Any, ...]] | None = None
        self._tail_end = 0

    def feed(self, data: bytearray, end: int) -> int:
        """Take the complete frames in the first `end` bytes of `data`. Returns the number of bytes taken."""
        at, sampled = 0, False
        while end - at >= 8:
            size = int.from_bytes(data[at : at + 4], "big")
            if size < 8:
                raise PerfError(f"the broker sent a frame of {size} bytes")
            if end - at < size:
                break
            if size > 20 and data[at + 4 : at + 12] == _TRANSFER:
                same = sampled and data[at + size : at + size + 4] == data[at : at + 4]
                alike = self._run(data, at, end, size) if same and not self._every else 1
                if alike >= _SHORTEST_RUN:
                    self.count += alike
                    self.transfers += alike
                    at += alike * size
                    continue
                behind = self._pass_alike(data, at, end) if sampled else at
                if behind > at:
                    at = behind
                    continue
                sampled |= self._transfer(bytes(data[at + 8 : at + size]), sample=self._every or not sampled)
            elif size > 8:
                self._other(bytes(data[at + data[at + 4] * 4 : at + size]))
            at += size
        return at

    def _pass_alike(self, data: bytearray, at: int, end: int) -> int:
        """Count the transfers from `at` on that differ from the last one in size, number, tag and message only. Return
        where the first other frame begins.
        """
        unpack, head, tail, least = self._unpack, self._head, self._tail, self._tail_end
        if unpack is None:
            return at
        count = 0
        while end - at >= least:
            size, found, ending = unpack(data, at)
            if found != head or ending != tail or not least <= size <= end - at:
                break
            at += size
            count += 1
        self.count += count
        self.transfers += count
        return at

    def _run(self, data: bytearray, at: int, end: int, size: int) -> int:
        """Return how many frames from `at` on are whole transfers of one size."""
        if self._parts or not _is_whole(data, at, size):
            return 0
        most = (end - at) // size
        alike = most
        for place, octet in enumerate(data[at : at + _HEAD]):
            column = bytes(data[at + place : at + (alike - 1) * size + place + 1 : size])
            equal = len(column) - len(column.lstrip(bytes((octet,))))
            alike = min(alike, equal)
            if alike < _SHORTEST_RUN:
                return 0
        return alike

    def _transfer(self, body: bytes, *, sample: bool) -> bool:
        """Take one transfer. Returns whether its message was handed on."""
        found = hot.decode_transfer(body, 0, len(body))
        if found is None:
            performative, at = decode_performative(body)
            assert isinstance(performative, Transfer)
            transfer = performative
        else:
            transfer, at = found
        self.transfers += 1
        if self.first is None:
            self.first = transfer.delivery_id
        if transfer.more or self._parts:
            self._unpack = None
            self._parts.append(body[at:])
        elif transfer.delivery_tag is not None and not self._every:
            self._head = _TRANSFER[:4] + body[: _HEAD - 8]
            begin = body.index(transfer.delivery_tag, 6, at) + len(transfer.delivery_tag)
            self._tail, self._tail_end = body[begin:at], 8 + at
            self._unpack = Struct(f">I{_HEAD - 4}s{8 + begin - _HEAD}x{at - begin}s").unpack_from
        if transfer.more:
            return False
        self.count += 1
        payload = b"".join(self._parts) if self._parts else body[at:]
        self._parts = []
        if sample:
            self._on_payload(payload)
        return sample

    def _other(self, body: bytes) -> None:
        try:
            performative = decode_performative(body)[0]
        except CodecError as error:
            raise PerfError(f"the broker sent what cannot be decoded: {error}") from None
        if isinstance(performative, Transfer):
            self._transfer(body, sample=False)
        else:
            self._on_frame(performative)


def _is_whole(data: bytearray, at: int, size: int) -> bool:
    """Whether the transfer at `at` is all of its delivery. Deliveries of one size are then taken to be, too."""
    body = bytes(data[at + 8 : at + size])
    found = hot.decode_transfer(body, 0, len(body))
    return found is not None and not found[0].more
