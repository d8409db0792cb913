"""Blocking clients of AMQP 0-10 over a socket, made of the broker's own codec."""

from __future__ import annotations

import socket
import ssl
from collections import deque
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import pytest

from escrowmq.wire.amqp010.codec.commands import (
    decode_command,
    decode_control,
    encode_command,
    encode_header,
)
from escrowmq.wire.amqp010.codec.frames import (
    BODY,
    COMMAND,
    CONTROL,
    FRAME_HEAD,
    HEAD_SIZE,
    HEADER,
    PROTOCOL_HEADER,
    Assembly,
    assembly,
    control_frame,
)
from escrowmq.wire.amqp010.codec.spec import (
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    CreditUnit,
    DeliveryProperties,
    ExecutionException,
    ExecutionResult,
    FlowMode,
    MessageAccept,
    MessageFlow,
    MessageFlush,
    MessageSetFlowMode,
    MessageSubscribe,
    MessageTransfer,
    SessionAttach,
    SessionAttached,
    SessionCommandPoint,
    SessionCompleted,
)
from escrowmq.wire.amqp010.codec.structs import Command, Control
from escrowmq.wire.amqp010.credit import INFINITE

FRAME_MAX: Final = 65_535
TIMEOUT: Final = 20.0
_PLENTY: Final = (1 << 20,) * 4


class Received(NamedTuple):
    """A control or a command from the server, and the body and header of a message."""

    channel: int
    operation: Any
    body: bytes
    header: bytes


class Transferred(NamedTuple):
    """A message from the server, and the number of its transfer."""

    number: int
    body: bytes


class SocketLink:
    """A connection that is logged in and opened, by TLS if there is a `context`. It has no sessions yet."""

    def __init__(
        self, port: int, user: str = "guest", password: str = "guest", context: ssl.SSLContext | None = None
    ) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), TIMEOUT)
        if context is not None:
            self._socket = context.wrap_socket(self._socket, server_hostname="localhost")
        self._data = b""
        self._taken: dict[tuple[int, int], Assembly] = {}
        self._inbox: deque[Received] = deque()
        self._socket.sendall(PROTOCOL_HEADER)
        self._data = self._take(len(PROTOCOL_HEADER))[len(PROTOCOL_HEADER) :]
        self.expect(ConnectionStart)
        self.control(ConnectionStartOk({}, "PLAIN", f"\0{user}\0{password}".encode(), "en_US"), 0)
        tune = self.expect(ConnectionTune)
        self.control(ConnectionTuneOk(tune.channel_max, FRAME_MAX, 0), 0)
        self.control(ConnectionOpen("/"), 0)
        self.expect(ConnectionOpenOk)

    def close(self) -> None:
        """Close the socket, as if the client had died."""
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self._socket.sendall(data)

    def control(self, control: Control, channel: int = 1) -> None:
        """Send a control."""
        self.send(control_frame(channel, control))

    def expect(self, kind: type[Any]) -> Any:
        """Return the next control or command, which must be of this class."""
        operation = self.receive().operation
        assert isinstance(operation, kind), operation
        return operation

    def receive(self) -> Received:
        """Return the next control, or command with its body."""
        while not self._inbox:
            head = self._take(HEAD_SIZE)
            flags, kind, size, track, channel = FRAME_HEAD.unpack_from(head)
            frame = self._take(size)
            self._data = frame[size:]
            taken = self._taken.setdefault((channel, track), Assembly(_PLENTY))
            if taken.take(flags, kind, frame[HEAD_SIZE:size]):
                del self._taken[channel, track]
                self._inbox.append(Received(channel, *_decoded(taken.segments)))
        return self._inbox.popleft()

    def _take(self, size: int) -> bytes:
        """Return what has arrived, at least `size` octets."""
        while len(self._data) < size:
            more = self._socket.recv(65_536)
            assert more, "the broker has closed the connection"
            self._data += more
        return self._data


class SocketClient:
    """A client with one session, on channel 1. A refusal raises AssertionError with the exception's code."""

    def __init__(self, port: int, name: bytes = b"session") -> None:
        self._link = link = SocketLink(port)
        self._next = 0
        self._received = 0
        self._transfers: deque[Transferred] = deque()
        link.control(SessionAttach(name))
        link.expect(SessionAttached)
        link.control(SessionCommandPoint(0, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._link.close()

    # -- commands

    def do(self, command: Command, header: bytes | None = None, body: bytes | None = None) -> Any:
        """Send a command, and wait for its completion. Return its result, if it has one."""
        number = self._next
        self._next += 1
        self._link.send(command_frames(command, header, body))
        result = None
        while True:
            _, operation, content, _ = self._link.receive()
            if isinstance(operation, ExecutionException):
                pytest.fail(f"refused with {operation.error_code}: {operation.description}")
            if isinstance(operation, ExecutionResult):
                result = operation.value
            elif isinstance(operation, MessageTransfer):
                self._transfers.append(Transferred(self._received, content))
            elif isinstance(operation, SessionCompleted) and _covers(operation, number):
                return result
            if isinstance(operation, Command):
                self._received += 1

    def publish(self, queue: str, body: bytes) -> None:
        """Publish a persistent message to a queue."""
        header = encode_header([DeliveryProperties(routing_key=queue, delivery_mode=2)])
        self.do(MessageTransfer("", 1, 0), header, body)

    def subscribe(self, queue: str) -> None:
        """Subscribe to a queue, without credit yet. `take` gives it."""
        self.do(MessageSubscribe(queue, queue, accept_mode=0, acquire_mode=0))
        self.do(MessageSetFlowMode(queue, FlowMode.CREDIT))

    def take(self, queue: str) -> bytes | None:
        """Return the next message of a subscription, and accept it; None if there is none."""
        transferred = self.next(queue)
        if transferred is None:
            return None
        number, body = transferred
        self.do(MessageAccept(((number, number),)))
        return body

    def next(self, queue: str) -> Transferred | None:
        """Return the next message of a subscription, which is not settled; None if there is none.

        A flush takes all credit away, that in bytes too.
        """
        self.do(MessageFlow(queue, CreditUnit.BYTE, INFINITE))
        self.do(MessageFlow(queue, CreditUnit.MESSAGE, 1))
        self.do(MessageFlush(queue))
        return self._transfers.popleft() if self._transfers else None


def command_frames(
    command: Command, header: bytes | None = None, body: bytes | None = None, frame_max: int = FRAME_MAX
) -> bytes:
    """Return the frames of a command on channel 1."""
    segments: list[Any] = [(COMMAND, encode_command(command, sync=True))]
    segments += [(kind, part) for kind, part in ((HEADER, header), (BODY, body)) if part is not None]
    return b"".join(assembly(1, segments, frame_max))


def _covers(control: SessionCompleted, number: int) -> bool:
    return any(first <= number <= last for first, last in control.commands or ())


def _decoded(segments: dict[int, bytes]) -> tuple[Any, bytes, bytes]:
    if CONTROL in segments:
        return decode_control(segments[CONTROL]), b"", b""
    command, _ = decode_command(segments[COMMAND])
    return command, segments.get(BODY, b""), segments.get(HEADER, b"")
