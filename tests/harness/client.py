"""A client that speaks AMQP 0-9-1 through real frames to a `SimServer`, one call after the other."""

from __future__ import annotations

from collections import deque
from typing import Any, Final, TypeVar

from escrowmq.wire.amqp091 import frames, spec
from escrowmq.wire.amqp091.connection import Connection
from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.table import FieldTable
from tests.harness.frames import FrameReader, Message, publish_frames
from tests.harness.server import Port, SimServer

CAPABILITIES: Final[FieldTable] = {
    "publisher_confirms": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}
PERSISTENT: Final = Properties(delivery_mode=2).encode()
TRANSIENT: Final = Properties(delivery_mode=1).encode()

M = TypeVar("M", bound=Method)


def login_frames(user: str = "guest", vhost: str = "/") -> bytes:
    """Return everything that a client sends until its connection is open; it need not wait in between."""
    response = f"\0{user}\0{user}".encode()
    return frames.PROTOCOL_HEADER + b"".join(
        frames.method_frame(0, method)
        for method in (
            spec.ConnectionStartOk({"capabilities": dict(CAPABILITIES)}, "PLAIN", response, "en_US"),
            spec.ConnectionTuneOk(0, 0, 0),
            spec.ConnectionOpen(vhost),
        )
    )


def connect(server: SimServer, name: str = "client") -> Port[Connection]:
    """Connect a client that has sent nothing yet."""
    return server.open(Connection, name)


class SimClient:
    """A client that is connected and logged in. The server's messages are collected in `inbox`.

    With `piece`, the server receives everything in pieces of this number of bytes.
    """

    def __init__(
        self, server: SimServer, name: str = "client", *, user: str = "guest", vhost: str = "/", piece: int = 0
    ) -> None:
        self.server = server
        self.piece = piece
        self.port: Port[Connection] = connect(server, name)
        self.inbox: deque[Message] = deque()
        self._reader = FrameReader()
        self.send_bytes(login_frames(user, vhost))
        self.expect(0, spec.ConnectionStart)
        self.expect(0, spec.ConnectionTune)
        self.expect(0, spec.ConnectionOpenOk)

    @property
    def closed(self) -> bool:
        """Whether the server has ended the connection, or it was lost."""
        return self.port.closed

    def send_bytes(self, data: bytes, *, disk: bool = True) -> None:
        """Send bytes to the server, which handles them in a separate turn. Without `disk`, nothing is written or synced
        after it.
        """
        step = self.piece or max(1, len(data))
        for at in range(0, len(data), step):
            self.server.receive(self.port, data[at : at + step])
        self.server.end_turn()
        if disk:
            self.server.run_disk()
        self.collect()

    def collect(self) -> None:
        """Read the server's output."""
        data, self.port.sent = bytes(self.port.sent), bytearray()
        self.inbox.extend(self._reader.feed(data))

    def send(self, channel: int, *methods: Method, disk: bool = True) -> None:
        """Send methods without content, in one turn."""
        self.send_bytes(b"".join(frames.method_frame(channel, method) for method in methods), disk=disk)

    def publish(
        self,
        channel: int,
        key: str,
        *bodies: bytes,
        exchange: str = "",
        header: bytes = PERSISTENT,
        mandatory: bool = False,
        disk: bool = True,
    ) -> None:
        """Publish messages in one turn."""
        method = spec.BasicPublish(exchange, key, mandatory)
        self.send_bytes(b"".join(publish_frames(channel, method, header, body) for body in bodies), disk=disk)

    def expect(self, channel: int, kind: type[M]) -> M:
        """Return the next message of the server, which must be this method. Raises AssertionError if it is not."""
        self.collect()
        assert self.inbox, f"nothing was said; {kind.NAME} is missing"
        message = self.inbox.popleft()
        assert (message.channel, message.method.NAME) == (channel, kind.NAME), message
        assert isinstance(message.method, kind)
        return message.method

    def call(self, channel: int, method: Method, answer: type[M]) -> M:
        """Send a method and return the answer."""
        self.send(channel, method)
        return self.expect(channel, answer)

    def open_channel(self, number: int, *, mode: str = "", prefetch: int = 0) -> None:
        """Open a channel; `mode` is "tx", "confirm" or empty."""
        self.call(number, spec.ChannelOpen(), spec.ChannelOpenOk)
        if mode == "tx":
            self.call(number, spec.TxSelect(), spec.TxSelectOk)
        elif mode == "confirm":
            self.call(number, spec.ConfirmSelect(), spec.ConfirmSelectOk)
        if prefetch:
            self.call(number, spec.BasicQos(0, prefetch), spec.BasicQosOk)

    def declare(self, channel: int, queue: str, *, durable: bool = True, **options: Any) -> spec.QueueDeclareOk:
        """Declare a queue; keyword arguments are those of queue.declare."""
        return self.call(channel, spec.QueueDeclare(queue, durable=durable, **options), spec.QueueDeclareOk)

    def count(self, channel: int, queue: str) -> int:
        """Return the number of ready messages in a queue."""
        answer = self.call(channel, spec.QueueDeclare(queue, passive=True), spec.QueueDeclareOk)
        return answer.message_count

    def get(self, channel: int, queue: str, *, no_ack: bool = False) -> Message | None:
        """Return the answer to basic.get; None if the queue is empty."""
        self.send(channel, spec.BasicGet(queue, no_ack))
        message = self.inbox.popleft()
        return None if isinstance(message.method, spec.BasicGetEmpty) else message

    def deliveries(self) -> list[Message]:
        """Take the deliveries out of the inbox, and leave the rest."""
        self.collect()
        found = [message for message in self.inbox if isinstance(message.method, spec.BasicDeliver)]
        self.inbox = deque(message for message in self.inbox if not isinstance(message.method, spec.BasicDeliver))
        return found

    def bodies(self) -> list[bytes]:
        """Take the deliveries out of the inbox, and return their bodies."""
        return [message.body for message in self.deliveries()]

    def lose(self) -> None:
        """Lose the connection."""
        self.server.lose(self.port)
        self.server.end_turn()
        self.server.run_disk()
