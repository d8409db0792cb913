"""The server that endpoints see: logins, limits, who publishes, and who must wait while something runs short."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from escrowmq.config import CONTENT_BYTES, LimitsSection
from escrowmq.core.branches.branch import Limits
from escrowmq.core.broker import Broker
from escrowmq.server.auth import Authenticator
from escrowmq.server.connection import ClientConnection, Pause
from escrowmq.server.faults import Faults
from escrowmq.server.hangup import hung_up
from escrowmq.server.resources import Alarms, give_back_memory, resident_bytes
from escrowmq.server.turn import Turns
from escrowmq.wire.endpoint import Endpoint, EndpointLimits, Verdict
from escrowmq.wire.sasl import Credentials

UNWRITTEN_LIMIT: Final = 64 << 20
"""Bytes that may wait for the disk; above, publishers are not read until half of it is written."""
ALARM_CHECK_MS: Final = 100
TICK_SECONDS: Final = 1.0
HELD_UP_MS: Final = 500
"""A tick that is this late tells that the process has slept, or was kept from the processor."""
_KEPT: Final = {True: ("running short", "hardly anything"), False: ("there again", "what they may")}

_log = logging.getLogger("escrowmq.server")
_connections_log = logging.getLogger("escrowmq.connection")


def endpoint_limits(limits: LimitsSection) -> EndpointLimits:
    """The configured limits as endpoints take them."""
    return EndpointLimits(
        channels=limits.channels_per_connection,
        frame_max=limits.frame_max,
        message_size=limits.message_size,
        header_size=limits.header_size,
        heartbeat=round(limits.heartbeat_seconds),
        transaction=Limits(
            limits.transaction_operations,
            limits.transaction_bytes or CONTENT_BYTES,
            int(limits.transaction_age_seconds * 1000),
        ),
    )


class Runtime:
    """Implements `wire.endpoint.Host`; keeps the list of connections and holds publishers back."""

    def __init__(
        self,
        turns: Turns,
        authenticator: Authenticator,
        alarms: Alarms,
        limits: LimitsSection,
        mechanisms: tuple[str, ...],
    ) -> None:
        self.turns = turns
        self.broker: Broker = turns.broker
        self.limits: EndpointLimits = endpoint_limits(limits)
        self.mechanisms: tuple[str, ...] = mechanisms
        self.alarms = alarms
        self.connections: dict[ClientConnection, None] = {}
        self.accepted = 0
        self.stopping = False
        self.all_closed = asyncio.Event()
        self._authenticator = authenticator
        self._most = limits.connections
        self._login_ms = int(limits.unauthenticated_seconds * 1000)
        self._publishers: dict[Endpoint, ClientConnection] = {}
        self._by_endpoint: dict[Endpoint, ClientConnection] = {}
        self._faults = Faults()
        self._full = False
        self._checked_ms = 0
        self._ticked_ms = 0
        self._timer: asyncio.TimerHandle | None = None
        turns.after.append(self._watch)

    # -- what endpoints ask (wire.endpoint.Host)

    def authenticate(self, endpoint: Endpoint, credentials: Credentials, done: Callable[[Verdict], None]) -> None:
        """See `Host.authenticate`."""
        connection = self._by_endpoint[endpoint]

        def judged(verdict: Verdict) -> None:
            connection.user = verdict.user or ""
            done(verdict)

        self._authenticator.authenticate(connection.peer, credentials, judged)

    def admitted(self, endpoint: Endpoint, user: str, vhost: str) -> None:
        """See `Host.admitted`."""
        connection = self._by_endpoint[endpoint]
        connection.user, connection.vhost, connection.admitted = user, vhost, True

    def stir(self, endpoint: Endpoint) -> None:
        """See `Host.stir`."""
        self.turns.dirty[endpoint] = None

    def await_sync(self, endpoint: Endpoint) -> None:
        """See `Host.await_sync`."""
        self.turns.holding[endpoint] = None

    def publishing(self, endpoint: Endpoint) -> None:
        """See `Host.publishing`."""
        connection = self._by_endpoint[endpoint]
        self._publishers[endpoint] = connection
        if self.alarms.reason:
            endpoint.block(self.alarms.reason)
        if self._full:
            connection.pause(Pause.JOURNAL, on=True)

    def waiting(self, endpoint: Endpoint) -> None:
        """See `Host.waiting`."""
        self._by_endpoint[endpoint].pause(Pause.ALARM, on=True)

    def failed(self, endpoint: Endpoint, code: int, text: str) -> None:
        """See `Host.failed`."""
        who = f"{endpoint.label}, user {self._by_endpoint[endpoint].user!r}"
        self._faults.note(self.broker.now, who, code, text)

    def password_changed(self, endpoint: Endpoint, secret: bytes) -> None:
        """See `Host.password_changed`: passwords do not expire, so there is nothing to do with a new one."""
        connection = self._by_endpoint[endpoint]
        _connections_log.debug("user %r on %s sent a new secret", connection.user, connection.peer)

    # -- what connections report

    def opened(self, connection: ClientConnection) -> bool:
        """A socket was accepted; False if it is one too many."""
        self.accepted += 1
        self.connections[connection] = None
        if len(self.connections) > self._most:
            _connections_log.warning(
                "connection from %s refused: there are %d, which is the limit", connection.peer, self._most
            )
            return False
        _connections_log.debug("connection from %s accepted", connection.peer)
        return not self.stopping

    def adopt(self, connection: ClientConnection, endpoint: Endpoint) -> None:
        """`endpoint` speaks for `connection` from now on."""
        self.turns.outlets[endpoint] = connection
        self._by_endpoint[endpoint] = connection

    def closed(self, connection: ClientConnection, error: Exception | None) -> None:
        """The socket is gone."""
        self.connections.pop(connection, None)
        endpoint = connection.endpoint
        if endpoint is not None:
            self._by_endpoint.pop(endpoint, None)
            self._publishers.pop(endpoint, None)
            self.turns.forget(endpoint)
            seconds = (self.broker.now - connection.opened_ms) / 1000
            _connections_log.info("closed %s after %.1f s%s", endpoint.label, seconds, f": {error}" if error else "")
        if not self.connections:
            self.all_closed.set()

    # -- the watch over memory, disk and the log

    def _watch(self) -> None:
        """At the end of each turn."""
        unwritten = self.turns.journal.pending_bytes
        if unwritten > UNWRITTEN_LIMIT or (self._full and unwritten > UNWRITTEN_LIMIT // 2):
            if not self._full:
                self._set_full(full=True)
        elif self._full:
            self._set_full(full=False)
        now = self.broker.now
        if not 0 <= now - self._checked_ms < ALARM_CHECK_MS:
            self._checked_ms = now
            self.check_alarms()

    def _set_full(self, *, full: bool) -> None:
        self._full = full
        for connection in self._publishers.values():
            connection.pause(Pause.JOURNAL, on=full)

    def check_alarms(self) -> None:
        """Look at memory and disk; block or unblock publishers."""
        alarms = self.alarms
        memory, disk, pressing = alarms.memory, alarms.disk, alarms.pressing
        try:
            changed = alarms.check()
        except OSError as error:
            _log.error("the disk's free space cannot be read: %s", error)
            return
        if alarms.pressing != pressing:
            _log.info("memory is %s: queues keep %s in it", *_KEPT[alarms.pressing])
            self.broker.keep_less(on=alarms.pressing)
        if not changed:
            return
        if alarms.memory != memory:
            _log.warning(
                "memory alarm %s: %d bytes resident, the limit is %d",
                "on, publishers are blocked" if alarms.memory else "off",
                *(resident_bytes(), alarms.memory_limit),
            )
        if alarms.disk != disk:
            _log.warning(
                "disk alarm %s: the limit is %d free bytes",
                "on, publishers are blocked" if alarms.disk else "off",
                alarms.disk_limit,
            )
        for endpoint, connection in self._publishers.items():
            endpoint.block(alarms.reason)
            if not alarms.reason:
                connection.read_on()

    # -- the clock

    def start_ticking(self) -> None:
        """Look after silent connections, about once a second."""
        self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self.turns.begin()
        now = self.broker.now
        late = now - self._ticked_ms - int(TICK_SECONDS * 1000) if self._ticked_ms else 0
        self._ticked_ms = now
        for connection in hung_up(self.connections):
            connection.abort()
        for connection in list(self.connections):
            if late > HELD_UP_MS:
                connection.not_listened(late)
            connection.tick(now, self._login_ms)
        if self.alarms.pressing:
            give_back_memory()
        self.start_ticking()

    # -- the end

    def shut(self, text: str) -> None:
        """Ask every client to leave; `all_closed` is set when they have."""
        self.stopping = True
        self.turns.begin()
        if not self.connections:
            self.all_closed.set()
        for connection in list(self.connections):
            connection.pause(Pause.JOURNAL, on=False)  # the answer must be read
            connection.read_on()
            if connection.endpoint is not None:
                connection.endpoint.shut(text)
            else:
                connection.close()

    def stop(self) -> None:
        """No more ticks; whoever is still there is cut off."""
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self.connections):
            connection.abort()
