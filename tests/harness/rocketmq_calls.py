"""RocketMQ clients that write many requests at once, over either protocol, without sockets: bytes out, answers in.

They use the encodings of the load tool, and share no code with the broker's endpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, Protocol

from google.protobuf.timestamp_pb2 import Timestamp

from escrowmq.perf.rocketmq.grpc.requests import heartbeat_request, settings_request
from escrowmq.perf.rocketmq.grpc.transport import CallTemplate, GrpcTransport
from escrowmq.perf.rocketmq.properties import rendered
from escrowmq.perf.rocketmq.remoting.answers import CHECK_TRANSACTION, answers
from escrowmq.perf.rocketmq.remoting.encoding import SEND as SEND_CODE
from escrowmq.perf.rocketmq.remoting.encoding import command
from escrowmq.perf.rocketmq.remoting.producer import END_TRANSACTION, ONE_WAY
from escrowmq.wire.rocketmq.proto.definition_pb2 import (
    Code,
    Encoding,
    Message,
    MessageType,
    Resource,
    SystemProperties,
    TransactionResolution,
    TransactionSource,
)
from escrowmq.wire.rocketmq.proto.service_pb2 import (
    EndTransactionRequest,
    EndTransactionResponse,
    SendMessageRequest,
    SendMessageResponse,
    TelemetryCommand,
)

TOPIC: Final = "orders"
SEND: Final = "send"
STORE: Final = "store"
COMMIT: Final = "commit"
ROLL_BACK: Final = "roll back"
DECISIONS: Final = frozenset({COMMIT, ROLL_BACK})
_GROUP: Final = TOPIC
"""The group of all producers. Over gRPC it has the name of the topic."""
_CODES: Final = {COMMIT: "8", ROLL_BACK: "12"}
_HALF_OFFSET: Final = 1 << 62
_BORN_SECONDS: Final = 1_700_000_000
_LENGTH: Final = Struct(">i")
_BODY_AT: Final = 84
"""Where a stored message whose addresses are of IPv4 has the length of its body."""


class Asked(NamedTuple):
    """A request. `ident` is the id and the body of its message. `number` is that of an acknowledged half message, which
    the decisions of classic clients name.
    """

    verb: str
    ident: str
    number: int = 0


class Answered(NamedTuple):
    """An answer. `fault` is empty unless the request was refused. `number` is that of a half message, if the protocol
    tells it.
    """

    request: Asked
    fault: str = ""
    number: int = 0


class Checked(NamedTuple):
    """The broker asks for the outcome of a half message, which has this body."""

    ident: str
    number: int
    body: str


class Calls(Protocol):
    """The client's side of one connection."""

    waiting: dict[int, Asked]
    """The requests that have no answer yet."""

    def opening(self) -> bytes:
        """Return the first bytes of the connection."""
        ...

    def encode(self, requests: Sequence[Asked], *, all_answered: bool = False) -> bytes:
        """Return the bytes of requests, after those that the connection itself needs. With `all_answered`, decisions
        have answers too in a protocol that usually sends them one way.
        """
        ...

    def read(self, data: bytes) -> list[Answered | Checked]:
        """Take bytes from the broker. Raises PerfError if the connection has to be opened again."""
        ...


