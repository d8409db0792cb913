"""A connection that publishes, on one or more channels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct

from escrowmq.perf.amqp091 import frames
from escrowmq.perf.amqp091.branches import BranchPublisher
from escrowmq.perf.amqp091.connection import Connection
from escrowmq.perf.amqp091.signals import take_signal
from escrowmq.perf.errors import PerfError
from escrowmq.perf.pace import Pace
from escrowmq.perf.peer import Producer
from escrowmq.perf.publisher import Publisher
from escrowmq.perf.totals import Totals

_WRITES_A_TURN = 4
"""The most large writes of a producer before the loop serves the other connections."""


@dataclass(frozen=True, slots=True)
class ChannelMode:
    """The mode in which a channel is put before the load."""

    select: Callable[[int], bytes]
    """Makes the request for a channel."""
    answer: int


CONFIRMS = ChannelMode(frames.confirm_select, frames.CONFIRM_SELECT_OK)
TX = ChannelMode(frames.tx_select, frames.TX_SELECT_OK)
DTX = ChannelMode(frames.dtx_select, frames.DTX_SELECT_OK)


class PublishingProducer(Producer):
    """Sends the publishes of its publishers, in one write for all channels that are ready."""

    def __init__(self, connection: Connection, totals: Totals, label: str, publishers: list[Publisher]) -> None:
        super().__init__(connection.socket, totals, label)
        self.connection = connection
        self.publishers = {publisher.channel: publisher for publisher in publishers}
        self._ready: list[Publisher] = []

    def prepare(self, mode: ChannelMode | None) -> None:
        """Open the channels in the given mode. Must be called before the load starts."""
        for channel in self.publishers:
            self.connection.call(channel, frames.channel_open(channel), frames.CHANNEL_OPEN_OK)
            if mode is not None:
                self.connection.call(channel, mode.select(channel), mode.answer)

    @property
    def finished(self) -> bool:
        return not self._unsent and all(publisher.finished for publisher in self.publishers.values())

    def due_at(self) -> int | None:
        if self._unsent:
            return None
        return min((due for p in self.publishers.values() if (due := p.due_at()) is not None), default=None)

    def set_pace(self, rate: float, starts: list[int]) -> None:
        for publisher, start in zip(self.publishers.values(), starts, strict=True):
            publisher.pace = Pace(rate, start)

    def stop(self) -> None:
        for publisher in self.publishers.values():
            publisher.stop()

    def wake(self, now: int) -> None:
        self._wake(list(self.publishers.values()), now)

    def _wake(self, publishers: list[Publisher], now: int) -> None:
        for publisher in publishers:
            self._queue(publisher)
        self.pump(now)

    def _queue(self, publisher: Publisher) -> None:
        if not publisher.queued:
            publisher.queued = True
            self._ready.append(publisher)

    def pump(self, now: int) -> None:
        self.now = now
        if self._unsent and not self._send(self._unsent):
            return
        for _ in range(_WRITES_A_TURN):
            data = self._gather(now)
            if data is None:
                self.wants_write = False
                return
            if not self._send(data):
                return
        self.wants_write = True

    def _gather(self, now: int) -> memoryview | None:
        ready, self._ready = self._ready, []
        parts: list[memoryview] = []
        for publisher in ready:
            publisher.queued = False
            data = publisher.take(now)
            if data is not None:
                parts.append(data)
                if publisher.room(now) > 0:
                    self._queue(publisher)
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))

    def parse(self, data: bytearray, end: int) -> int:
        at = 0
        now = self.now
        settled = 0
        unpack = frames.ACK_FRAME.unpack_from
        woken: list[Publisher] = []
        while end - at >= frames.EMPTY_METHOD_FRAME_SIZE:
            if end - at >= frames.ACK_FRAME.size:
                kind, channel, size, method, tag, bits, last = unpack(data, at)
                if (
                    method in (frames.BASIC_ACK, frames.BASIC_NACK)
                    and kind == frames.METHOD
                    and last == frames.FRAME_END
                ):
                    publisher = self._publisher(channel)
                    number = publisher.on_confirm(tag, bool(bits & 1), now)
                    settled += number
                    if method == frames.BASIC_NACK:
                        self.totals.rejected += number
                    woken.append(publisher)
                    at += frames.ACK_FRAME.size
                    continue
            kind, channel, size = frames.FRAME_HEAD.unpack_from(data, at)
            if end - at < size + frames.FRAME_OVERHEAD:
                break
            payload = memoryview(data)[at + frames.FRAME_HEAD_SIZE : at + frames.FRAME_HEAD_SIZE + size]
            if self._take_answer(kind, channel, payload):
                woken.append(self._publisher(channel))
            at += size + frames.FRAME_OVERHEAD
        if settled:
            self.totals.confirmed += settled
            self.totals.confirmed_at = now
        if woken:
            self._wake(woken, now)
        return at

    def _take_answer(self, kind: int, channel: int, payload: memoryview) -> bool:
        """Handle a frame that is not a confirm. Returns whether the publisher of its channel may continue."""
        if kind == frames.METHOD and payload == _COMMIT_OK:
            self._publisher(channel).on_commit_ok(self.now)
            return True
        publisher = self.publishers.get(channel)
        if kind == frames.METHOD and len(payload) == _BRANCH_ANSWER.size and isinstance(publisher, BranchPublisher):
            answer, flags = _BRANCH_ANSWER.unpack(payload)
            return publisher.on_branch_answer(answer, flags, self.now)
        take_signal(self, kind, payload)
        return False

    def _publisher(self, channel: int) -> Publisher:
        try:
            return self.publishers[channel]
        except KeyError:
            raise PerfError(f"the broker sent a confirm on channel {channel}, which is not open") from None


_BRANCH_ANSWER = Struct(">IH")  # method, flags
_COMMIT_OK = frames.TX_COMMIT_OK.to_bytes(4, "big")
