"""One client's connection: moves bytes between a transport and an endpoint, and decides when the client is read."""

from __future__ import annotations

import asyncio
import logging
from enum import IntFlag
from typing import TYPE_CHECKING, Final, cast

from escrowmq.core.watch import note_in
from escrowmq.journal.errors import JournalError
from escrowmq.server.fatal import die
from escrowmq.server.intake import LOGIN
from escrowmq.server.listener import peer_of
from escrowmq.server.websocket import START, WebSocket
from escrowmq.wire.endpoint import Endpoint, Peer
from escrowmq.wire.sniff import AMQP_FAMILY, HEADER_SIZE, Family

if TYPE_CHECKING:
    from collections.abc import Iterator

    from escrowmq.server.runtime import Runtime

UNSENT_LIMIT: Final = 4 << 20
"""Unsent bytes above which a client is not read, because it sends requests faster than it reads the answers."""
READ: Final = 256 << 10
"""The most bytes of one read. Thousands of small messages fit into them."""
PACED_READ: Final = 64 << 10
SMALL_READ: Final = 4 << 10
"""The most bytes of one read while publishers outpace consumers. A consumer with a prefetch of 1,000 gets at most so
many messages in a turn; if more are read, the queue outgrows its memory, and every message goes through the log.
Clients whose publishes are answered limit themselves, so they are read as always."""
LARGE_READ: Final = 2 << 20
"""The most bytes of one read while the client publishes large bodies: fewer turns. With reads of 1 MiB, a message of
16 KiB costs a tenth more processor time; with reads of 256 KiB, twice as much."""
SHARE: Final = 128 << 10
"""Bytes in one read that use up a connection's share of a turn."""
SMALL: Final = 4096
"""Bytes that may wait for a later iteration of the event loop while the connection is still read: pausing costs more
than handling a small request."""
CLOSING_MS: Final = 5000
"""The time that a client has to read the last bytes of a connection that is being closed."""
EXPIRED: Final = "the token has expired"

_log = logging.getLogger("escrowmq.connection")


class Pause(IntFlag):
    """The reasons why a connection is not read."""

    UNSENT = 1
    ALARM = 2
    JOURNAL = 4
    SHARE = 8


