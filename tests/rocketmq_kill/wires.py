"""Connections of either protocol that write many requests at once, and report each answer. They share no code with the
broker's endpoints, only the encodings of the load tool.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from google.protobuf.timestamp_pb2 import Timestamp

from escrowmq.perf.errors import PerfError
from escrowmq.perf.rocketmq.grpc.caller import GrpcCaller
from escrowmq.perf.rocketmq.grpc.transport import CallTemplate
from escrowmq.perf.rocketmq.properties import rendered
from escrowmq.perf.rocketmq.remoting.answers import CHECK_TRANSACTION, answers
from escrowmq.perf.rocketmq.remoting.caller import RemotingCaller
from escrowmq.perf.rocketmq.remoting.encoding import SEND as SEND_CODE
from escrowmq.perf.rocketmq.remoting.encoding import command
from escrowmq.perf.rocketmq.remoting.producer import END_TRANSACTION, ONE_WAY
from escrowmq.perf.url import Target, parse_url
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
)
from tests.rocketmq_kill.ledger import COMMIT, DECISIONS, ROLL_BACK, SEND, STORE, Asked

TOPIC: Final = "orders"
QUEUES: Final = 4
_GROUP: Final = "shops"
_TIMEOUT: Final = 30.0
_CHUNK: Final = 1 << 18
_CODES: Final = {COMMIT: "8", ROLL_BACK: "12"}
_HALF_OFFSET: Final = 1 << 62

Note = Callable[[Asked, str, int], None]
"""Gets a request, the reason of its refusal or an empty text, and the number of the half message, if there is one."""


class Wire(Protocol):
    """A connection. Raises OSError when the broker is gone."""

    def exchange(self, requests: Sequence[Asked], note: Note, *, all_answered: bool = False) -> None:
        """Write all requests at once, and wait for their answers. With `all_answered`, decisions have answers too in a
        protocol that usually sends them one way.
        """

    def close(self) -> None: ...


class RemotingWire:
    """A classic client."""

    name = "remoting"

    def __init__(self, port: int) -> None:
        try:
            self._caller = RemotingCaller("127.0.0.1", port, _TIMEOUT)
        except PerfError as error:
            raise ConnectionError(error) from None
        self._turn = 0

    def exchange(self, requests: Sequence[Asked], note: Note, *, all_answered: bool = False) -> None:
        waiting: dict[int, Asked] = {}
        data = []
        for request in requests:
            self._turn += 1
            one_way = request.verb in DECISIONS and not all_answered
            data.append(self._encoded(request, ONE_WAY if one_way else 0))
            if not one_way:
                waiting[self._turn] = request
        self._caller.socket.sendall(b"".join(data))
        rest = self._caller.rest
        while waiting:
            received = self._caller.socket.recv(_CHUNK)
            if not received:
                raise ConnectionError("the broker has closed the connection")
            rest += received
            used = [0]
            for answer in answers(rest, len(rest), used):
                if answer.code == CHECK_TRANSACTION and not answer.is_response:
                    continue
                request = waiting.pop(answer.opaque)
                number = int(answer.value("queueOffset")) if request.verb == STORE and not answer.code else 0
                note(request, answer.remark if answer.code else "", number)
            del rest[: used[0]]

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
            return command(END_TRANSACTION, fields, opaque=self._turn, flag=flag)
        half = request.verb == STORE
        own = {"KEYS": request.ident, "UNIQ_KEY": request.ident, "WAIT": "true", "TAGS": "a"}
        own |= {"TRAN_MSG": "true", "PGROUP": _GROUP} if half else {}
        fields = {
            "a": _GROUP,
            "b": TOPIC,
            "c": "TBW102",
            "d": "4",
            "e": str(self._turn % QUEUES),
            "f": "4" if half else "0",
            "g": str(int(time.time() * 1000)),
            "h": "0",
            "i": rendered(own.items()),
            "j": "0",
            "k": "false",
            "m": "false",
        }
        return command(SEND_CODE, fields, request.ident.encode(), self._turn)

    def close(self) -> None:
        self._caller.close()


class GrpcWire:
    """A client of gRPC."""

    name = "gRPC"

    def __init__(self, port: int) -> None:
        target: Target = parse_url(f"rocketmq+grpc://127.0.0.1:{port}")
        try:
            self._caller = GrpcCaller(target, TOPIC, "", _TIMEOUT)
        except PerfError as error:
            raise ConnectionError(error) from None

    def exchange(self, requests: Sequence[Asked], note: Note, *, all_answered: bool = False) -> None:
        del all_answered  # they are always answered
        caller, transport = self._caller, self._caller.transport
        waiting: dict[int, Asked] = {}
        data = [*transport.control]
        transport.control.clear()
        for request in requests:
            stream = transport.next_stream()
            waiting[stream] = request
            method = "EndTransaction" if request.verb in DECISIONS else "SendMessage"
            data.append(CallTemplate(transport.block(method), _encoded(request)).call(stream, 0))
        caller.socket.sendall(b"".join(data))
        while waiting:
            received = caller.socket.recv(_CHUNK)
            if not received:
                raise ConnectionError("the broker has closed the connection")
            caller.rest += received
            used, found = transport.receive(caller.rest, len(caller.rest))
            del caller.rest[:used]
            for stream, message in found:
                if message is not None and stream in waiting:
                    request = waiting.pop(stream)
                    kind = EndTransactionResponse if request.verb in DECISIONS else SendMessageResponse
                    status = kind.FromString(message).status
                    note(request, "" if status.code == Code.OK else f"{status.code} {status.message}", 0)

    def close(self) -> None:
        self._caller.close()


def _encoded(request: Asked) -> bytes:
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
        born_timestamp=Timestamp(seconds=int(time.time())),
        born_host="127.0.0.1",
    )
    message = Message(topic=topic, system_properties=system, body=request.ident.encode())
    return SendMessageRequest(messages=[message]).SerializeToString()
