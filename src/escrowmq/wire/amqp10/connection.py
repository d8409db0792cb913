"""A connection of AMQP 1.0: its sessions, its output and its end. Reading is in `reading.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from escrowmq.core.access.door import Door
from escrowmq.core.broker import Broker
from escrowmq.core.budget import DELETED, LINK
from escrowmq.core.queues.queue import Queue
from escrowmq.core.queues.queue import Session as Owner
from escrowmq.core.topology.vhost import VirtualHost
from escrowmq.wire.amqp10.codec.frames import EMPTY_FRAME, frame
from escrowmq.wire.amqp10.codec.performatives import Close, Open, encode_performative
from escrowmq.wire.amqp10.errors import CONNECTION_FORCED, AmqpFault, Scope
from escrowmq.wire.amqp10.handshake import ConnectionState
from escrowmq.wire.amqp10.reading import Reader
from escrowmq.wire.amqp10.transactions import LocalTransactions
from escrowmq.wire.ending import ConnectionEnding
from escrowmq.wire.flow import OutputFlow, PublishGate
from escrowmq.wire.login import Login
from escrowmq.wire.outbox import CONNECTION, Outbox, Piece

if TYPE_CHECKING:
    from escrowmq.core.counters import Traffic
    from escrowmq.core.termini.loan import Loan
    from escrowmq.core.termini.terminus import TerminusKey
    from escrowmq.wire.amqp10.link import Link
    from escrowmq.wire.amqp10.nodes import DynamicTopic
    from escrowmq.wire.amqp10.session import Session
    from escrowmq.wire.amqp10.transactions import LocalTransaction
    from escrowmq.wire.endpoint import EndpointLimits, Host, Peer

CLOSE_MS: Final = 5000
"""How long the broker waits for a client's answer to Close."""
_SILENT: Final = frozenset((ConnectionState.CLOSING, ConnectionState.CLOSED))


