"""A raw session of AMQP 0-10 for kill tests. It sends ahead, and learns from completions which commands are done."""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from escrowmq.perf.amqp010.connection import SessionConnection
from escrowmq.perf.amqp010.frames import AssemblyReader, ReceivedAssembly, completed, raise_if_ended
from escrowmq.perf.url import parse_url
from escrowmq.wire.amqp010.codec.commands import encode_command, encode_header
from escrowmq.wire.amqp010.codec.frames import BODY, COMMAND, HEADER, assembly
from escrowmq.wire.amqp010.codec.spec import (
    AcceptMode,
    CreditUnit,
    DeliveryMode,
    DeliveryProperties,
    ExecutionResult,
    MessageAccept,
    MessageFlow,
    MessageSubscribe,
    MessageTransfer,
    SessionCompleted,
)
from escrowmq.wire.amqp010.codec.structs import Command

CHANNEL: Final = 1
_TIMEOUT: Final = 30.0
_UNLIMITED: Final = 0xFFFFFFFF


class RawSession:
    """A connection with one session. Raises OSError when the connection is lost, PerfError for a refusal."""

    def __init__(self, url: str) -> None:
        connection = SessionConnection(parse_url(url), _TIMEOUT)
        connection.attach(CHANNEL)
        self._socket = connection.socket
        self._frame_max = connection.frame_max
        self._reader = AssemblyReader(self._take)
        self._unread = connection.rest
        self._out: list[bytes] = []
        self._then: dict[int, Callable[[], None]] = {}
        self.next = 0
        """The number of the next command."""
        self.results: dict[int, Any] = {}
        """Results by the number of the command."""
        self.arrived: deque[tuple[int, bytes]] = deque()
        """Deliveries: the number of the transfer, and the body."""
        self.on_accepted: Callable[[int], None] = _ignore
        """Gets the number of each transfer that the broker accepts."""
        self._received = 0

    def send(self, command: Command, then: Callable[[], None] | None = None, *parts: tuple[int, bytes]) -> int:
        """Send a command at the next `pump`. `then` is called when it is completed. Returns its number."""
        number, self.next = self.next, self.next + 1
        if then is not None:
            self._then[number] = then
        self._out += map(bytes, assembly(CHANNEL, [(COMMAND, encode_command(command)), *parts], self._frame_max))
        return number

    def transfer(
        self, queue: str, body: bytes, then: Callable[[], None] | None = None, *, mode: int = AcceptMode.NONE
    ) -> int:
        """Send a durable message to a queue, as `send` does."""
        head = encode_header([DeliveryProperties(delivery_mode=DeliveryMode.PERSISTENT, routing_key=queue)])
        return self.send(MessageTransfer("", mode, 0), then, (HEADER, head), (BODY, body))

    def subscribe(self, queue: str) -> None:
        """Subscribe to a queue, with credit for everything. Deliveries have to be accepted."""
        self.send(MessageSubscribe(queue, queue, AcceptMode.EXPLICIT, 0))
        for unit in (CreditUnit.BYTE, CreditUnit.MESSAGE):
            self.send(MessageFlow(queue, unit, _UNLIMITED))

    def pump(self, wait: float = 0.01) -> None:
        """Send what is to be sent, and take what arrives within `wait` seconds."""
        if self._out:
            out, self._out = self._out, []
            self._socket.sendall(b"".join(out))
        before = self._received
        while select.select([self._socket], [], [], wait)[0]:
            wait = 0.0
            data = self._socket.recv(1 << 18)
            if not data:
                raise ConnectionError("the broker has closed the connection")
            self._unread += data
            at = 0
            while size := self._reader.take(self._unread, at, len(self._unread)):
                at += size
            self._unread = self._unread[at:]
        if self._received > before:
            self._out.append(completed(CHANNEL, before, self._received - 1))

    def call(self, command: Command) -> Any:
        """Send a command, and wait for its completion. Returns its result."""
        done: list[None] = []
        number = self.send(command, lambda: done.append(None))
        while not done:
            self.pump()
        return self.results.pop(number, None)

    def close(self) -> None:
        self._socket.close()

    def _take(self, received: ReceivedAssembly) -> None:
        found = received.what
        raise_if_ended(found)
        if isinstance(found, SessionCompleted):
            for first, last in found.commands or ():
                for number in range(first, last + 1):
                    self._then.pop(number, _nothing)()
        if not isinstance(found, Command):
            return
        if isinstance(found, MessageTransfer):
            self.arrived.append((self._received, received.body))
        elif isinstance(found, ExecutionResult):
            self.results[int(found.command_id or 0)] = found.value
        elif isinstance(found, MessageAccept):
            for first, last in found.transfers or ():
                for number in range(first, last + 1):
                    self.on_accepted(number)
        self._received += 1


def _ignore(number: int) -> None:
    """Nobody wants to know."""


def _nothing() -> None:
    """Nobody waits for the completion."""
