"""A connection that publishes, on one or more sessions."""

from __future__ import annotations

from escrowmq.perf.amqp010.connection import SessionConnection
from escrowmq.perf.amqp010.frames import AssemblyReader, ReceivedAssembly, raise_if_ended
from escrowmq.perf.amqp010.publishers import SessionPublisher, status_of
from escrowmq.perf.channels import ChannelProducer
from escrowmq.perf.errors import PerfError
from escrowmq.perf.totals import Totals
from escrowmq.wire.amqp010.codec.answers import COMPLETED_SIZE, RESULT_SIZE, read_completed, read_result
from escrowmq.wire.amqp010.codec.frames import HEAD_SIZE
from escrowmq.wire.amqp010.codec.spec import (
    ExecutionResult,
    MessageAccept,
    MessageReject,
    MessageTransfer,
    SessionCompleted,
)
from escrowmq.wire.amqp010.codec.structs import Command


class SessionsProducer(ChannelProducer[SessionPublisher]):
    """Sends the transfers of its publishers."""

    def __init__(
        self, connection: SessionConnection, totals: Totals, label: str, publishers: list[SessionPublisher]
    ) -> None:
        super().__init__(connection.socket, totals, label, publishers)
        self.connection = connection
        self._reader = AssemblyReader(self._on_received)
        self._woken: list[SessionPublisher] = []
        rest = connection.rest
        self._buffer[: len(rest)] = rest
        self._filled = len(rest)

    def parse(self, data: bytearray, end: int) -> int:
        at = 0
        while end - at >= HEAD_SIZE:
            size = self._quick(data, at, end) or self._reader.take(data, at, end)
            if not size:
                break
            at += size
        woken, self._woken = self._woken, []
        answers = [answer for publisher in woken if (answer := publisher.completion())]
        if answers:
            self._unsent = memoryview(b"".join((self._unsent, *answers)))
        if woken or answers:
            self._wake(woken, self.now)
        return at

    def _quick(self, data: bytearray, at: int, end: int) -> int:
        """Take a frame of the usual answers. Returns its size, or 0 if it is another frame."""
        size = data[at + 2] << 8 | data[at + 3]
        if size == COMPLETED_SIZE and end - at >= size:
            completed = read_completed(data, at)
            if completed is not None:
                self._completed(*completed)
                return size
        elif size == RESULT_SIZE and end - at >= size:
            result = read_result(data, at)
            if result is not None:
                channel, number, status = result
                publisher = self._publisher(channel)
                publisher.numbers.received += 1
                if publisher.on_result(number, status, self.now):
                    self._woken.append(publisher)
                return size
        return 0

    def _on_received(self, received: ReceivedAssembly) -> None:
        found = received.what
        raise_if_ended(found)
        if isinstance(found, SessionCompleted):
            for first, last in found.commands or ():
                self._completed(received.channel, first, last)
        if not isinstance(found, Command):
            return
        publisher = self._publisher(received.channel)
        publisher.numbers.received += 1
        wake = False
        if isinstance(found, MessageTransfer):
            raise PerfError(f"the broker sent a message to a producer ({self.label})")
        if isinstance(found, MessageAccept | MessageReject):
            for first, last in found.transfers or ():
                rejected = isinstance(found, MessageReject)
                wake |= publisher.on_accepted(first, last, self.now, rejected=rejected)
        elif isinstance(found, ExecutionResult):
            wake = publisher.on_result(int(found.command_id or 0), status_of(found.value), self.now)
        if wake:
            self._woken.append(publisher)

    def _completed(self, channel: int, first: int, last: int) -> None:
        publisher = self._publisher(channel)
        if publisher.on_completed(first, last, self.now):
            self._woken.append(publisher)