class Connection:
    """The endpoint of one AMQP 1.0 connection (`wire.endpoint.Endpoint`)."""

    def __init__(self, host: Host, peer: Peer, label: str = "") -> None:
        self._host = host
        self.peer = peer
        self.label = label or str(peer)
        self.broker: Broker = host.broker
        self.limits: EndpointLimits = host.limits
        self.login = Login(host, self, peer)
        self.state = ConnectionState.HEADER
        self.owner = Owner(self.label)  # of exclusive queues
        self.vhost: VirtualHost[Queue]
        self.traffic: Traffic
        self.door: Door  # checks every operation; set when the virtual host is known
        self.container = ""
        self.properties: dict[object, object] = {}  # of the client's Open
        self.frame_max: int = 512  # of frames to the client
        self.idle_ms = 0  # the client's idle time-out; 0 if it has none
        self.sessions: dict[int, Session] = {}
        self.dynamic_topics: dict[DynamicTopic, None] = {}
        self.transactions = LocalTransactions(self)
        self.finished = False
        self.large_bodies = self.answered = False
        self._closing_since: int | None = None
        self._outbox = Outbox(host.broker.log)
        self.flow = OutputFlow(self._outbox, host.limits.outbox, self._read_on)
        self.gate = PublishGate(host, self)
        self._publishes = False
        self._reader = Reader(self)
        self._answering: dict[Session, None] = {}
        self._loans: dict[TerminusKey, Loan] = {}  # of sessions that have ended
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
        self._host.stir(self)
        return holding

    def congested(self, unsent: int) -> None:
        """Note that `unsent` bytes wait in the socket's buffer."""
        self.flow.congested(unsent)

    def block(self, reason: str) -> None:
        """Take the credit of all producers back, or grant it again when `reason` is empty. That of many links follows
        in later turns.
        """
        self.gate.block(reason)
        if self.state is ConnectionState.RUNNING:
            self.broker.engine.left_over.begin(self._blocking(reason))

    def _blocking(self, reason: str) -> Iterator[None]:
        for session in list(self.sessions.values()):
            yield from session.blocking(reason)

    def tick(self, now_ms: int, idle_in_ms: int, idle_out_ms: int) -> None:
        """Send empty frames (section 2.4.5). Give up on a peer that is silent or does not answer a close."""
        if self.state is ConnectionState.CLOSING:
            if self._closing_since is None:
                self._closing_since = now_ms
            elif now_ms - self._closing_since > CLOSE_MS:
                self.end()
        elif self.state is ConnectionState.RUNNING:
            limit = self.limits.heartbeat * 2000
            if limit and idle_in_ms > limit:
                text = f"nothing arrived for {idle_in_ms / 1000:g} s"
                self.fail(AmqpFault(Scope.CONNECTION, "amqp:resource-limit-exceeded", text))
                self.end()
            elif self.idle_ms and idle_out_ms * 2 >= self.idle_ms:
                self._outbox.put_now(EMPTY_FRAME)
                self._host.stir(self)

    def permissions_changed(self) -> Iterator[None]:
        """See `Endpoint.permissions_changed` (SEC-3)."""
        if self.state is ConnectionState.RUNNING:
            for session in list(self.sessions.values()):
                yield from session.dropping_forbidden_links()

    def shut(self, text: str) -> None:
        """End the connection with amqp:connection:forced."""
        if self.state is ConnectionState.RUNNING:
            self.fail(AmqpFault(Scope.CONNECTION, CONNECTION_FORCED, text))
        elif self.state not in _SILENT:
            self.end()

    def lost(self) -> None:
        """Release everything after the connection was lost. Much of it follows in later turns."""
        self.state = ConnectionState.CLOSED
        self._ending.lost(self.release, self.flow)

    def describe(self) -> dict[str, object]:
        """Return the connection's entry in lists of connections. It contains nothing secret."""
        return {
            "name": self.label,
            "peer": str(self.peer),
            "protocol": "AMQP 1.0",
            "user": self.login.user,
            "vhost": self.login.vhost_name,
            "state": self.state.name.lower(),
            "channels": len(self.sessions),
            "tls": self.peer.tls,
            "client": {
                "container": self.container,
                **{str(key): value for key, value in self.properties.items() if isinstance(value, (str, int))},
            },
            "links": [entry for session in self.sessions.values() for entry in session.describe()],
        }

    def channel_rows(self) -> Iterator[dict[str, object]]:
        """See `Endpoint.channel_rows`."""
        for session in list(self.sessions.values()):
            if self.sessions.get(session.channel) is session:
                yield session.row()

    # -- called by the parts of the connection

    @property
    def user(self) -> str:
        """The authenticated user; empty before the login."""
        return self.login.user

    def note_peer(self, opened: Open) -> None:
        """Apply the limits of the client's Open, and keep its name for lists."""
        self.container = opened.container_id
        self.properties = dict(opened.properties or {})
        self.label = f"{self.peer} ({self.container[:100]})"
        self.owner.label = self.label
        self.frame_max = max(512, min(opened.max_frame_size, self.limits.frame_max))
        self.idle_ms = opened.idle_time_out or 0

    def send_raw(self, data: bytes) -> None:
        """Send `data` on behalf of the connection as a whole."""
        self.put(CONNECTION, data)

    def send(self, performative: Open | Close) -> None:
        """Send a performative of the connection, on channel 0."""
        self.send_raw(frame(0, encode_performative(performative)))

    def put(self, lane: int, data: Piece, after: int = 0) -> None:
        """Send `data` in `lane` when the log is synced up to `after`. The lane of a session is its channel plus 1."""
        outbox = self._outbox
        outbox.put(lane, data, after)
        if after and outbox.holding:
            self._host.await_sync(self)
        self._host.stir(self)

    def put_pieces(self, lane: int, pieces: list[Piece], after: int = 0) -> None:
        """Like `put`, for consecutive pieces. Large pieces are not copied."""
        self._outbox.put_pieces(lane, pieces, after)
        if after and self._outbox.holding:
            self._host.await_sync(self)
        self._host.stir(self)

    def answer_later(self, session: Session) -> None:
        """Let `session` send its dispositions and flows at the end of the turn."""
        if session not in self._answering and not session.ending:
            self._answering[session] = None
            self._host.stir(self)

    def publishes(self) -> None:
        """Note that the client has a link on which it sends. The server blocks it while memory or disk is short."""
        if not self._publishes:
            self._publishes = True
            self._host.publishing(self)

    def keep_loan(self, loan: Loan) -> None:
        """Keep a loan of a session that has ended, since its terminus may expire with the connection."""
        if self._ending.begun:
            loan.connection_lost()
        elif loan.latest:
            self._loans[loan.terminus.key] = loan

    def forget_parts(self, link: Link) -> None:
        """Forget the incomplete delivery of a link that is gone."""
        self._reader.forget_parts(link)

    def interrupt_parts(self, link: Link, loan: Loan) -> None:
        """Leave the incomplete delivery of a link that is gone with its terminus."""
        self._reader.interrupt_parts(link, loan)

    def expect(self, transaction: LocalTransaction) -> None:
        """Prepare for posts in a new transaction."""
        self._reader.expect(transaction)

    def forget_transaction(self, transaction: LocalTransaction) -> None:
        """Forget a transaction that has ended."""
        self._reader.forget_transaction(transaction)

    def is_incomplete(self, transaction: LocalTransaction) -> bool:
        """Return whether further transfers of a post in `transaction` are to come."""
        return self._reader.is_incomplete(transaction)

    def carry_on(self) -> None:
        """Ask the server for another turn, in which the reader continues."""
        self._host.carry_on(self)

    def resume(self) -> None:
        """Continue with the bytes that were held back during the login, or while the connection was congested."""
        self._reader.resume()

    def _read_on(self) -> None:
        self._host.stir(self)
        self.resume()

    # -- the end

    def refuse_protocol(self, header: bytes) -> None:
        """Send a protocol header that the broker accepts, and close (section 2.2)."""
        self.send_raw(header)
        self.end()

    def close(self) -> None:
        """Close the connection on the client's request. The answer follows when everything is returned, behind all
        pending output.
        """
        self.state = ConnectionState.CLOSING
        self.release(closed=True)

    def fail(self, fault: AmqpFault) -> None:
        """Close the connection for a fault. From now on only the client's Close counts."""
        if self.state in _SILENT:
            return
        if fault.condition != CONNECTION_FORCED:
            self.failed(fault)
        opened = self.state is ConnectionState.RUNNING
        self.release()
        if opened or self.state is ConnectionState.OPENING:
            if not opened:  # Close is only valid after Open
                self.send(Open("escrowmq"))
            self.send(Close(fault.error()))
        if opened:
            self.state = ConnectionState.CLOSING
            self._host.stir(self)
        else:
            self.end()

    def failed(self, fault: AmqpFault) -> None:
        """Report that the connection, or a session or a link of it, was closed for a fault."""
        self._host.failed(self, fault.condition, fault.text)

    def end(self) -> None:
        """Close the socket when everything in the outbox is sent."""
        self.state = ConnectionState.CLOSED
        self._host.stir(self)

    def release(self, *, closed: bool = False) -> None:
        """Return everything that the sessions hold, and delete the connection's exclusive queues. Much of it follows in
        later turns, in which nothing is sent for the sessions. If the client has `closed` the connection, it gets its
        answer at the end.
        """
        if self._ending.begun:
            return
        self._reader.end()
        sessions = [session for session in self.sessions.values() if not session.ending]
        for session in sessions:
            session.send_answers()
            session.leave()
        self.sessions.clear()
        self._answering.clear()
        self._ending.begin(self.flow, self._releasing(sessions, closed=closed))

    def leave(self, work: Iterator[None]) -> None:
        """Do the work of a session, which ends. Much of it follows in later turns."""
        self._ending.leave(work)

    def _drop_parts(self) -> None:
        """Drop those parts that refer to the connection, which is lost."""
        del self._reader, self.flow, self.gate, self.login, self.transactions

    def _releasing(self, sessions: list[Session], *, closed: bool) -> Iterator[None]:
        directory, requests = self.broker.directory, self.broker.engine.requests
        for session in sessions:
            yield from session.releasing()
        while self._loans:
            self._loans.popitem()[1].connection_lost()
            requests.left -= LINK
            if requests.left <= 0:
                yield
        while self.dynamic_topics:
            next(iter(self.dynamic_topics)).close()
            requests.left -= DELETED
            if requests.left <= 0:
                yield
        self.broker.claims.release(self.login.vhost_name, self.container, self.owner)
        yield from directory.ending(self.owner)
        if closed and self.state is not ConnectionState.CLOSED:
            self.send(Close())
            self.end()
