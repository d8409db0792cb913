"""A connection: its channels, its output and its end. Reading is in `reading.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from escrowmq.core.access.door import Door
from escrowmq.core.broker import Broker
from escrowmq.core.budget import CHANNEL
from escrowmq.core.queues.queue import Queue, Session
from escrowmq.core.topology.vhost import VirtualHost
from escrowmq.wire.amqp091 import codes, spec
from escrowmq.wire.amqp091.channel import Channel
from escrowmq.wire.amqp091.channel_rows import channel_rows
from escrowmq.wire.amqp091.confirms import Confirms
from escrowmq.wire.amqp091.errors import reply_text
from escrowmq.wire.amqp091.frames import HEARTBEAT, PROTOCOL_HEADER, content_pieces, frame, method_frame
from escrowmq.wire.amqp091.handshake import State
from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.reading import Reader
from escrowmq.wire.amqp091.table import FieldTable
from escrowmq.wire.amqp091.versions import CURRENT, to_older
from escrowmq.wire.endpoint import EndpointLimits, Host, Peer
from escrowmq.wire.flow import OutputFlow, PublishGate
from escrowmq.wire.login import Login
from escrowmq.wire.outbox import LARGE, Outbox, Piece

LONGEST_BEFORE_TUNE: Final = 16_384
"""The longest frame of a client that has not logged in. Section 1.4.2.6 asks for 4,096; a token may be longer."""


class Connection:
    """The endpoint of one AMQP 0-9-1 connection (`wire.endpoint.Endpoint`)."""

    def __init__(self, host: Host, peer: Peer, label: str = "") -> None:
        self._host = host
        self.peer = peer
        self.label = label or str(peer)
        self.broker: Broker = host.broker
        self.limits: EndpointLimits = host.limits
        self.login = Login(host, self, peer)
        self.state = State.HEADER
        self.version = CURRENT
        self.session = Session(self.label)
        self.vhost: VirtualHost[Queue]
        self.door: Door  # checks every operation; set when the virtual host is known
        self.frame_max: int = LONGEST_BEFORE_TUNE
        self.most_body = 0  # the longest body that fits into one frame and is not too large for a message
        self.channel_max = 0
        self.heartbeat = 0
        self.client: FieldTable = {}
        self.cancel_notify = False
        self.channels: dict[int, Channel] = {}
        self.finished = False
        self.large_bodies = self.answered = False
        self.blocked_notify = False
        self._closing_since: int | None = None
        self._outbox = Outbox(host.broker.log)
        self.flow = OutputFlow(self._outbox, host.limits.outbox, self._read_on)
        self.gate = PublishGate(host, self)
        self._reader = Reader(self)
        self._confirming: dict[Confirms, None] = {}

    def receive(self, data: bytes) -> None:
        """Process bytes from the socket. Empty `data` means to continue with the bytes that were held back."""
        self._reader.receive(data)

    def carry_on(self) -> None:
        """Ask the server for another turn, in which the reader continues."""
        self._host.carry_on(self)

    # -- called by the handshake

    def refuse_protocol(self) -> None:
        """Send the header of this protocol (section 4.2.2) to a client that speaks another one, and close."""
        self._outbox.put(0, PROTOCOL_HEADER)
        self.state = State.CLOSED
        self.finished = True
        self._host.stir(self)

    def tuned(self, frame_max: int, channel_max: int, heartbeat: int) -> None:
        """Apply the limits that client and broker have agreed on."""
        self.frame_max = frame_max
        self.most_body = min(frame_max - 8, self.limits.message_size)
        self.channel_max = channel_max
        self.heartbeat = heartbeat

    def login_refused(self, text: str) -> None:
        """Close, with a reason if the client can handle it; section 1.4.2.1 defines no answer to a failed login."""
        capabilities = self.client.get("capabilities")
        if isinstance(capabilities, dict) and capabilities.get("authentication_failure_close") is True:
            self.send(spec.ConnectionClose(codes.ACCESS_REFUSED, reply_text(codes.ACCESS_REFUSED, text)))
        self.state = State.CLOSED
        self.finished = True
        self._host.stir(self)

    def await_rest(self, channel: Channel, rest: Iterator[bool]) -> None:
        """Read nothing more until `rest`, which belongs to a publish of `channel`, has come to its end."""
        self._reader.await_rest(channel, rest)

    @property
    def unread(self) -> int:
        """See `Endpoint.unread`."""
        return self._reader.unread

    def resume(self) -> None:
        """Continue with the bytes that were held back during the login check, or while the connection was congested."""
        self._reader.resume()

    @property
    def user(self) -> str:
        """The authenticated user; empty before the login."""
        return self.login.user

    def opened(self) -> None:
        """Note that the connection is ready for channels."""
        self.login.admit()
        self.session.label = self.label
        if self.gate.reason:
            self.block(self.gate.reason)

    # -- writing

    def put(self, channel: int, data: Piece, after: int = 0) -> None:
        """Send `data` on `channel` when the log is synced up to `after`."""
        outbox = self._outbox
        outbox.put(channel, data, after)
        if after and outbox.holding:
            self._host.await_sync(self)
        self._host.stir(self)

    def put_pieces(self, channel: int, pieces: list[Piece], after: int = 0) -> None:
        """Like `put`, for consecutive pieces. Large pieces are not copied."""
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

    def send(self, method: Method, channel: int = 0) -> None:
        """Send a method, in the form of the client's version."""
        if self.version.is_older:
            self.put(channel, frame(codes.FRAME_METHOD, channel, to_older(method)))
        else:
            self.put(channel, method_frame(channel, method))

    def confirm_later(self, confirms: Confirms, after: int) -> None:
        """Let a channel confirm publishes at the end of the turn, when the log is synced up to `after`."""
        if after:
            self._host.await_sync(self)
        if confirms not in self._confirming:
            self._confirming[confirms] = None
            self._host.stir(self)

    def output(self) -> list[Piece]:
        """Remove and return the bytes that can be sent now."""
        if self._confirming:
            confirming, self._confirming = self._confirming, {}
            for confirms in confirming:
                confirms.send()
        pieces = self._outbox.take()
        self.flow.relax()
        if self.state is State.CLOSED and not self._outbox.holding:
            self.finished = True
        return pieces

    def _read_on(self) -> None:
        """Read again, because the connection is no longer congested."""
        self._host.stir(self)
        self.resume()

    def synced(self, lsn: int) -> bool:
        """Release output that waited for a sync up to `lsn`. Return True while output is still held."""
        holding = self._outbox.release(lsn)
        self._host.stir(self)
        return holding

    def congested(self, unsent: int) -> None:
        """Note that `unsent` bytes wait in the socket's buffer."""
        self.flow.congested(unsent)

    # -- called by the server

    def block(self, reason: str) -> None:
        """Send `connection.blocked` or `connection.unblocked`, if the client understands it.

        A blocked connection is read until its next publish, so the client can still close it.
        """
        self.gate.block(reason)
        self._reader.end_run()  # so that the next publish passes the gate
        if self.state is State.RUNNING and self.blocked_notify:
            method = spec.ConnectionBlocked(reason) if reason else spec.ConnectionUnblocked()
            self._outbox.put_now(method_frame(0, method))
            self._host.stir(self)

    def tick(self, now_ms: int, idle_in_ms: int, idle_out_ms: int) -> None:
        """Send heartbeats (section 4.2.7). Give up on a peer that is silent or does not answer a close."""
        for channel in self.channels.values():
            channel.ages.note(now_ms, channel.unsettled)
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

    def permissions_changed(self) -> Iterator[None]:
        """See `Endpoint.permissions_changed` (SEC-3)."""
        if self.state is State.RUNNING:
            for channel in list(self.channels.values()):
                yield from channel.dropping_forbidden_consumers()

    def shut(self, text: str) -> None:
        """End the connection with 320 CONNECTION_FORCED."""
        if self.state in (State.CLOSING, State.CLOSED):
            return
        if self.state is State.RUNNING:
            self.fail(codes.CONNECTION_FORCED, text)
        else:
            self.end()

    def fail(self, code: int, text: str, index: int = 0) -> None:
        """Close the connection for a fault, in method `index` if that is not 0. From now on only the client's answer
        counts.
        """
        if self.state in (State.CLOSING, State.CLOSED):
            return
        before = self.state
        if code != codes.CONNECTION_FORCED:  # CONNECTION_FORCED is not a fault of the client
            self.failed(code, text)
        self.release()
        self.send(spec.ConnectionClose(code, reply_text(code, text), index >> 16, index & 0xFFFF))
        if before is State.RUNNING or before is State.OPEN:
            self.state = State.CLOSING
        else:
            self.state = State.CLOSED
        self._host.stir(self)

    def end(self) -> None:
        """Close the socket when everything in the outbox is sent."""
        self.state = State.CLOSED
        self._host.stir(self)

    def failed(self, code: int, text: str) -> None:
        """Report that the connection, or one of its channels, was closed for a fault."""
        self._reader.end_run()
        self._host.failed(self, code, text)

    def close(self) -> None:
        """Close the connection on the client's request. The answer follows when everything is returned.

        The client closes the socket. Until then it may send `connection.close` again, for example if several of its
        threads close at the same time.
        """
        self.release(closed=True)
        self.state = State.CLOSING

    def release(self, *, closed: bool = False) -> None:
        """Return everything that the connection's channels hold, and delete its exclusive queues (EXC-1). Much of it
        follows in later turns. If the client has `closed` the connection, it gets its answer at the end.
        """
        for confirms in self._confirming:
            confirms.send()
        self._confirming.clear()
        for channel in self.channels.values():
            channel.closing = True
        self._reader.end_run()
        self.flow.end_deliveries()
        engine = self.broker.engine
        engine.requests.admit()
        engine.left_over.begin(self._releasing(list(self.channels.values()), closed=closed))

    def _releasing(self, channels: list[Channel], *, closed: bool) -> Iterator[None]:
        requests = self.broker.engine.requests
        while channels:
            yield from channels.pop().releasing()
            requests.left -= CHANNEL
            if requests.left <= 0 and channels:
                yield
        yield from self.broker.directory.ending(self.session)
        if closed and self.state is not State.CLOSED:
            self.send(spec.ConnectionCloseOk())

    def close_channel(self, channel: Channel) -> None:
        """Close a channel on the client's request."""
        channel.confirms.send()
        channel.closing = True
        self.broker.engine.left_over.begin(self._closing_channel(channel))

    def _closing_channel(self, channel: Channel) -> Iterator[None]:
        yield from channel.releasing()
        if self.channels.get(channel.number) is channel:
            channel.send(spec.ChannelCloseOk())
            self._reader.drop(channel)

    def lost(self) -> None:
        """Release everything after the connection was lost."""
        if self.state is not State.CLOSED or self.channels:
            self.state = State.CLOSED
            self.release()
            self.channels.clear()
        # These parts refer to the connection. Without them its memory is free at once, and needs no garbage collector.
        self.flow.end()
        del self._reader, self.gate, self.login

    def describe(self) -> dict[str, object]:
        """Return the connection's entry in lists of connections. It contains nothing secret."""
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

    def channel_rows(self) -> Iterator[dict[str, object]]:
        """See `Endpoint.channel_rows`."""
        return channel_rows(self)
