"""A connection of AMQP 0-10: its sessions, its output and its end. Reading is in `reading.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from escrowmq.core.access.door import Door
from escrowmq.core.broker import Broker
from escrowmq.core.queues.queue import Queue
from escrowmq.core.topology.vhost import VirtualHost
from escrowmq.wire.amqp010.away import finishing
from escrowmq.wire.amqp010.codec.frames import LEAST_FRAME_MAX, PROTOCOL_HEADER, control_frame
from escrowmq.wire.amqp010.codec.spec import (
    CloseCode,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionHeartbeat,
    DetachCode,
    SessionDetached,
)
from escrowmq.wire.amqp010.faults import ConnectionFault
from escrowmq.wire.amqp010.handshake import ConnectionState
from escrowmq.wire.amqp010.reading import Reader
from escrowmq.wire.ending import ConnectionEnding
from escrowmq.wire.flow import OutputFlow, PublishGate
from escrowmq.wire.login import Login
from escrowmq.wire.outbox import CONNECTION, Outbox, Piece

if TYPE_CHECKING:
    from escrowmq.core.counters import Traffic
    from escrowmq.wire.amqp010.codec.structs import Control
    from escrowmq.wire.amqp010.codec.types import Value
    from escrowmq.wire.amqp010.session import Session
    from escrowmq.wire.endpoint import EndpointLimits, Host, Peer

ASIDE: Final = 65_536
"""The distance from the lane of a session to that of its completions that wait for the log."""
CLOSE_MS: Final = 5000
"""How long the broker waits for a client's answer to connection.close."""
_SILENT: Final = frozenset((ConnectionState.CLOSING, ConnectionState.CLOSED))
_LONGEST_TEXT: Final = 255
_HEARTBEAT: Final = control_frame(0, ConnectionHeartbeat())


