"""A connection that sends over gRPC: normal messages, or transactions."""

from __future__ import annotations

import struct
import sys
from typing import Final

from escrowmq.perf.errors import PerfError
from escrowmq.perf.messages import LoadMessage
from escrowmq.perf.pace import Pace
from escrowmq.perf.peer import Producer
from escrowmq.perf.rocketmq.grpc.caller import GrpcCaller
from escrowmq.perf.rocketmq.grpc.requests import check, end_request, send_request
from escrowmq.perf.rocketmq.grpc.transport import CallMessage, CallTemplate
from escrowmq.perf.rocketmq.properties import DIGITS, FIRST_NUMBER, id_prefix, numbered
from escrowmq.perf.totals import Totals
from escrowmq.wire.rocketmq.proto.definition_pb2 import Code
from escrowmq.wire.rocketmq.proto.service_pb2 import EndTransactionResponse, SendMessageResponse, TelemetryCommand

ID_LENGTH: Final = 34
_STAMP: Final = struct.Struct(">Q")
_MOST_IN_A_WRITE: Final = 64


class GrpcSender(Producer):
    """Keeps sends, or transactions, in flight. A transaction ends with the answer to its commit."""

    def __init__(
        self,
        caller: GrpcCaller,
        totals: Totals,
        label: str,
        made: list[LoadMessage],
        topic: str,
        *,
        transactional: bool,
        count: int | None,
        window: int,
        stamped: bool,
    ) -> None:
        """`count` None: send until `stop`."""
        super().__init__(caller.socket, totals, label)
        self._transport = caller.transport
        self._telemetry = caller.telemetry
        self._topic = topic
        self._transactional = transactional
        self._limit = sys.maxsize if count is None else count
        self._window = window
        self._stamped = stamped
        self._ident = numbered(id_prefix(ID_LENGTH), FIRST_NUMBER)
        self._block = self._transport.block("SendMessage")
        self._calls = [self._template(message) for message in made]
        self._prefix = self._ident[:-DIGITS]
        end = end_request(topic, self._ident, self._ident, from_check=False)
        self._usual_end = CallTemplate(self._transport.block("EndTransaction"), end, fixed=False)
        self._sent = self._done = 0
        self._sends: dict[int, int] = {}  # numbers of the sends in flight, by stream
        self._ends: dict[int, None] = {}  # streams of the commits in flight
        self._again: list[int] = []
        self._pace: Pace | None = None
        self._probe: tuple[int, int] | None = None
        self._filled = len(caller.rest)
        self._buffer[: self._filled] = caller.rest

    def _template(self, message: LoadMessage) -> CallTemplate:
        request = send_request(message, self._topic, self._ident, transactional=self._transactional)
        template = CallTemplate(self._block, request, fixed=False)
        if self._stamped:
            template.locate(message.body)
        return template

    @property
    def finished(self) -> bool:
        return not self._unsent and self._sent >= self._limit and self._done == self._sent

    def due_at(self) -> int | None:
        waits = self._unsent or self._sent >= self._limit or self._sent - self._done >= self._window
        return None if self._pace is None or waits else self._pace.time_of(self._sent)

    def set_pace(self, rate: float, starts: list[int]) -> None:
        self._pace = Pace(rate, starts[0])

    def stop(self) -> None:
        self._limit = min(self._limit, self._sent)

    def wake(self, now: int) -> None:
        self.pump(now)

    def pump(self, now: int) -> None:
        self.now = now
        if self._unsent and not self._send(self._unsent):
            return
        data = self._next(now)
        if data:
            self._send(memoryview(data))
        else:
            self.wants_write = False

    def _next(self, now: int) -> bytes:
        transport = self._transport
        pieces = transport.control
        transport.control = []
        again, self._again = self._again, []
        for number in again:
            pieces.append(self._call(number, now))
        room = min(self._limit - self._sent, self._window - self._sent + self._done, _MOST_IN_A_WRITE)
        if self._pace is not None:
            room = min(room, self._pace.due(now) - self._sent)
        while room > 0 and transport.window > self._calls[self._sent % len(self._calls)].size:
            stamp = now if self._pace is None else self._pace.time_of(self._sent)
            pieces.append(self._call(self._sent, stamp))
            self._sent += 1
            room -= 1
            self.totals.published += 1
            self.totals.published_at = now
            if self._probe is None:
                self._probe = self._sent - 1, now
        return b"".join(pieces)

    def _call(self, number: int, stamp: int) -> bytes:
        template = self._calls[number % len(self._calls)]
        stream = self._transport.next_stream()
        self._sends[stream] = number
        self._transport.window -= template.size
        return template.call(stream, number, _STAMP.pack(stamp) if self._stamped else b"")

    def parse(self, data: bytearray, end: int) -> int:
        used, found = self._transport.receive(data, end)
        for each in found:
            if each.stream == self._telemetry:
                self._checked(each)
            elif each.message is not None:
                self._answered(each.stream, each.message)
            elif each.stream in self._sends or each.stream in self._ends:
                raise PerfError(f"a call ended without an answer ({self.label})")
        if used:
            self.pump(self.now)
        return used

    def _answered(self, stream: int, message: bytes) -> None:
        if self._ends.pop(stream, self) is None:
            check(EndTransactionResponse.FromString(message).status, self.label)
            self._complete()
            return
        number = self._sends.pop(stream)
        answer = SendMessageResponse.FromString(message)
        if answer.status.code == Code.TOO_MANY_REQUESTS:
            self._again.append(number)
            return
        check(answer.status, self.label)
        if self._probe is not None and self._probe[0] == number:
            self.totals.answer.record(self.now - self._probe[1])
            self._probe = None
        if self._transactional:
            entry = answer.entries[0]
            if entry.message_id == entry.transaction_id == self._prefix + str(FIRST_NUMBER + number):
                self._commit(self._usual_end, number)
            else:
                request = end_request(self._topic, entry.message_id, entry.transaction_id, from_check=False)
                self._commit(CallTemplate(self._transport.block("EndTransaction"), request), number)
        else:
            self._complete()

    def _complete(self) -> None:
        self._done += 1
        self.totals.confirmed += 1
        self.totals.confirmed_at = self.now

    def _commit(self, template: CallTemplate, number: int) -> int:
        """Send a commit, and return its stream."""
        stream = self._transport.next_stream()
        self._ends[stream] = None
        self._transport.window -= template.size
        self._transport.control.append(template.call(stream, number))
        return stream

    def _checked(self, each: CallMessage) -> None:
        """Commit a half message about which the broker asks."""
        if each.message is None:
            raise PerfError(f"the broker ended the telemetry stream ({self.label})")
        command = TelemetryCommand.FromString(each.message)
        if command.WhichOneof("command") == "recover_orphaned_transaction_command":
            asked = command.recover_orphaned_transaction_command
            ident = asked.message.system_properties.message_id
            request = end_request(self._topic, ident, asked.transaction_id, from_check=True)
            template = CallTemplate(self._transport.block("EndTransaction"), request)
            del self._ends[self._commit(template, self._sent)]  # its answer does not count
