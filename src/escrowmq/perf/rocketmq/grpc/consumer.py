"""A connection that receives over gRPC, one request for each queue, and acknowledges each message, as clients do."""

from __future__ import annotations

from escrowmq.perf.errors import PerfError
from escrowmq.perf.peer import Consumer
from escrowmq.perf.rocketmq.grpc.caller import GrpcCaller
from escrowmq.perf.rocketmq.grpc.requests import ack_request, check, receive_request
from escrowmq.perf.rocketmq.grpc.transport import CallTemplate
from escrowmq.perf.rocketmq.remoting.encoding import stamp_of
from escrowmq.perf.sampling import SAMPLED_BYTES, PublishedContents
from escrowmq.perf.totals import Totals
from escrowmq.wire.rocketmq.proto.definition_pb2 import Code, Message
from escrowmq.wire.rocketmq.proto.service_pb2 import AckMessageResponse, ReceiveMessageResponse


class GrpcReceiver(Consumer):
    """Receives from some queues. A message counts when its acknowledgement is answered."""

    def __init__(
        self,
        caller: GrpcCaller,
        totals: Totals,
        label: str,
        contents: PublishedContents,
        *,
        topic: str,
        group: str,
        queues: list[int],
        batch: int,
        stamped: bool,
    ) -> None:
        """`batch` is the most messages in an answer."""
        super().__init__(caller.socket, totals, label)
        self._transport = caller.transport
        self._contents = contents
        self._topic = topic
        self._group = group
        self._stamped = stamped
        block = self._transport.block("ReceiveMessage")
        self._receives = {queue: CallTemplate(block, receive_request(topic, group, queue, batch)) for queue in queues}
        self._ack_block = self._transport.block("AckMessage")
        self._receiving: dict[int, int] = {}  # queues by stream
        self._acks: dict[int, int] = {}  # queues by stream
        self._pending = dict.fromkeys(queues, 0)  # acknowledgements that are not answered yet
        self._started = False
        self._filled = len(caller.rest)
        self._buffer[: self._filled] = caller.rest

    @property
    def subscribed(self) -> bool:
        return self._started

    def start(self, now: int) -> None:
        self._started = True
        for queue in self._receives:
            self._receive(queue)
        self.pump(now)

    def pump(self, now: int) -> None:
        self.now = now
        if self._unsent and not self._send(self._unsent):
            return
        control, self._transport.control = self._transport.control, []
        if control:
            self._send(memoryview(b"".join(control)))
        else:
            self.wants_write = False

    def finish(self, now: int) -> None:
        """Do nothing: every message is acknowledged when it counts."""

    def parse(self, data: bytearray, end: int) -> int:
        used, found = self._transport.receive(data, end)
        for stream, message in found:
            if stream in self._acks:
                self._acknowledged(stream, message)
            elif stream in self._receiving:
                queue = self._receiving[stream]
                if message is not None:
                    self._take(queue, ReceiveMessageResponse.FromString(message))
                else:
                    del self._receiving[stream]
                    self._go_on(queue)
        if used:
            self.pump(self.now)
        return used

    def _take(self, queue: int, response: ReceiveMessageResponse) -> None:
        kind = response.WhichOneof("content")
        if kind == "status" and response.status.code != Code.MESSAGE_NOT_FOUND:
            check(response.status, self.label)
        if kind != "message":
            return
        message = response.message
        system = message.system_properties
        if self._stamped:
            self.totals.delivery.record(self.now - stamp_of(message.body))
        if not self._pending[queue]:
            self._compare(message)
        self._pending[queue] += 1
        stream = self._transport.next_stream()
        self._acks[stream] = queue
        request = ack_request(self._topic, self._group, system.message_id, system.receipt_handle)
        template = CallTemplate(self._ack_block, request)
        self._transport.window -= template.size
        self._transport.control.append(template.call(stream, stream))

    def _compare(self, message: Message) -> None:
        """Compare one message of each answer with those that were published."""
        keys, body = message.system_properties.keys, message.body
        self._contents.check(keys[0] if keys else None, None, len(body), body[:SAMPLED_BYTES])

    def _acknowledged(self, stream: int, message: bytes | None) -> None:
        queue = self._acks.pop(stream)
        if message is None:
            raise PerfError(f"an acknowledgement ended without an answer ({self.label})")
        check(AckMessageResponse.FromString(message).status, self.label)
        self.totals.consumed += 1
        self.totals.consumed_at = self.now
        self._pending[queue] -= 1
        self._go_on(queue)

    def _go_on(self, queue: int) -> None:
        """Ask for more when all messages of the last answer are acknowledged."""
        if not self._pending[queue] and queue not in self._receiving.values():
            self._receive(queue)

    def _receive(self, queue: int) -> None:
        stream = self._transport.next_stream()
        self._receiving[stream] = queue
        template = self._receives[queue]
        self._transport.window -= template.size
        self._transport.control.append(template.call(stream, stream))
