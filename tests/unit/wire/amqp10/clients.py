"""A client for the tests beside this file: real frames of AMQP 1.0, no sockets."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple, TypeVar

from escrowmq.wire.amqp10.codec.frames import PROTOCOL_HEADER, SASL, SASL_HEADER, FrameReader, frame
from escrowmq.wire.amqp10.codec.performatives import (
    RECEIVER,
    SENDER,
    SETTLED_MODE,
    UNSETTLED_MODE,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Transfer,
    decode_performative,
    encode_performative,
)
from escrowmq.wire.amqp10.codec.sasl import SaslInit, SaslMechanisms, SaslOutcome
from escrowmq.wire.amqp10.codec.sections import Header, encode_header
from escrowmq.wire.amqp10.codec.termini import Source, Target
from escrowmq.wire.amqp10.codec.types import Symbol
from escrowmq.wire.amqp10.connection import Connection
from tests.harness.server import Port
from tests.unit.wire.amqp091.clients import Server, server

__all__ = ["ALL", "Client", "Message", "Server", "body", "connected", "message", "server"]

P = TypeVar("P")
ALL = 2**31 - 1
DATA = b"\x00\x53\x75\xa0"


class Message(NamedTuple):
    """A performative from the server, with the payload of a transfer."""

    channel: int
    performative: Any
    payload: bytes


def message(content: bytes, **header: Any) -> bytes:
    """Return a message with one short data section, and a header section if `header` has fields of one."""
    return (encode_header(Header(**header)) if header else b"") + DATA + bytes((len(content),)) + content


def body(payload: bytes) -> bytes:
    """Return the content of a message with one short data section, which is its last section."""
    _, _, content = payload.rpartition(DATA)
    return content[1:]


class Client:
    """A connection that is opened, with session 0 begun, unless told otherwise."""

    def __init__(
        self,
        made: Server,
        user: str = "guest",
        container: str = "c",
        *,
        opens: bool = True,
        begins: bool = True,
        **open_fields: Any,
    ) -> None:
        self.server = made
        self.port: Port[Connection] = made.open(Connection, container)
        self.inbox: deque[Message] = deque()
        self.raw = b""
        self._reader = FrameReader(1 << 20)
        self._headers = 0
        if opens:
            self.log_in(user)
            self.send(0, Open(container, **open_fields))
            self.expect(Open)
            if begins:
                self.begin(0)

    # -- opening

    def log_in(self, user: str = "guest", password: str | None = None) -> None:
        self.headers(SASL_HEADER)
        self.expect(SaslMechanisms)
        secret = f"\0{user}\0{user if password is None else password}".encode()
        self.send_bytes(frame(0, encode_performative(SaslInit(Symbol("PLAIN"), secret)), type=SASL))
        assert self.expect(SaslOutcome).code == 0
        self.headers(PROTOCOL_HEADER)

    def headers(self, header: bytes) -> None:
        """Send a protocol header, and expect the same one."""
        self._headers += 1
        self.send_bytes(header)
        assert self.raw == header
        self.raw = b""

    def begin(self, channel: int, **fields: Any) -> Begin:
        chosen = {"next_outgoing_id": 0, "incoming_window": 1 << 20, "outgoing_window": 1 << 20} | fields
        self.send(channel, Begin(**chosen))
        return self.expect(Begin)

    # -- links

    def sender(
        self, address: str | None, handle: int = 0, *, channel: int = 0, name: str = "", **fields: Any
    ) -> Attach:
        """Attach a link on which the client sends; expect that the server grants it with credit."""
        target = fields.pop("target", None) or Target(address)
        self.send(
            channel,
            Attach(
                name or f"s{handle}",
                handle,
                SENDER,
                target=target,
                initial_delivery_count=0,
                **({"source": Source()} | fields),
            ),
        )
        answer = self.expect(Attach)
        assert answer.target is not None, self.inbox
        assert self.expect(Flow).handle == handle
        return answer

    def receiver(
        self,
        address: str | None,
        handle: int = 1,
        *,
        channel: int = 0,
        credit: int = 0,
        name: str = "",
        settled: bool = False,
        **fields: Any,
    ) -> Attach:
        """Attach a link on which the client receives; expect that the server grants it."""
        source = fields.pop("source", None) or Source(address)
        mode = SETTLED_MODE if settled else UNSETTLED_MODE
        self.send(
            channel, Attach(name or f"r{handle}", handle, RECEIVER, mode, source=source, target=Target(), **fields)
        )
        answer = self.expect(Attach)
        assert answer.source is not None, self.inbox
        if credit:
            self.flow(handle, credit, channel=channel)
        return answer

    def refused(self, attach: Attach, condition: str, *, channel: int = 0) -> Detach:
        """Send an attach; expect that the server refuses it with this condition."""
        self.send(channel, attach)
        answer = self.expect(Attach)
        assert (answer.source if attach.role == RECEIVER else answer.target) is None
        return self.detached(attach.handle, condition)

    def detached(self, handle: int, condition: str, *, channel: int = 0) -> Detach:
        """Expect that the server detaches a link with this condition, and answer it."""
        detach = self.expect(Detach)
        assert (detach.handle, detach.closed) == (handle, True)
        assert detach.error is not None
        assert detach.error.condition == condition, detach.error
        self.send(channel, Detach(handle=handle, closed=True))
        return detach

    def flow(self, handle: int | None, credit: int | None = None, *, channel: int = 0, **fields: Any) -> None:
        chosen = {"next_incoming_id": 0, "incoming_window": ALL, "next_outgoing_id": 0, "outgoing_window": ALL} | fields
        if handle is not None and credit is not None:
            chosen = {"delivery_count": 0, "link_credit": credit} | chosen
        self.send(channel, Flow(handle=handle, **chosen))

    def post(
        self,
        number: int,
        content: bytes = b"x",
        *,
        handle: int = 0,
        settled: bool = False,
        channel: int = 0,
        **fields: Any,
    ) -> None:
        """Send one message with this delivery number, and a tag made of it."""
        header = {key: fields.pop(key) for key in ("durable", "ttl", "priority") if key in fields}
        transfer = Transfer(handle, number, b"%d" % number, 0, settled, **fields)
        self.send(channel, transfer, payload=message(content, **header))

    # -- frames

    def send(self, channel: int, *performatives: Any, payload: bytes = b"") -> None:
        """Send performatives in one turn; the last one has the payload."""
        data = b""
        for i, performative in enumerate(performatives, 1):
            data += frame(channel, encode_performative(performative), payload if i == len(performatives) else b"")
        self.send_bytes(data)

    def send_bytes(self, data: bytes, *, disk: bool = True) -> None:
        """Send bytes, which the server handles in a turn of their own. Without `disk`, nothing is synced after it."""
        self.server.receive(self.port, data)
        self.server.end_turn()
        if disk:
            self.server.run_disk()
        self.collect()

    def collect(self) -> None:
        """Read the server's output."""
        data, self.port.sent = bytes(self.port.sent), bytearray()
        while data.startswith(b"AMQP"):
            self.raw, data = data[:8], data[8:]
        data = data.replace(PROTOCOL_HEADER, b"")  # it follows the outcome of the login, if all is sent at once
        self._reader.feed(data)
        while (item := self._reader.next()) is not None:
            _, channel, chunk, at, end = item
            if at == end:
                self.inbox.append(Message(channel, None, b""))
            else:
                performative, payload = decode_performative(chunk, at, end)
                self.inbox.append(Message(channel, performative, chunk[payload:end]))

    def expect(self, kind: type[P]) -> P:
        """Return the next performative, which must be of this class."""
        return self.expect_message(kind).performative  # type: ignore[no-any-return]

    def expect_message(self, kind: type) -> Message:
        """Like `expect`, with channel and payload."""
        assert self.inbox, f"no {kind.__name__}"
        found = self.inbox.popleft()
        assert isinstance(found.performative, kind), found
        return found

    def deliveries(self) -> list[tuple[int, bytes]]:
        """Return the deliveries that are next in the inbox, as numbers and bodies."""
        found = []
        while self.inbox and isinstance(self.inbox[0].performative, Transfer):
            each = self.inbox.popleft()
            found.append((each.performative.delivery_id, body(each.payload)))
        return found

    def outcome(self, first: int, last: int | None = None) -> Disposition:
        """Return the next disposition, which must concern these deliveries."""
        found = self.expect(Disposition)
        assert (found.first, found.last if found.last is not None else found.first) == (
            first,
            first if last is None else last,
        )
        return found

    def idle(self) -> bool:
        """Whether the server has sent nothing that was not expected."""
        return not self.inbox

    def closed(self, condition: str) -> Close:
        """Expect that the server closes the connection with this condition."""
        close = self.expect(Close)
        assert close.error is not None
        assert close.error.condition == condition, close.error
        self.send(0, Close())
        assert self.port.closed
        return close

    def ended(self, condition: str, channel: int = 0) -> End:
        """Expect that the server ends the session with this condition, and answer it."""
        end = self.expect(End)
        assert end.error is not None
        assert end.error.condition == condition, end.error
        self.send(channel, End())
        return end


def connected(**limits: Any) -> tuple[Server, Client]:
    """Return a server with the queue `q`, and a client with session 0. `limits` are those of EndpointLimits."""
    made = server(**limits)
    client = Client(made)
    client.sender("q", 7)
    client.send(0, Detach(handle=7, closed=True))
    client.expect(Detach)
    return made, client
