"""A connection that publishes, on one or more channels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct

from escrowmq.perf.amqp091 import frames
from escrowmq.perf.amqp091.branches import BranchPublisher
from escrowmq.perf.amqp091.connection import Connection
from escrowmq.perf.amqp091.signals import take_signal
from escrowmq.perf.channels import ChannelProducer
from escrowmq.perf.publisher import Publisher
from escrowmq.perf.totals import Totals


@dataclass(frozen=True, slots=True)
class ChannelMode:
    """The mode in which a channel is put before the load."""

    select: Callable[[int], bytes]
    """Makes the request for a channel."""
    answer: int


CONFIRMS = ChannelMode(frames.confirm_select, frames.CONFIRM_SELECT_OK)
TX = ChannelMode(frames.tx_select, frames.TX_SELECT_OK)
DTX = ChannelMode(frames.dtx_select, frames.DTX_SELECT_OK)


class PublishingProducer(ChannelProducer[Publisher]):
    """Sends the publishes of its publishers."""

    def __init__(self, connection: Connection, totals: Totals, label: str, publishers: list[Publisher]) -> None:
        super().__init__(connection.socket, totals, label, publishers)
        self.connection = connection

    def prepare(self, mode: ChannelMode | None) -> None:
        """Open the channels in the given mode. Must be called before the load starts."""
        for channel in self.publishers:
            self.connection.call(channel, frames.channel_open(channel), frames.CHANNEL_OPEN_OK)
            if mode is not None:
                self.connection.call(channel, mode.select(channel), mode.answer)

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


_BRANCH_ANSWER = Struct(">IH")  # method, flags
_COMMIT_OK = frames.TX_COMMIT_OK.to_bytes(4, "big")