class ClientConnection(asyncio.BufferedProtocol):
    """Passes bytes to an endpoint, and sends the endpoint's output once in each turn.

    All connections are read into the same buffer, since the event loop reads one after the other.
    """

    def __init__(self, runtime: Runtime, family: Family | None = None, peer: Peer | None = None) -> None:
        """`family` has the protocols of the port: AMQP by default. `peer` is the client if another process has accepted
        it; by default, it is the other end of the transport.
        """
        self._runtime = runtime
        self._introduced = peer
        self._family = family or AMQP_FAMILY
        self._turns = runtime.turns
        self._transport: asyncio.Transport
        self._start = b""
        self._websocket: WebSocket | None = None
        self._buffer = runtime.buffer
        self._congested = False
        self._unread = "", 0  # bytes that the endpoint holds back, as they are counted, and for whom
        self._late = 0  # chunks of bytes that wait for a later iteration of the event loop
        self._pauses = Pause(0)
        self._last_in = self._last_out = 0
        self._written = self._sent = self._progress_ms = 0  # bytes given to the transport, and sent; time of the latter
        self.opened_ms = 0
        self.closing_ms = 0
        self.ident = 0
        """The number of the connection since the broker started. The runtime gives it."""
        self.peer = Peer("?", 0)
        self.endpoint: Endpoint | None = None
        self.user = self.vhost = ""
        self.expires_ms = 0
        """The time at which the client's token expires; 0: it has none."""
        self.admitted = False
        """Whether the login is complete. The endpoint then checks that its peer is alive."""
        self.blocked_for = ""
        """The alarm that was sent to the client as the reason why its publishes wait."""
        self._held_up_ms = runtime.ticker.held_up_ms
        self._accepted = self._made = False
        self.watched = False

    # -- called by the transport

    def accepted(self, transport: asyncio.BaseTransport) -> None:
        """Count and time the connection. With TLS, `transport` stands in until the handshake is complete."""
        self._turns.begin()
        self._accepted = True
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass
        self.peer = self._introduced or peer_of(transport)
        self.opened_ms = self._last_in = self._last_out = self._progress_ms = self._turns.broker.engine.now
        if not self._runtime.opened(self):
            self.abort()

    def handshake_failed(self, error: BaseException | None) -> None:
        """The TLS handshake has ended without success; `error` is None if the broker has ended it."""
        if self._made:  # it was completed in the moment in which it was ended; the transport tells of its loss
            return
        self._turns.begin()
        if error is not None and not isinstance(error, ConnectionResetError | BrokenPipeError):
            self._runtime.turned_away(self, f"TLS handshake failed: {error}")
        self.connection_lost(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made = True
        if self._accepted:
            self._transport = cast("asyncio.Transport", transport)
            self.peer = self._introduced or peer_of(transport)
        else:
            self.accepted(transport)
        self._transport.set_write_buffer_limits(high=self._runtime.limits.outbox, low=self._runtime.limits.outbox // 4)
        if self.closing_ms:
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        endpoint, runtime = self.endpoint, self._runtime
        if runtime.held_back.full(self.user):
            self._buffer = runtime.small_buffer
        elif endpoint is not None and endpoint.large_bodies:
            self._buffer = runtime.large_buffer
        elif runtime.broker.engine.budget.outpaced and (endpoint is None or not endpoint.answered):
            self._buffer = runtime.paced_buffer
        else:
            self._buffer = runtime.buffer
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._take(self._buffer[:nbytes].tobytes())

    def _take(self, data: bytes) -> None:
        cost = 1 if self.admitted else LOGIN
        if self._runtime.intake.admit(cost):
            self._receive(data)
        else:
            if self._late or len(data) > SMALL:  # so that little data waits for each connection
                self.pause(Pause.SHARE, on=True)
            self._late += 1
            self._runtime.intake.defer(lambda: self._receive_late(data), cost)

    def eof_received(self) -> bool:
        """Return whether the transport stays open for now; a transport with TLS cannot."""
        if self.peer.tls or self._runtime.intake.admit():
            return False
        self._runtime.intake.defer(self._transport.close)
        return True

    def _receive_late(self, data: bytes) -> None:
        self._turns.begin()
        self._late -= 1
        self.pause(Pause.SHARE, on=False)
        self._receive(data)

    def _receive(self, data: bytes) -> None:
        self._turns.begin()
        self._last_in = self._turns.broker.engine.now
        if self.watched:
            self.changed()
        if self.closing_ms:
            return
        size, endpoint = len(data), self.endpoint
        if data and (self._websocket is not None or endpoint is None):
            data = self._unwrapped(data)
            if not data:
                return
        if endpoint is None:
            data = self._start = self._start + data
            endpoint = self._choose(data)
            if endpoint is None:
                return
        try:
            endpoint.receive(data)
        except JournalError as error:
            die(str(error))
        except Exception:  # noqa: BLE001 - an internal error must end this connection only
            self._fail()
        self._count_unread()
        if self._websocket is not None and self._websocket.ended:
            self.close()
        full = size == len(self._buffer)
        if (full or size >= SHARE) and not self._pauses:
            if full:  # the event loop would continue reading megabytes while all other clients wait
                self.pause(Pause.SHARE, on=True)
                self._turns.soon(self._rested)
            self._turns.end()

    def _count_unread(self) -> None:
        """Count the bytes that the endpoint holds back."""
        unread = self.endpoint.unread if self.endpoint is not None and not self.closing_ms else 0
        user, before = self._unread
        if unread != before or user != self.user:
            self._runtime.held_back.change(user, -before)
            self._runtime.held_back.change(self.user, unread)
            self._unread = self.user, unread

    def _rested(self) -> None:
        self.pause(Pause.SHARE, on=False)

    def pause_writing(self) -> None:
        self._congested = True
        self._tell_congestion()

    def resume_writing(self) -> None:
        self._turns.begin()
        self._congested = False
        self._tell_congestion()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._runtime.intake.admit():
            self._lose(exc)
        else:
            self._runtime.intake.defer(lambda: self._lose(exc))

    def _lose(self, exc: Exception | None) -> None:
        self._turns.begin()
        self.closing_ms = self.closing_ms or self._turns.broker.engine.now
        self._count_unread()
        endpoint = self.endpoint
        if endpoint is not None:
            try:
                endpoint.lost()
            except JournalError as error:
                die(str(error))
            except Exception:  # noqa: BLE001 - an internal error must end this connection only
                _log.exception("internal error while closing %s", endpoint.label)
        self._runtime.closed(self, exc)

    # -- called by the server

    def flush(self) -> None:
        """Send the output of the endpoint, and close the connection after the last output."""
        endpoint = self.endpoint
        if endpoint is None or self.closing_ms:
            return
        try:
            pieces = endpoint.output()
        except Exception:  # noqa: BLE001 - an internal error must end this connection only
            self._fail()
            return
        self._count_unread()
        if self.watched:
            self.changed()
        if pieces:
            if self._websocket is not None:
                pieces = [self._websocket.wrap(pieces)] if self._websocket.is_open else []
            if len(pieces) == 1:
                self._written += len(pieces[0])
                self._transport.write(pieces[0])
            else:
                self._written += sum(map(len, pieces))
                self._transport.writelines(pieces)
            self._last_out = self._turns.broker.engine.now
            if self._congested:
                self._tell_congestion()
        if endpoint.finished:
            self.close()

    def pause(self, why: Pause, *, on: bool) -> None:
        """Stop reading for the reason `why`, or remove that reason, and resume reading if no other reason is left."""
        pauses = self._pauses | why if on else self._pauses & ~why
        if bool(pauses) != bool(self._pauses) and not self.closing_ms and not self._transport.is_closing():
            if pauses:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()
                self._last_in = self._turns.broker.engine.now  # the client was not read, so it was not silent
        if pauses != self._pauses:
            self.changed()
        self._pauses = pauses

    def read_on(self) -> None:
        """Let the endpoint handle the bytes that it held back, and read the client again, after an alarm."""
        if self._pauses & Pause.ALARM:
            self.pause(Pause.ALARM, on=False)
            self._turns.soon(lambda: self._take(b""))

    def carry_on(self) -> None:
        """The endpoint continues in a later iteration of the event loop. Until then the client is not read."""
        self.pause(Pause.SHARE, on=True)
        self._late += 1
        self._runtime.intake.defer(lambda: self._receive_late(b""))

    def tick(self, now_ms: int, login_ms: int) -> None:
        """Close a connection that is silent or not logged in for too long; called about once a second."""
        held_up_ms = self._runtime.ticker.held_up_ms
        if held_up_ms != self._held_up_ms:  # bytes that arrived meanwhile may still wait in the socket
            self._last_in = min(self._last_in + held_up_ms - self._held_up_ms, now_ms)
            self._progress_ms = min(self._progress_ms + held_up_ms - self._held_up_ms, now_ms)
            self._held_up_ms = held_up_ms
        if self.closing_ms:
            if now_ms - self.closing_ms > CLOSING_MS:
                self._transport.abort()
        elif 0 < self.expires_ms <= now_ms:
            self.expires_ms = 0
            _log.info(
                "connection from %s, user %r, closed: its token has expired",
                *(self.peer, self.user),
                extra={"fields": {"peer": self.peer, "user": self.user}},
            )
            self.dismiss(EXPIRED)
        elif not self.admitted and now_ms - self.opened_ms > login_ms:
            self._runtime.turned_away(self, f"not logged in after {login_ms / 1000:g} s")
            self.abort()
        elif self._writing_stalls(now_ms):
            _log.warning(
                "connection from %s, user %r, closed: it has read nothing for %g s, and %d bytes are unsent "
                "(limits.unread_seconds)",
                *(self.peer, self.user, self._runtime.unread_ms / 1000, self.unsent),
                extra={"fields": {"peer": self.peer, "user": self.user, "unsent_bytes": self.unsent}},
            )
            self.abort()
        elif self.endpoint is not None:
            silent = 0 if self._pauses else now_ms - self._last_in
            self.endpoint.tick(now_ms, silent, now_ms - self._last_out)

    def _writing_stalls(self, now_ms: int) -> bool:
        """Return whether the client has left everything unread for longer than it may.

        Heartbeats do not find such a client: above `UNSENT_LIMIT` it is not read itself. The sum does not grow by bytes
        that were only put into the buffer, so heartbeats to the client are no progress.
        """
        unsent = self.unsent
        sent = self._written - unsent
        if sent > self._sent or not unsent:
            self._sent, self._progress_ms = sent, now_ms
        return 0 < self._runtime.unread_ms < now_ms - self._progress_ms

    def close(self) -> None:
        """Send the buffered bytes and then the end of the stream. Incoming bytes are discarded until the client closes.

        If a socket is closed while it has unread bytes, TCP resets the connection, and the client may lose the last
        bytes that were sent to it.
        """
        if self.closing_ms:
            return
        self.closing_ms = self._turns.broker.engine.now
        transport = self._transport
        if self._websocket is not None:
            transport.write(self._websocket.close())
        if transport.is_closing() or not transport.can_write_eof():
            transport.close()
            return
        try:
            transport.write_eof()
            if self._pauses:
                transport.resume_reading()
        except OSError:  # the client has closed the connection
            transport.abort()

    def abort(self) -> None:
        """Close the connection immediately; buffered bytes are lost."""
        self.closing_ms = self.closing_ms or self._turns.broker.engine.now
        self._transport.abort()

    @property
    def unsent(self) -> int:
        """The number of bytes that wait in the buffer of the socket."""
        return self._transport.get_write_buffer_size()

    @property
    def descriptor(self) -> int:
        """The file descriptor of the socket; -1 if it is closed."""
        sock = self._transport.get_extra_info("socket")
        return -1 if sock is None or self._transport.is_closing() else int(sock.fileno())

    @property
    def paused(self) -> Pause:
        """The reasons why the connection is not read; empty if it is."""
        return self._pauses

    # -- for administration (admin.ports.OpenConnection)

    def changed(self) -> None:
        """Note that what lists show of the connection may change."""
        if self.watched:
            self.watched = False
            note_in(self._runtime.connection_watches, self)

    @property
    def address(self) -> str:
        """See `OpenConnection.address`."""
        return str(self.peer)

    @property
    def local_address(self) -> str:
        """See `OpenConnection.local_address`."""
        local = self._transport.get_extra_info("sockname")
        return str(Peer(local[0], local[1])) if isinstance(local, tuple) else ""

    @property
    def held_back_by(self) -> list[str]:
        """See `OpenConnection.held_back_by`."""
        return [pause.name.lower() for pause in self._pauses if pause.name] if self._pauses else []

    def describe(self) -> dict[str, object]:
        """See `OpenConnection.describe`."""
        return self.endpoint.describe() if self.endpoint is not None else {"state": "accepted"}

    def channel_rows(self) -> Iterator[dict[str, object]]:
        """See `OpenConnection.channel_rows`."""
        return self.endpoint.channel_rows() if self.endpoint is not None else iter(())

    def permissions_changed(self) -> Iterator[None]:
        """See `OpenConnection.permissions_changed`."""
        return self.endpoint.permissions_changed() if self.endpoint is not None else iter(())

    def dismiss(self, reason: str) -> None:
        """See `OpenConnection.dismiss`."""
        if self.endpoint is None:
            self.abort()
        else:
            self.endpoint.shut(reason)

    # -- inside

    def _choose(self, start: bytes) -> Endpoint | None:
        family = self._family
        if len(start) < HEADER_SIZE and (not family.hopeless(start) or (family.websocket and START.startswith(start))):
            return None
        opener = family.sniff(start[:HEADER_SIZE])
        if opener is None:
            local = self._transport.get_extra_info("sockname")
            port = local[1] if isinstance(local, tuple) else "?"
            _log.warning(
                "connection from %s to port %s refused: it speaks %s",
                *(self.peer, port, family.guess(start)),
                extra={"fields": {"peer": self.peer}},
            )
            answer = family.refusal(start)
            self._transport.write(answer if self._websocket is None else self._websocket.wrap([answer]))
            self.close()
            return None
        self._start = b""
        self.endpoint = opener(self._runtime, self.peer)
        self._runtime.adopt(self, self.endpoint)
        return self.endpoint

    def _unwrapped(self, data: bytes) -> bytes:
        """Return the bytes for the endpoint: `data` itself, or the contents of frames if this is a WebSocket."""
        websocket = self._websocket
        if websocket is None:
            if not self._family.websocket or not (self._start + data).startswith(START):
                return data
            websocket = self._websocket = WebSocket(self._runtime.websocket_origins, tls=self.peer.tls)
            data, self._start = self._start + data, b""
        payload = websocket.receive(data)
        answers = websocket.answers()
        if answers:
            self._written += len(answers)
            self._transport.write(answers)
        if websocket.refusal:
            self._runtime.turned_away(self, f"WebSocket: {websocket.refusal}")
        if websocket.ended and not payload:
            self.close()
        return payload

    def _tell_congestion(self) -> None:
        unsent = self.unsent
        if self.endpoint is not None:
            self.endpoint.congested(unsent)
        self.pause(Pause.UNSENT, on=self._congested and unsent > UNSENT_LIMIT)

    def _fail(self) -> None:
        label = self.endpoint.label if self.endpoint is not None else str(self.peer)
        _log.exception("internal error on %s; the connection is closed", label)
        self.abort()
