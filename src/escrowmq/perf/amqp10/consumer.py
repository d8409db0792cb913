"""A connection that receives on one or more links: it counts deliveries, and accepts them in ranges."""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from escrowmq.perf.amqp10.connection import WINDOW, LinkConnection, raise_if_closed
from escrowmq.perf.amqp10.reading import TransferWalk
from escrowmq.perf.errors import PerfError
from escrowmq.perf.messages import STAMP_SIZE
from escrowmq.perf.peer import Consumer
from escrowmq.perf.sampling import SAMPLED_BYTES, PublishedContents
from escrowmq.perf.totals import Totals
from escrowmq.wire.amqp10.codec import frames, hot, sections
from escrowmq.wire.amqp10.codec.performatives import RECEIVER, Flow
from escrowmq.wire.amqp10.codec.states import ACCEPTED

_STAMP: Final = Struct(">Q")


class ReceivingConsumer(Consumer):
    """Receives from one queue on one link."""

    def __init__(
        self,
        connection: LinkConnection,
        totals: Totals,
        label: str,
        contents: PublishedContents,
        *,
        handle: int,
        initial: int,
        accept_every: int,
        credit: int,
        second: bool,
        stamped: bool,
    ) -> None:
        """`accept_every` 0: presettled. `initial` is the delivery-count at the start. `second`: the broker settles
        after the accept.
        """
        super().__init__(connection.socket, totals, label)
        self.connection = connection
        self._contents = contents
        self._handle = handle
        self._initial = initial
        self._every = accept_every
        self._credit = credit
        self._second = second
        self._stamped = stamped
        self._accepted = self._granted = 0
        self._walk = TransferWalk(raise_if_closed_or_ignored, self._on_payload, every=stamped)
        rest = connection.rest
        used = self._walk.feed(bytearray(rest), len(rest))
        self._filled = len(rest) - used
        self._buffer[: self._filled] = rest[used:]

    @property
    def subscribed(self) -> bool:
        return self._granted > 0

    def start(self, now: int) -> None:
        self._append(self._flow(), now)

    def parse(self, data: bytearray, end: int) -> int:
        walk = self._walk
        before = walk.count
        used = walk.feed(data, end)
        if walk.count > before:
            self.totals.consumed += walk.count - before
            self.totals.consumed_at = self.now
            self._answer(walk.count - walk.count % self._every if self._every else 0)
        return used

    def finish(self, now: int) -> None:
        self.now = now
        self._answer(self._walk.count if self._every else 0)

    def pump(self, now: int) -> None:
        self.now = now
        if self._unsent:
            self._send(self._unsent)

    def _answer(self, accepted: int) -> None:
        """Accept all deliveries up to a number, and grant credit when half of it is used."""
        answers = []
        if accepted > self._accepted:
            assert self._walk.first is not None
            first, last = self._walk.first + self._accepted, self._walk.first + accepted - 1
            self._accepted = accepted
            answers.append(frames.frame(0, hot.encode_disposition(RECEIVER, first, last, not self._second, ACCEPTED)))
        if self._walk.count + self._credit - self._granted >= self._credit // 2:
            answers.append(self._flow())
        if answers:
            self._append(b"".join(answers), self.now)

    def _flow(self) -> bytes:
        """Grant credit anew. Deliveries that are not accepted yet count against it."""
        unaccepted = self._walk.count - self._accepted if self._every else 0
        credit = max(self._credit - unaccepted, 0)
        self._granted = self._walk.count + credit
        return frames.frame(
            0,
            hot.encode_flow(
                Flow(
                    next_incoming_id=self._walk.transfers,
                    incoming_window=WINDOW,
                    next_outgoing_id=0,
                    outgoing_window=WINDOW,
                    handle=self._handle,
                    delivery_count=self._initial + self._walk.count,
                    link_credit=credit,
                )
            ),
        )

    def _on_payload(self, payload: bytes) -> None:
        _, at = sections.split_head(payload)
        content = payload[at:]
        found = sections.body(content)
        if not isinstance(found, sections.Data):
            raise PerfError("the broker delivered a message without a data section")
        body = b"".join(found)
        if self._stamped and len(body) >= STAMP_SIZE:
            self.totals.delivery.record(self.now - _STAMP.unpack_from(body)[0])
        properties = sections.properties(content)
        ids = properties.message_id, properties.correlation_id
        self._contents.check(
            None if ids[0] is None else str(ids[0]),
            None if ids[1] is None else str(ids[1]),
            len(body),
            body[:SAMPLED_BYTES],
        )


def raise_if_closed_or_ignored(performative: Any) -> None:
    """Take a frame that is no transfer: flows and dispositions of the broker need no answer."""
    raise_if_closed(performative)
