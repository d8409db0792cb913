"""The broker's own CPU time per message of RocketMQ's protocols: endpoint, core and journal, without sockets.

python bench/rocketmq_path.py [--count 20000] [--only sends] [--profile]

It is `hot_path.py` for RocketMQ. Each message has about 100 bytes, and an id and a key of its own. A client sends 64
requests in a turn, or one batch of 32; their answers wait for one sync. The requests are encoded beforehand.
"""

from __future__ import annotations

import cProfile
import gc
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import click

from bench.hot_path import Host
from escrowmq.perf.messages import Variety, messages
from escrowmq.perf.rocketmq.grpc.requests import ack_request, end_request, receive_request, send_request
from escrowmq.perf.rocketmq.grpc.transport import CallTemplate, GrpcTransport
from escrowmq.perf.rocketmq.properties import FIRST_NUMBER, id_prefix, numbered
from escrowmq.perf.rocketmq.remoting.answers import answers
from escrowmq.perf.rocketmq.remoting.encoding import SendBlock, SendTarget, command
from escrowmq.wire.endpoint import Endpoint, Peer, Verdict
from escrowmq.wire.outbox import Piece
from escrowmq.wire.rocketmq.grpc.endpoint import GrpcEndpoint
from escrowmq.wire.rocketmq.proto.service_pb2 import ReceiveMessageResponse, SendMessageResponse
from escrowmq.wire.rocketmq.remoting.connection import RemotingConnection
from escrowmq.wire.sasl import Credentials

IN_FLIGHT = 64
PULLED = 32
TOPIC = "T"
GROUP = "G"
_MADE = list(messages(Variety(message_ids=True), 100, 2048))
T = TypeVar("T")