class RemotingCalls:
    """A classic client."""

    def __init__(self, queues: int) -> None:
        self.waiting: dict[int, Asked] = {}
        self._queues = queues
        self._opaque = 0
        self._rest = bytearray()

    def opening(self) -> bytes:
        return b""

    def encode(self, requests: Sequence[Asked], *, all_answered: bool = False) -> bytes:
        data = []
        for request in requests:
            self._opaque += 1
            one_way = request.verb in DECISIONS and not all_answered
            if not one_way:
                self.waiting[self._opaque] = request
            data.append(self._encoded(request, ONE_WAY if one_way else 0))
        return b"".join(data)

    def _encoded(self, request: Asked, flag: int) -> bytes:
        if request.verb in DECISIONS:
            fields = {
                "topic": TOPIC,
                "producerGroup": _GROUP,
                "tranStateTableOffset": str(request.number),
                "commitLogOffset": str(_HALF_OFFSET | request.number),
                "commitOrRollback": _CODES[request.verb],
                "fromTransactionCheck": "false",
                "msgId": request.ident,
                "transactionId": request.ident,
            }
            return command(END_TRANSACTION, fields, opaque=self._opaque, flag=flag)
        half = request.verb == STORE
        own = {"KEYS": request.ident, "UNIQ_KEY": request.ident, "WAIT": "true", "TAGS": "a"}
        own |= {"TRAN_MSG": "true", "PGROUP": _GROUP} if half else {}
        fields = {
            "a": _GROUP,
            "b": TOPIC,
            "c": "TBW102",
            "d": "4",
            "e": str(self._opaque % self._queues),
            "f": "4" if half else "0",
            "g": str(_BORN_SECONDS * 1000),
            "h": "0",
            "i": rendered(own.items()),
            "j": "0",
            "k": "false",
            "m": "false",
        }
        return command(SEND_CODE, fields, request.ident.encode(), self._opaque)

    def read(self, data: bytes) -> list[Answered | Checked]:
        self._rest += data
        used, found = [0], list[Answered | Checked]()
        for answer in answers(self._rest, len(self._rest), used):
            if answer.code == CHECK_TRANSACTION and not answer.is_response:
                start = _BODY_AT + _LENGTH.size
                body = answer.body[start : start + _LENGTH.unpack_from(answer.body, _BODY_AT)[0]]
                number = int(answer.fields["tranStateTableOffset"])
                found.append(Checked(answer.fields["transactionId"], number, body.decode()))
            elif answer.is_response:
                request = self.waiting.pop(answer.opaque)
                number = int(answer.value("queueOffset")) if request.verb == STORE and not answer.code else 0
                found.append(Answered(request, answer.remark if answer.code else "", number))
        del self._rest[: used[0]]
        return found


class GrpcCalls:
    """A client of gRPC, which has announced that it answers checks."""

    def __init__(self, client_id: str) -> None:
        self.waiting: dict[int, Asked] = {}
        self._transport = GrpcTransport("127.0.0.1", client_id, "0" * 36)
        self._telemetry = self._transport.next_stream()
        self._rest = bytearray()

    def opening(self) -> bytes:
        transport = self._transport
        settings = CallTemplate(transport.block("Telemetry"), settings_request(TOPIC, ""), ends=False)
        beat = CallTemplate(transport.block("Heartbeat"), heartbeat_request(""))
        return self.encode(()) + settings.call(self._telemetry, 0) + beat.call(transport.next_stream(), 0)

    def encode(self, requests: Sequence[Asked], *, all_answered: bool = False) -> bytes:
        del all_answered  # they are always answered
        transport = self._transport
        data = [*transport.control]
        transport.control.clear()
        for request in requests:
            stream = transport.next_stream()
            self.waiting[stream] = request
            method = "EndTransaction" if request.verb in DECISIONS else "SendMessage"
            data.append(CallTemplate(transport.block(method), _request(request)).call(stream, 0))
        return b"".join(data)

    def read(self, data: bytes) -> list[Answered | Checked]:
        self._rest += data
        used, arrived = self._transport.receive(self._rest, len(self._rest))
        del self._rest[:used]
        found: list[Answered | Checked] = []
        for stream, message in arrived:
            if message is None:
                self.waiting.pop(stream, None)  # the call has ended without an answer, at its deadline
            elif stream in self.waiting:
                request = self.waiting.pop(stream)
                kind = EndTransactionResponse if request.verb in DECISIONS else SendMessageResponse
                status = kind.FromString(message).status
                found.append(Answered(request, "" if status.code == Code.OK else f"{status.code} {status.message}"))
            elif stream == self._telemetry:
                told = TelemetryCommand.FromString(message)
                if told.HasField("recover_orphaned_transaction_command"):
                    orphan = told.recover_orphaned_transaction_command
                    found.append(Checked(orphan.transaction_id, 0, orphan.message.body.decode()))
        return found


def _request(request: Asked) -> bytes:
    topic = Resource(name=TOPIC)
    if request.verb in DECISIONS:
        commits = request.verb == COMMIT
        return EndTransactionRequest(
            topic=topic,
            message_id=request.ident,
            transaction_id=request.ident,
            resolution=TransactionResolution.COMMIT if commits else TransactionResolution.ROLLBACK,
            source=TransactionSource.SOURCE_CLIENT,
        ).SerializeToString()
    system = SystemProperties(
        tag="a",
        keys=[request.ident],
        message_id=request.ident,
        body_encoding=Encoding.IDENTITY,
        message_type=MessageType.NORMAL if request.verb == SEND else MessageType.TRANSACTION,
        born_timestamp=Timestamp(seconds=_BORN_SECONDS),
        born_host="127.0.0.1",
    )
    message = Message(topic=topic, system_properties=system, body=request.ident.encode())
    return SendMessageRequest(messages=[message]).SerializeToString()
