"""A connection: its channels, what it sends, how it ends. How it reads is in `reading.py`."""

from __future__ import annotations

from typing import Final

from escrowmq.core.broker import Broker
from escrowmq.core.queues.queue import Queue, Session
from escrowmq.core.topology.vhost import VirtualHost
from escrowmq.wire.amqp091 import codes, handshake, spec
from escrowmq.wire.amqp091.channel import Channel
from escrowmq.wire.amqp091.death import headers_of
from escrowmq.wire.amqp091.errors import SyntaxFault, reply_text
from escrowmq.wire.amqp091.frames import (
    FRAME_HEADER_SIZE,
    FRAME_OVERHEAD,
    HEARTBEAT,
    PROTOCOL_HEADER,
    content_pieces,
    frame_size,
    method_frame,
    remainder,
)
from escrowmq.wire.amqp091.handshake import State
from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.publication import PROTOCOL
from escrowmq.wire.amqp091.reading import Reading
from escrowmq.wire.amqp091.table import FieldTable
from escrowmq.wire.endpoint import EndpointLimits, Host, Peer
from escrowmq.wire.login import Login, LoginFault
from escrowmq.wire.outbox import LARGE, Outbox, Piece

_CROWD: Final = 4  # times the share of a connection's consumers, for answers that it has asked for itself


