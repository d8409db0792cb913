"""A connection that receives in the window mode of credit: it completes deliveries, and accepts them in ranges."""

from __future__ import annotations

from struct import Struct
from typing import Final
from uuid import UUID

from escrowmq.perf.amqp010 import frames
from escrowmq.perf.amqp010.connection import SessionConnection
from escrowmq.perf.amqp010.frames import ReceivedAssembly, raise_if_ended
from escrowmq.perf.amqp010.reading import TransferCount
from escrowmq.perf.errors import PerfError
from escrowmq.perf.messages import STAMP_SIZE
from escrowmq.perf.peer import Consumer
from escrowmq.perf.sampling import PublishedContents
from escrowmq.perf.totals import Totals
from escrowmq.wire.amqp010.codec.commands import decode_header
from escrowmq.wire.amqp010.codec.errors import CodecError
from escrowmq.wire.amqp010.codec.spec import (
    AcceptMode,
    AcquireMode,
    CreditUnit,
    ExecutionSync,
    FlowMode,
    MessageAccept,
    MessageFlow,
    MessageProperties,
    MessageSetFlowMode,
    MessageSubscribe,
    SessionCompleted,
)
from escrowmq.wire.amqp010.codec.structs import Command

CHANNEL: Final = 1
_STAMP: Final = Struct(">Q")
_NO_LIMIT: Final = 0xFFFFFFFF
_UNANSWERED: Final = 500
"""Deliveries that a consumer without a limit may have before it completes them."""


class WindowConsumer(Consumer):
    """Subscribes to one or more queues in one session."""

    def __init__(
        self,
        connection: SessionConnection,
        totals: Totals,
        label: str,
        queues: list[str],
        contents: PublishedContents,
        *,
        accept_every: int,
        window: int,
        stamped: bool,
    ) -> None:
        """`accept_every` 0: the broker does not wait for acceptance. `window` 0: no limit."""
        super().__init__(connection.socket, totals, label)
        self.connection = connection
        self._queues = queues
        self._contents = contents
        self._explicit = accept_every > 0
        self._every = accept_every or max(min(window // 2, _UNANSWERED), 1) if window else accept_every or _UNANSWERED
        self._window = window
        self._stamped = stamped
        self._first = 0  # the number of the first delivery
        self._answered = 0
        self._awaited = -1
        self._walk = TransferCount(self._on_received, self._on_content, every=stamped)
        rest = connection.rest
        self._buffer[: len(rest)] = rest
        self._filled = len(rest)

    @property
    def subscribed(self) -> bool:
        return self._awaited == 0

    def start(self, now: int) -> None:
        numbers = self.connection.sessions[CHANNEL]
        commands: list[Command] = []
        accepts = AcceptMode.EXPLICIT if self._explicit else AcceptMode.NONE
        for number, queue in enumerate(self._queues):
            name = f"{number:04d}"  # of equal lengths, so that all deliveries begin alike
            commands += (
                MessageSubscribe(queue, name, accepts, AcquireMode.PRE_ACQUIRED),
                MessageSetFlowMode(name, FlowMode.WINDOW),
                MessageFlow(name, CreditUnit.BYTE, _NO_LIMIT),
                MessageFlow(name, CreditUnit.MESSAGE, self._window or _NO_LIMIT),
            )
        self._first = numbers.received
        self._awaited = numbers.sent + len(commands)
        data = [frames.command(CHANNEL, each) for each in commands]
        self._append(b"".join((*data, frames.command(CHANNEL, ExecutionSync(), sync=True))), now)

    def parse(self, data: bytearray, end: int) -> int:
        walk = self._walk
        before = walk.count
        used = walk.feed(data, end)
        count = walk.count
        if count > before:
            self.totals.consumed += count - before
            self.totals.consumed_at = self.now
            self._answer(count - count % self._every)
        return used

    def finish(self, now: int) -> None:
        self.now = now
        self._answer(self._walk.count)

    def pump(self, now: int) -> None:
        self.now = now
        if self._unsent:
            self._send(self._unsent)

    def _answer(self, count: int) -> None:
        """Complete all deliveries up to a number, and accept them if the broker waits for that."""
        if count <= self._answered:
            return
        first, last = self._first + self._answered, self._first + count - 1
        self._answered = count
        answer = frames.completed(CHANNEL, first, last)
        if self._explicit:
            answer += frames.command(CHANNEL, MessageAccept(((first, last),)))
        self._append(answer, self.now)

    def _on_received(self, received: ReceivedAssembly) -> None:
        found = received.what
        raise_if_ended(found)
        if isinstance(found, SessionCompleted):
            if any(first <= self._awaited <= last for first, last in found.commands or ()):
                self._awaited = 0
        elif isinstance(found, Command):
            raise PerfError(f"the broker sent {found.NAME} to a consumer ({self.label})")

    def _on_content(self, header: bytes, body: bytes, size: int) -> None:
        if self._stamped and size >= STAMP_SIZE:
            self.totals.delivery.record(self.now - _STAMP.unpack_from(body)[0])
        try:
            structs = decode_header(header)
        except CodecError as error:
            raise PerfError(f"the broker delivered a message whose header cannot be decoded: {error}") from None
        found = next((each for each in structs if isinstance(each, MessageProperties)), MessageProperties())
        message_id, correlation_id = found.message_id, found.correlation_id
        self._contents.check(
            None if message_id is None else str(UUID(bytes=bytes(message_id))),
            None if correlation_id is None else correlation_id.decode(),
            size,
            body,
        )