class RocketmqHost(Host):
    """The host, with a topic, and with objects that connections share."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._common: dict[type, object] = {}
        self._outputs: list[bytes] = []
        self.used = 0.0

    def common(self, kind: type[T]) -> T:
        found = self._common.setdefault(kind, kind())
        assert isinstance(found, kind)
        return found

    def authenticate(self, endpoint: Endpoint, credentials: Credentials, done: Callable[[Verdict], None]) -> None:
        done(Verdict("guest"))

    def serve(self, endpoint: Endpoint, data: bytes) -> bytes:
        """Let the endpoint process one read. Return its output after the sync, and count the CPU time."""
        begin = time.thread_time()
        endpoint.receive(data)
        out = self._turns()
        self.used += time.thread_time() - begin
        return out

    def _turns(self) -> bytes:
        self._outputs.clear()
        self.turn()
        return b"".join(self._outputs)

    def sent(self, pieces: list[Piece]) -> None:
        self._outputs += [bytes(piece) for piece in pieces]


def remoting(host: RocketmqHost) -> RemotingConnection:
    """Return a connection of classic remoting."""
    return RemotingConnection(host, Peer("127.0.0.1", 1, loopback=True))


def read(data: bytes) -> list[dict[str, str]]:
    """Return the fields of responses. Raises RuntimeError for a refusal."""
    found = []
    for answer in answers(bytearray(data), len(data), [0]):
        if answer.code:
            raise RuntimeError(answer.remark)
        found.append(answer.fields)
    return found


def sends(host: RocketmqHost, count: int) -> None:
    """Normal sends over remoting."""
    _send(host, count, SendTarget(TOPIC, 4, GROUP), IN_FLIGHT)


def batches(host: RocketmqHost, count: int) -> None:
    """Batches of 32."""
    _send(host, count // PULLED, SendTarget(TOPIC, 4, GROUP, batch=PULLED), 1)


def transactions(host: RocketmqHost, count: int) -> None:
    """Half messages, and their commits with the next half messages."""
    _send(host, count, SendTarget(TOPIC, 4, GROUP, transactional=True), IN_FLIGHT)


def _send(host: RocketmqHost, count: int, target: SendTarget, at_once: int) -> None:
    connection, block = remoting(host), SendBlock(_MADE, target, id_prefix(32))
    ends = b""
    for number in range(0, count, at_once):
        out = host.serve(connection, ends + block.take(number, at_once, None))
        if target.transactional:
            ends = b"".join(_end(fields) for fields in read(out))
    if ends:
        host.serve(connection, ends)


def _end(fields: dict[str, str]) -> bytes:
    offset = str(int(fields["msgId"][-16:], 16))
    wanted = {
        "topic": TOPIC,
        "producerGroup": GROUP,
        "tranStateTableOffset": fields["queueOffset"],
        "commitLogOffset": offset,
        "commitOrRollback": "8",
        "fromTransactionCheck": "false",
        "msgId": fields["transactionId"],
        "transactionId": fields["transactionId"],
    }
    return command(37, wanted, flag=2)


def pulls(host: RocketmqHost, count: int) -> None:
    """Pulls of 32 messages, which were stored before."""
    used = host.used
    batches(host, count)
    host.used = used
    connection = remoting(host)
    for queue in range(4):
        offset = 0
        while offset < count // 4 - PULLED:
            fields = {
                "consumerGroup": GROUP,
                "topic": TOPIC,
                "queueId": str(queue),
                "queueOffset": str(offset),
                "maxMsgNums": str(PULLED),
                "sysFlag": "7",
                "commitOffset": str(offset),
                "suspendTimeoutMillis": "15000",
                "subscription": "*",
                "subVersion": "0",
                "expressionType": "TAG",
            }
            (answer,) = read(host.serve(connection, command(11, fields)))
            offset = int(answer["nextBeginOffset"])


class Grpc:
    """A client of gRPC at its endpoint."""

    def __init__(self, host: RocketmqHost) -> None:
        self.host = host
        self.endpoint = GrpcEndpoint(host, Peer("127.0.0.1", 2, loopback=True))
        self.transport = GrpcTransport("127.0.0.1:8081", "client")
        self._kept = bytearray()

    def calls(self, templates: list[CallTemplate], first: int) -> Iterator[bytes]:
        """Make calls in one turn, and yield the messages that answer them."""
        transport = self.transport
        data = [*transport.control]
        transport.control.clear()
        data += [each.call(transport.next_stream(), number) for number, each in enumerate(templates, first)]
        self._kept += self.host.serve(self.endpoint, b"".join(data))
        used, found = transport.receive(self._kept, len(self._kept))
        del self._kept[:used]
        yield from [each.message for each in found if each.message is not None]


def grpc_sends(host: RocketmqHost, count: int) -> None:
    """Normal sends over gRPC."""
    _grpc_send(host, count, transactional=False)


def grpc_transactions(host: RocketmqHost, count: int) -> None:
    """Transactions over gRPC."""
    _grpc_send(host, count, transactional=True)


def _grpc_send(host: RocketmqHost, count: int, *, transactional: bool) -> None:
    client, ident = Grpc(host), numbered(id_prefix(34), FIRST_NUMBER)
    heads = [client.transport.block("SendMessage") for _ in range(2)]
    templates = [
        CallTemplate(head, send_request(message, TOPIC, ident, transactional=transactional), fixed=False)
        for head, message in zip([heads[0], *[heads[1]] * (len(_MADE) - 1)], _MADE, strict=True)
    ]
    again = send_request(_MADE[0], TOPIC, ident, transactional=transactional)
    templates.append(CallTemplate(heads[1], again, fixed=False))
    for number in range(0, count, IN_FLIGHT):
        at = number % 2048 if not number or number % 2048 else 0
        batch = templates[at : at + IN_FLIGHT]
        if number and not at:
            batch[0] = templates[-1]
        found = [SendMessageResponse.FromString(each) for each in client.calls(batch, number)]
        if transactional:
            head = client.transport.block("EndTransaction")
            entries = [each.entries[0] for each in found]
            ends = [
                CallTemplate(head, end_request(TOPIC, each.message_id, each.transaction_id, from_check=False))
                for each in entries
            ]
            for _ in client.calls(ends, 0):
                pass


def pops(host: RocketmqHost, count: int) -> None:
    """Messages that are received 32 at a time over gRPC, and acknowledged one by one."""
    used = host.used
    batches(host, count)
    host.used = used
    client, done = Grpc(host), 0
    while done < count - PULLED * 8:
        head = client.transport.block("ReceiveMessage")
        wanted = CallTemplate(head, receive_request(TOPIC, GROUP, 0, PULLED))
        found = [ReceiveMessageResponse.FromString(each) for each in client.calls([wanted], 0)]
        systems = [each.message.system_properties for each in found if each.WhichOneof("content") == "message"]
        head = client.transport.block("AckMessage")
        acks = [CallTemplate(head, ack_request(TOPIC, GROUP, each.message_id, each.receipt_handle)) for each in systems]
        for _ in client.calls(acks, 0):
            done += 1


LOADS: dict[str, Callable[[RocketmqHost, int], None]] = {
    "remoting: sends": sends,
    "remoting: batches of 32": batches,
    "remoting: transactions": transactions,
    "remoting: pulls of 32": pulls,
    "gRPC: sends": grpc_sends,
    "gRPC: transactions": grpc_transactions,
    "gRPC: received and acknowledged": pops,
}


def measure(name: str, count: int, profile: cProfile.Profile | None) -> float:
    """Return the CPU time of one message in µs."""
    with tempfile.TemporaryDirectory() as folder:
        host = RocketmqHost(Path(folder))
        host.broker.topics.declare(host.broker.directory.vhost("/"), TOPIC, 4, "mixed")
        gc.collect()
        gc.disable()
        if profile is not None:
            profile.enable()
        LOADS[name](host, count)
        if profile is not None:
            profile.disable()
        gc.enable()
        host.close()
    return host.used / count * 1e6


@click.command()
@click.option("--count", default=20_000, show_default=True, help="The number of messages of each load.")
@click.option("--only", default="", help="Measure only loads whose names contain this text.")
@click.option("--profile", is_flag=True, help="Print the functions that take most time.")
def main(count: int, only: str, profile: bool) -> None:
    """Print the CPU time per message of each load."""
    for name in LOADS:
        if only in name:
            profiler = cProfile.Profile() if profile else None
            print(f"{name:34}{measure(name, count, profiler):8.1f} µs", flush=True)
            if profiler is not None:
                profiler.print_stats("tottime")


if __name__ == "__main__":
    main()
