"""A connection that publishes, on one or more channels."""

from __future__ import annotations

from struct import Struct

from escrowmq.perf import frames
from escrowmq.perf.connection import Connection
from escrowmq.perf.errors import PerfError
from escrowmq.perf.peer import Peer
from escrowmq.perf.publisher import Publisher
from escrowmq.perf.totals import Totals

_WRITES_A_TURN = 4
"""How many large writes a producer may make before the loop looks at the other connections."""


class Producer(Peer):
    """Sends what its publishers have, in one write for all channels that are ready."""

    def __init__(self, connection: Connection, totals: Totals, label: str, publishers: list[Publisher]) -> None:
        super().__init__(connection, totals, label)
        self.publishers = {publisher.channel: publisher for publisher in publishers}
        self._ready: list[Publisher] = []

    def prepare(self) -> None:
        """Open the channels, in confirm or tx mode where the publishers want it; to be called before the load."""
        for publisher in self.publishers.values():
            self.connection.call(publisher.channel, frames.channel_open(publisher.channel), frames.CHANNEL_OPEN_OK)
            if publisher.setup is not None:
                self.connection.call(publisher.channel, *publisher.setup)

    @property
    def finished(self) -> bool:
        """Everything is sent and answered."""
        return not self._unsent and all(publisher.finished for publisher in self.publishers.values())

    def due_at(self) -> int | None:
        """When the next paced message is due (ns); None when time alone brings nothing."""
        if self._unsent:
            return None
        return min((due for p in self.publishers.values() if (due := p.due_at()) is not None), default=None)

    def wake(self, publishers: list[Publisher], now: int) -> None:
        """These may have something to send."""
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

    def parse(self, data: memoryview) -> int:
        at = 0
        end = len(data)
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
            payload = data[at + frames.FRAME_HEAD_SIZE : at + frames.FRAME_HEAD_SIZE + size]
            if kind == frames.METHOD and payload == _COMMIT_OK:
                publisher = self._publisher(channel)
                publisher.on_commit_ok(now)
                woken.append(publisher)
            elif kind == frames.METHOD and size == _BRANCH_ANSWER.size:
                answer, flags = _BRANCH_ANSWER.unpack(payload)
                publisher = self._publisher(channel)
                if publisher.on_branch_answer(answer, flags, now):
                    woken.append(publisher)
            else:
                self.on_frame(kind, payload)
            at += size + frames.FRAME_OVERHEAD
        if settled:
            self.totals.confirmed += settled
            self.totals.confirmed_at = now
        if woken:
            self.wake(woken, now)
        return at

    def _publisher(self, channel: int) -> Publisher:
        try:
            return self.publishers[channel]
        except KeyError:
            raise PerfError(f"the broker sent a confirm on channel {channel}, which is not open") from None


_BRANCH_ANSWER = Struct(">IH")  # method, flags
_COMMIT_OK = frames.TX_COMMIT_OK.to_bytes(4, "big")
