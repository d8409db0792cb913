"""A connection that publishes, on one or more sessions."""

from __future__ import annotations

from struct import Struct
from typing import Final

from escrowmq.perf.amqp010.connection import SessionConnection
from escrowmq.perf.amqp010.frames import FrameReader, Received, raise_if_ended
from escrowmq.perf.amqp010.publishers import SessionPublisher, status_of
from escrowmq.perf.channels import ChannelProducer
from escrowmq.perf.errors import PerfError
from escrowmq.perf.totals import Totals
from escrowmq.wire.amqp010.codec.frames import COMMAND, CONTROL, HEAD_SIZE, WHOLE
from escrowmq.wire.amqp010.codec.spec import (
    ExecutionResult,
    MessageAccept,
    MessageReject,
    MessageTransfer,
    SessionCompleted,
    XaResult,
)
from escrowmq.wire.amqp010.codec.structs import Command

# Of most answers only the numbers differ, so these are read without the codec: session.completed with one range, and
# execution.result with an XA status.
_COMPLETED: Final = Struct(">BBHxBH4x 4sHII")
_COMPLETED_HEAD: Final = (WHOLE, CONTROL, _COMPLETED.size, 0)
_COMPLETED_FIELDS: Final = SessionCompleted.CODE.to_bytes(2, "big") + b"\x01\x00", 8
_RESULT: Final = Struct(">BBHxBH4x 2s2x2sI 8sH")
_RESULT_HEAD: Final = (WHOLE, COMMAND, _RESULT.size, 1)
_RESULT_FIELDS: Final = ExecutionResult.CODE.to_bytes(2, "big"), b"\x03\x00"
_RESULT_XA: Final = b"\0\0\0\x06" + XaResult.CODE.to_bytes(2, "big") + b"\x01\x00"


class SessionsProducer(ChannelProducer[SessionPublisher]):
    """Sends the transfers of its publishers."""

    def __init__(
        self, connection: SessionConnection, totals: Totals, label: str, publishers: list[SessionPublisher]
    ) -> None:
        super().__init__(connection.socket, totals, label, publishers)
        self.connection = connection
        self._reader = FrameReader(self._on_received)
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
        if size == _COMPLETED.size and end - at >= size:
            *head, channel, code, width, first, last = _COMPLETED.unpack_from(data, at)
            if tuple(head) == _COMPLETED_HEAD and (code, width) == _COMPLETED_FIELDS:
                self._completed(channel, first, last)
                return size
        elif size == _RESULT.size and end - at >= size:
            *head, channel, code, flags, number, struct, status = _RESULT.unpack_from(data, at)
            if tuple(head) == _RESULT_HEAD and (code, flags) == _RESULT_FIELDS and struct == _RESULT_XA:
                publisher = self._publisher(channel)
                publisher.numbers.received += 1
                if publisher.on_result(number, status, self.now):
                    self._woken.append(publisher)
                return size
        return 0

    def _on_received(self, received: Received) -> None:
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
