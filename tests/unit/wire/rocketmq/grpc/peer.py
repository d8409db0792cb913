"""A client of RocketMQ's gRPC service, made of the library h2, in front of a simulated server."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import h2.config
import h2.connection
import h2.events

from escrowmq.wire.rocketmq.grpc.endpoint import GrpcEndpoint
from escrowmq.wire.rocketmq.grpc.framing import prefixed
from escrowmq.wire.rocketmq.grpc.methods import METHODS, SERVICE, UnaryMethod
from escrowmq.wire.rocketmq.proto import service_pb2 as messages
from escrowmq.wire.rocketmq.proto.definition_pb2 import Encoding, Message, MessageType, Resource, SystemProperties
from tests.unit.wire.amqp091.clients import Server, server

if TYPE_CHECKING:
    from tests.harness.server import Port

__all__ = ["GrpcPeer", "Server", "message", "server"]

PREFIX = struct.Struct(">BI")


class GrpcPeer:
    """A connection. `run` makes calls; a call that is not finished stays open."""

    def __init__(self, made: Server, client_id: str = "client-1", **headers: str) -> None:
        self.server = made
        self.port: Port[GrpcEndpoint] = made.open(GrpcEndpoint)
        self.client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self.client.initiate_connection()
        self.client_id = client_id
        self.headers = headers
        self.bodies: dict[int, bytes] = {}
        self.trailers: dict[int, dict[str, str]] = {}
        self.resets: dict[int, int] = {}
        self.exchange()

    @property
    def endpoint(self) -> GrpcEndpoint:
        return self.port.endpoint

    def topic(self, name: str, kind: str = "normal", partitions: int = 4) -> None:
        broker = self.server.broker
        broker.topics.declare(broker.directory.vhost("/"), name, partitions, kind)
        self.server.end_turn()
        self.server.run_disk()

    def exchange(self, *, disk: bool = True) -> None:
        """Pass bytes both ways until none are left."""
        while True:
            up = self.client.data_to_send()
            if up:
                self.server.receive(self.port, up)
            self.server.end_turn()
            if disk:
                self.server.run_disk()
            down = bytes(self.port.sent)
            self.port.sent.clear()
            if not up and not down:
                return
            for event in self.client.receive_data(down) if down else ():
                self._take(event)

    def _take(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.DataReceived():
                self.bodies[event.stream_id] += event.data
                self.client.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case h2.events.TrailersReceived() | h2.events.ResponseReceived():
                found = {str(name): str(value) for name, value in event.headers}
                self.trailers.setdefault(event.stream_id, {}).update(found)
            case h2.events.StreamReset():
                self.resets[event.stream_id] = int(event.error_code)

    def open(self, name: str, **headers: str) -> int:
        """Begin a call. Return its stream."""
        number = self.client.get_next_available_stream_id()
        given = {
            ":method": "POST",
            ":scheme": "http",
            ":path": SERVICE.decode() + name,
            ":authority": "broker",
            "content-type": "application/grpc",
            "te": "trailers",
            "x-mq-client-id": self.client_id,
            "x-mq-language": "TEST",
        }
        given |= {key.replace("_", "-"): value for key, value in (self.headers | headers).items()}
        self.client.send_headers(number, [(key, value) for key, value in given.items() if value])
        self.bodies[number] = b""
        return number

    def send(self, number: int, request: Any, *, ends: bool = False) -> None:
        data = request if isinstance(request, bytes) else prefixed(request.SerializeToString())
        while len(data) > 16_000:
            self.client.send_data(number, data[:16_000])
            data = data[16_000:]
            self.exchange()
        self.client.send_data(number, data, end_stream=ends)

    def begin(self, name: str, request: Any, *, disk: bool = True, **headers: Any) -> int:
        """Make a call, and return its stream without waiting for its end."""
        number = self.open(name, **headers)
        self.send(number, request, ends=True)
        self.exchange(disk=disk)
        return number

    def run(self, name: str, request: Any, **headers: Any) -> Any:
        """Make a call, and return its only response."""
        number = self.begin(name, request, **headers)
        assert self.status(number) == 0, self.trailers.get(number)
        (response,) = self.responses(name, number)
        return response

    def status(self, number: int) -> int | None:
        """Return the status with which a call has ended, None before that."""
        found = self.trailers.get(number, {}).get("grpc-status")
        return None if found is None else int(found)

    def responses(self, name: str, number: int) -> list[Any]:
        method = METHODS[SERVICE + name.encode()]
        kind = method.response if isinstance(method, UnaryMethod) else messages.TelemetryCommand
        body, found = self.bodies[number], []
        while body:
            _, length = PREFIX.unpack_from(body)
            found.append(kind.FromString(body[PREFIX.size : PREFIX.size + length]))
            body = body[PREFIX.size + length :]
        return found

    def end(self) -> None:
        self.server.lose(self.port)


def message(
    topic: str, body: bytes = b"body", ident: str = "ID1", kind: MessageType = MessageType.NORMAL, **system: Any
) -> Message:
    """Return a message as a producer sends it."""
    properties = system.pop("properties", {})
    return Message(
        topic=Resource(name=topic),
        user_properties=properties,
        body=body,
        system_properties=SystemProperties(
            message_id=ident,
            message_type=kind,
            body_encoding=Encoding.IDENTITY,
            **system,
        ),
    )