class Connection(Reading):
    """The endpoint of one AMQP 0-9-1 connection (`wire.endpoint.Endpoint`)."""

    def __init__(self, host: Host, peer: Peer, label: str = "") -> None:
        super().__init__()
        self._host = host
        self.peer = peer
        self.label = label or str(peer)
        self.broker: Broker = host.broker
        self.broker.headers_of.setdefault(PROTOCOL, headers_of)
        self.limits: EndpointLimits = host.limits
        self.login = Login(host, self, peer)
        self.state = State.HEADER
        self.session = Session(self.label)
        self.vhost: VirtualHost[Queue]
        self.frame_max = codes.FRAME_MIN_SIZE
        self.most_body = 0  # the longest body that comes in one frame and is not too large for a message
        self.channel_max = 0
        self.heartbeat = 0
        self.client: FieldTable = {}
        self.cancel_notify = False
        self.channels: dict[int, Channel] = {}
        self.finished = False
        self.blocked_notify = False
        self._closing_since: int | None = None
        self._outbox = Outbox()
        self._unsent = 0
        self._stalled: dict[Channel, None] = {}  # with consumers that wait until more can be sent
        self._crowded = False
        self._confirming: dict[Channel, None] = {}

    # -- reading

    def receive(self, data: bytes) -> None:
        """Bytes came in; without any, what was kept back is read on."""
        unread = self._unread
        if self._crowded and self.crowded():
            unread.add(data)
            return
        if unread:
            unread.add(data, unread.need)
            if data and not unread.ready:
                return
            data = unread.take()
        if self.state is State.AUTHENTICATING:
            if len(data) <= codes.FRAME_MIN_SIZE:
                unread.add(data)  # read on when the login has been checked
            else:
                self.fail(codes.UNEXPECTED_FRAME, "frames before the login was answered")
            return
        start = 0
        try:
            if self._partial is not None:
                start = self._read_partial(self._partial, data)
                if not start:
                    return
            at = self._read_header(data) if self.state is State.HEADER else start
            if at >= 0 and self.state is not State.HEADER:
                at = self._read(data, at)
            if at < len(data) and self.state is not State.CLOSED:
                self._keep(data, at)
        except SyntaxFault as fault:
            self._partial = None
            self.fail(fault.code, fault.text, fault.index)
            unread.add(remainder(data[start:]))  # where the client's answer will be found
        except LoginFault as error:
            self.login_refused(str(error))

    def _keep(self, data: bytes, at: int) -> None:
        """Keep what could not be read. Of a large body frame that is not whole, the octets go into the content at once.

        A small one is joined with what follows, so that it is read as a part of a run.
        """
        need = 0
        if len(data) - at >= FRAME_HEADER_SIZE and self.state not in (State.HEADER, State.AUTHENTICATING):
            need = frame_size(data, at)
            if need > self.frame_max + FRAME_OVERHEAD:
                need = 0  # a fault, of which the next read tells
            elif at + need > len(data) and need > LARGE and not self._gate:
                partial = self._open_partial(data, at)
                if partial is not None:
                    partial.feed(data, at + FRAME_HEADER_SIZE)
                    self._partial = partial
                    return
        self._unread.add(data[at:] if at else data, need)

    def _read_header(self, data: bytes) -> int:
        if len(data) < len(PROTOCOL_HEADER) and PROTOCOL_HEADER.startswith(data):
            return 0
        if not data.startswith(PROTOCOL_HEADER):
            self._outbox.put(0, PROTOCOL_HEADER)
            self.state = State.CLOSED
            self.finished = True
            self._host.stir(self)
            return len(data)
        handshake.start(self)
        return len(PROTOCOL_HEADER)

    # -- what the handshake asks for

    def tuned(self, frame_max: int, channel_max: int, heartbeat: int) -> None:
        """Client and broker have agreed."""
        self.frame_max = frame_max
        self.most_body = min(frame_max - 8, self.limits.message_size)
        self.channel_max = channel_max
        self.heartbeat = heartbeat

    def login_refused(self, text: str) -> None:
        """Tell a client that can take it (section 1.4.2.1 knows no answer), and close."""
        capabilities = self.client.get("capabilities")
        if isinstance(capabilities, dict) and capabilities.get("authentication_failure_close") is True:
            self.send(spec.ConnectionClose(codes.ACCESS_REFUSED, reply_text(codes.ACCESS_REFUSED, text)))
        self.state = State.CLOSED
        self.finished = True
        self._host.stir(self)

    def resume(self) -> None:
        """Go on with what was kept back: while the login was being checked, or while too much waited to be sent."""
        if self._unread:
            self.receive(b"")

    @property
    def user(self) -> str:
        """The authenticated user; empty before that."""
        return self.login.user

    def opened(self) -> None:
        """The connection is ready for channels."""
        self.login.admit()
        self.session.label = self.label
        if self._blocked:
            self.block(self._blocked)

    def update_secret(self, secret: bytes) -> None:
        self._host.password_changed(self, secret)

    # -- writing

    def put(self, channel: int, data: Piece, after: int = 0) -> None:
        """Send `data` on `channel` when the log is synced up to `after`."""
        outbox = self._outbox
        if after and after <= self.broker.log.synced_lsn:
            after = 0  # nothing of it is left to be synced, and so no sync may ever come
        outbox.put(channel, data, after)
        if after and outbox.holding:
            self._host.await_sync(self)
        self._host.stir(self)

    def put_pieces(self, channel: int, pieces: list[Piece], after: int = 0) -> None:
        """As `put`, for pieces that follow each other; large ones are not copied."""
        if after and after <= self.broker.log.synced_lsn:
            after = 0  # as in `put`
        self._outbox.put_pieces(channel, pieces, after)
        if after and self._outbox.holding:
            self._host.await_sync(self)
        self._host.stir(self)

    def put_content(self, channel: int, head: bytes, props: bytes, body: bytes, after: int = 0) -> None:
        """Send one message: `head` is the method frame; properties and body follow it."""
        pieces = content_pieces(head, channel, props, body, self.frame_max)
        if len(body) < LARGE:
            self.put(channel, b"".join(pieces), after)
        else:
            self.put_pieces(channel, pieces, after)

    def send(self, method: Method) -> None:
        """Send a method on channel 0."""
        self.put(0, method_frame(0, method))

    def confirm_later(self, channel: Channel, after: int) -> None:
        """`channel` has something to confirm at the end of the turn, when the log is synced up to `after`."""
        if after:
            self._host.await_sync(self)
        if channel not in self._confirming:
            self._confirming[channel] = None
            self._host.stir(self)

    @property
    def writable(self) -> bool:
        """Whether consumers may be given more."""
        return self._unsent + self._outbox.size < self.limits.outbox

    def stalled(self, channel: Channel) -> None:
        """Consumers of `channel` wait until the connection is writable."""
        self._stalled[channel] = None

    def output(self) -> list[Piece]:
        """What is to be sent now."""
        if self._confirming:
            confirming, self._confirming = self._confirming, {}
            for channel in confirming:
                channel.send_confirms()
        pieces = self._outbox.take()
        if self._crowded:
            self._make_room()
        if self.state is State.CLOSED and not self._outbox.holding:
            self.finished = True
        if self._stalled:
            self._wake()
        return pieces

    def crowded(self) -> bool:
        """Whether so much waits to be sent that no more is to be asked for: then what came is read later."""
        self._crowded = self._unsent + self._outbox.size > _CROWD * self.limits.outbox
        return self._crowded

    def _make_room(self) -> None:
        if not self.crowded():
            self._host.stir(self)
            self.resume()

    def _wake(self) -> None:
        if self.writable:
            stalled, self._stalled = self._stalled, {}
            for channel in stalled:
                channel.wake()

    def synced(self, lsn: int) -> bool:
        """The log is on disk up to `lsn`. True while output is still held."""
        holding = self._outbox.release(lsn)
        self._host.stir(self)
        return holding

    def congested(self, unsent: int) -> None:
        """`unsent` bytes wait in the socket's buffer."""
        self._unsent = unsent
        if self._crowded:
            self._make_room()
        if self._stalled:
            self._wake()

    # -- the server's side

    def block(self, reason: str) -> None:
        """`connection.blocked` and `connection.unblocked`, to those who understand it.

        What a blocked client says is read up to its next publish, so that it can leave.
        """
        self._blocked = reason
        self._gate = self._gate or bool(reason)
        self._last = None  # the next publish passes the gate
        if self.state is State.RUNNING and self.blocked_notify:
            method = spec.ConnectionBlocked(reason) if reason else spec.ConnectionUnblocked()
            self._outbox.put_now(method_frame(0, method))
            self._host.stir(self)

    def tick(self, now_ms: int, idle_in_ms: int, idle_out_ms: int) -> None:
        """Heartbeats (section 4.2.7); give up on a peer that is silent, or does not answer a close."""
        if self.state is State.CLOSING:
            if self._closing_since is None:
                self._closing_since = now_ms
            elif now_ms - self._closing_since > 5000:
                self.end()
        elif self.state is State.RUNNING and self.heartbeat:
            if idle_in_ms > 2000 * self.heartbeat:
                self.release()
                self.end()
            elif idle_out_ms >= 500 * self.heartbeat:
                self._outbox.put_now(HEARTBEAT)
                self._host.stir(self)

    def shut(self, text: str) -> None:
        """The server ends the connection: 320 CONNECTION_FORCED."""
        if self.state in (State.CLOSING, State.CLOSED):
            return
        if self.state is State.RUNNING:
            self.fail(codes.CONNECTION_FORCED, text)
        else:
            self.end()

    def fail(self, code: int, text: str, index: int = 0) -> None:
        """Close the connection for a fault (of the method `index`); from now on only the client's answer counts."""
        if self.state in (State.CLOSING, State.CLOSED):
            return
        before = self.state
        if code != codes.CONNECTION_FORCED:  # which is no fault of the client
            self.failed(code, text)
        self.release()
        self.send(spec.ConnectionClose(code, reply_text(code, text), index >> 16, index & 0xFFFF))
        if before is State.RUNNING or before is State.OPEN:
            self.state = State.CLOSING
        else:
            self.state = State.CLOSED
        self._host.stir(self)

    def end(self) -> None:
        """When what is said is sent, the socket is to be closed."""
        self.state = State.CLOSED
        self._host.stir(self)

    def failed(self, code: int, text: str) -> None:
        """The connection, or a channel of it, was closed for a fault."""
        self._last = None
        self._host.failed(self, code, text)

    def release(self) -> None:
        """Give back everything that the connection's channels hold; drop its exclusive queues (EXC-1)."""
        for channel in list(self.channels.values()):
            channel.send_confirms()
            channel.release()
            channel.closing = True
        self._confirming.clear()
        self._last = None
        self.broker.end_session(self.session)

    def lost(self) -> None:
        """The connection is gone."""
        self._unread.clear()
        if self.state is not State.CLOSED or self.channels:
            self.state = State.CLOSED
            self.release()
            self.channels.clear()

    def describe(self) -> dict[str, object]:
        """For lists of connections; nothing secret."""
        return {
            "name": self.label,
            "peer": str(self.peer),
            "protocol": "AMQP 0-9-1",
            "user": self.user,
            "vhost": self.login.vhost_name,
            "state": self.state.name.lower(),
            "channels": len(self.channels),
            "tls": self.peer.tls,
            "client": {key: value for key, value in self.client.items() if isinstance(value, (str, int))},
        }