class Connection:
    """The endpoint of one AMQP 0-10 connection (`wire.endpoint.Endpoint`)."""

    def __init__(self, host: Host, peer: Peer, label: str = "") -> None:
        self.host = host
        self.peer = peer
        self.label = label or str(peer)
        self.broker: Broker = host.broker
        self.limits: EndpointLimits = host.limits
        self.login = Login(host, self, peer)
        self.state = ConnectionState.HEADER
        self.identity: object = object()  # stands for the connection, without keeping its memory
        self.vhost: VirtualHost[Queue]
        self.traffic: Traffic
        self.door: Door  # checks every operation; set when the virtual host is known
        self.frame_max: int = LEAST_FRAME_MAX  # of frames in both directions
        self.channel_max = 0
        self.heartbeat = 0
        self.client: dict[str, Value] = {}
        self.sessions: dict[int, Session] = {}
        self.finished = False
        self.large_bodies = self.answered = False
        self._closing_since: int | None = None
        self._outbox = Outbox(host.broker.log)
        self.flow: OutputFlow = OutputFlow(self._outbox, host.limits.outbox, self._read_on)
        self.gate = PublishGate(host, self)
        self._reader = Reader(self)
        self._answering: dict[Session, None] = {}
        self._ending = ConnectionEnding(host.broker.engine, self._drop_parts)

    # -- called by the server

    def receive(self, data: bytes) -> None:
        """Process bytes from the socket. Empty `data` means to continue with the bytes that were held back."""
        self._reader.receive(data)

    @property
    def unread(self) -> int:
        """See `Endpoint.unread`."""
        return self._reader.unread

    def output(self) -> list[Piece]:
        """Remove and return the bytes that can be sent now."""
        while self._answering:
            answering, self._answering = self._answering, {}
            for session in answering:
                session.answer_now()
        pieces = self._outbox.take()
        self.flow.relax()
        if self.state is ConnectionState.CLOSED and not self._outbox.holding:
            self.finished = True
        return pieces

    def synced(self, lsn: int) -> bool:
        """Release output that waited for a sync up to `lsn`. Return True while output is still held."""
        holding = self._outbox.release(lsn)
        self.host.stir(self)
        return holding

    def congested(self, unsent: int) -> None:
        """Note that `unsent` bytes wait in the socket's buffer."""
        self.flow.congested(unsent)

    def block(self, reason: str) -> None:
        """Hold publishes back, or accept them again if `reason` is empty. The protocol has no control to say so."""
        self.gate.block(reason)

    def tick(self, now_ms: int, idle_in_ms: int, idle_out_ms: int) -> None:
        """Send heartbeats. Give up on a peer that is silent or does not answer a close.

        qpid-python sends heartbeats only as answers, so a client that is silent gets some while it is sent other bytes.
        """
        for session in self.sessions.values():
            session.note_ages(now_ms)
        if self.state is ConnectionState.CLOSING:
            if self._closing_since is None:
                self._closing_since = now_ms
            elif now_ms - self._closing_since > CLOSE_MS:
                self.end()
        elif self.state is ConnectionState.RUNNING and self.heartbeat:
            if idle_in_ms > 2000 * self.heartbeat:
                self.release(keeps=True)
                self.end()
            elif max(idle_in_ms, idle_out_ms) >= 500 * self.heartbeat:
                self._outbox.put_now(_HEARTBEAT)
                self.host.stir(self)

    def permissions_changed(self) -> Iterator[None]:
        """See `Endpoint.permissions_changed` (SEC-3)."""
        if self.state is ConnectionState.RUNNING:
            for session in list(self.sessions.values()):
                yield from session.dropping_forbidden()

    def shut(self, text: str) -> None:
        """End the connection with connection-forced."""
        if self.state is ConnectionState.RUNNING:
            self.fail(ConnectionFault(text, CloseCode.CONNECTION_FORCED), forced=True)
        elif self.state not in _SILENT:
            self.end()

    def lost(self) -> None:
        """Release everything after the connection was lost. Much of it follows in later turns."""
        self.state = ConnectionState.CLOSED
        self._ending.lost(lambda: self.release(keeps=True), self.flow)

    def describe(self) -> dict[str, object]:
        """Return the connection's entry in lists of connections. It contains nothing secret."""
        return {
            "name": self.label,
            "peer": str(self.peer),
            "protocol": "AMQP 0-10",
            "user": self.user,
            "vhost": self.login.vhost_name,
            "state": self.state.name.lower(),
            "channels": len(self.sessions),
            "tls": self.peer.tls,
            "client": {key: value for key, value in self.client.items() if isinstance(value, (str, int))},
        }

    def channel_rows(self) -> Iterator[dict[str, object]]:
        """See `Endpoint.channel_rows`."""
        for session in list(self.sessions.values()):
            if self.sessions.get(session.channel) is session:
                yield session.row()

    # -- called by the handshake

    @property
    def user(self) -> str:
        """The authenticated user; empty before the login."""
        return self.login.user

    def introduce(self, properties: Mapping[str, Value]) -> None:
        """Keep the client's properties for lists, and its process for logs."""
        self.client = dict(properties)
        process = properties.get("qpid.client_process")
        if isinstance(process, str) and process:
            self.label = f"{self.peer} ({process[:100]})"

    def tuned(self, frame_max: int, channel_max: int, heartbeat: int) -> None:
        """Apply the limits that client and broker have agreed on."""
        self.frame_max = frame_max
        self.channel_max = channel_max
        self.heartbeat = heartbeat

    def enter(self, name: str) -> None:
        """Enter a virtual host. Raises NOT_ALLOWED."""
        self.vhost = self.login.enter(name)
        self.door = self.login.door()
        self.traffic = self.broker.engine.counters.traffic_of(self.vhost.name, "amqp010")

    def login_refused(self) -> None:
        """Close, since the login has failed. The reason is in the log only."""
        self.send(
            ConnectionClose(CloseCode.CONNECTION_FORCED, "the login was refused; the broker's log has the reason")
        )
        self.end()

    def refuse_protocol(self) -> None:
        """Send the header of this protocol to a client that speaks another one, and close."""
        self.send_raw(PROTOCOL_HEADER)
        self.end()

    # -- called by the parts of the connection

    def send_raw(self, data: bytes) -> None:
        """Send `data` on behalf of the connection as a whole."""
        self.put(CONNECTION, data)

    def send(self, control: Control) -> None:
        """Send a control of the connection, on channel 0."""
        self.send_raw(control_frame(0, control))

    def detached(self, channel: int, name: bytes, code: DetachCode) -> None:
        """Say that there is no session, or none of this name, on a channel."""
        self.rejoin(channel)
        self.put(channel + 1, control_frame(channel, SessionDetached(name, code)))

    def put(self, lane: int, data: Piece, after: int = 0) -> None:
        """Send `data` in `lane` when the log is synced up to `after`. The lane of a session is its channel plus 1."""
        outbox = self._outbox
        outbox.put(lane, data, after)
        if after and outbox.holding:
            self.host.await_sync(self)
        self.host.stir(self)

    def put_pieces(self, lane: int, pieces: list[Piece], after: int = 0) -> None:
        """Like `put`, for consecutive pieces. Large pieces are not copied."""
        self._outbox.put_pieces(lane, pieces, after)
        if after and self._outbox.holding:
            self.host.await_sync(self)
        self.host.stir(self)

    def put_completion(self, channel: int, data: Piece, after: int, *, urgent: bool = True) -> None:
        """Send completions of a session when the log is synced up to `after`. Those that wait do not hold back its
        deliveries. They keep their order, because clients take a completion that comes too early for the last one.
        """
        lane, outbox = channel + 1, self._outbox
        if after > self.broker.log.synced_lsn or outbox.holds(lane + ASIDE):
            lane += ASIDE
        outbox.put(lane, data, after)
        if outbox.holding:
            self.host.await_sync(self, urgent=urgent)
        self.host.stir(self)

    def rejoin(self, channel: int) -> None:
        """Let the next output of a channel come behind its completions that wait. Send it at once."""
        self._outbox.follow(channel + 1, channel + 1 + ASIDE)

    def answer_later(self, session: Session) -> None:
        """Let `session` report completions at the end of the turn."""
        if session not in self._answering and not session.ending:
            self._answering[session] = None
            self.host.stir(self)

    def flush_later(self, session: Session) -> None:
        """Let `session` do the work that it has put off when the bytes are read."""
        self._reader.flush_later(session)

    def await_rest(self, session: Session, rest: Iterator[bool | None]) -> None:
        """Read nothing more until `rest`, which is work of `session`, has come to its end."""
        self._reader.await_rest(session, rest)

    def carry_on(self) -> None:
        """Ask the server for another turn, in which the reader continues."""
        self.host.carry_on(self)

    def resume(self) -> None:
        """Continue with the bytes that were held back during the login, or while the connection was congested."""
        self._reader.resume()

    def _read_on(self) -> None:
        self.host.stir(self)
        self.resume()

    # -- the end

    def close(self) -> None:
        """Close the connection on the client's request. The answer follows when everything is returned."""
        self.state = ConnectionState.CLOSING
        self.release(closed=True, keeps=True)

    def fail(self, fault: ConnectionFault, *, forced: bool = False) -> None:
        """Close the connection for a fault of the client, or because it is `forced`. From now on only the client's
        answer counts.
        """
        if self.state in _SILENT:
            return
        if not forced:
            self.failed(int(fault.code), fault.text)
        begun = self.state is not ConnectionState.HEADER
        opened = self.state is ConnectionState.RUNNING
        self.release()
        if begun:
            text = fault.text.encode("utf-8", "replace")[:_LONGEST_TEXT].decode("utf-8", "ignore")
            self.send(ConnectionClose(fault.code, text))
        if opened:
            self.state = ConnectionState.CLOSING
            self.host.stir(self)
        else:
            self.end()

    def failed(self, code: int, text: str) -> None:
        """Report that the connection, or a session of it, was closed for a fault."""
        self.host.failed(self, code, text)

    def end(self) -> None:
        """Close the socket when everything in the outbox is sent."""
        self.state = ConnectionState.CLOSED
        self.host.stir(self)

    def release(self, *, closed: bool = False, keeps: bool = False) -> None:
        """Return everything that the sessions hold, and delete their exclusive queues. Much of it follows in later
        turns, in which nothing is sent for the sessions. If the client has `closed` the connection, it gets its
        answer at the end. If the broker `keeps` sessions, those with a timeout go on without a connection.
        """
        if self._ending.begun:
            return
        self._reader.flush()
        sessions = [session for session in self.sessions.values() if not session.ending]
        if keeps:
            sessions = [session for session in sessions if not self.part_with(session)]
        self._reader.end()
        for session in sessions:
            session.answer_now()
            session.leave()
        self.sessions.clear()
        self._answering.clear()
        self._ending.begin(self.flow, self._releasing(sessions, closed=closed))

    def part_with(self, session: Session) -> bool:
        """Let a session go on without a connection, if it may be kept. Return whether it is."""
        if not session.may_be_kept or not self._reader.can_let_go(session):
            return False
        session.answer_now()
        rest = self._reader.let_go(session)
        self.sessions.pop(session.channel, None)
        session.keep()
        if rest is not None:
            self.broker.engine.left_over.begin(finishing(session, rest))
        return True

    def leave(self, work: Iterator[None]) -> None:
        """Do the work of a session, which ends. Much of it follows in later turns."""
        self._ending.leave(work)

    def _drop_parts(self) -> None:
        """Drop those parts that refer to the connection, which is lost."""
        del self._reader, self.gate, self.login

    def _releasing(self, sessions: list[Session], *, closed: bool) -> Iterator[None]:
        for session in sessions:
            yield from session.releasing()
        if closed and self.state is not ConnectionState.CLOSED:
            self.send(ConnectionCloseOk())
            self.end()
