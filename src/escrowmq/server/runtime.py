"""The server as endpoints and connections see it: logins, limits, and the list of connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator
from functools import partial
from math import ceil
from typing import Any, TypeVar

from escrowmq.admin.events import CONNECTION_CLOSED, CONNECTION_OPENED, QUEUE_AVAILABLE, QUEUE_UNAVAILABLE, LiveEvents
from escrowmq.admin.ports import OpenConnection
from escrowmq.config.limits import CONTENT_BYTES, LimitsSection
from escrowmq.config.values import in_bytes
from escrowmq.core.access.permissions import DefaultLimits
from escrowmq.core.branches.branch import Limits
from escrowmq.core.branches.shares import UserLimits
from escrowmq.core.broker import Broker
from escrowmq.core.queues.queue import Queue
from escrowmq.core.termini.registry import TerminusLimits
from escrowmq.core.watch import ChangeWatch, note_in
from escrowmq.server.admission import Admission
from escrowmq.server.auth import Authenticator, log_verdict
from escrowmq.server.connection import LARGE_READ, PACED_READ, READ, SMALL_READ, ClientConnection, Pause
from escrowmq.server.faults import Faults
from escrowmq.server.held_back import HeldBack
from escrowmq.server.intake import Intake
from escrowmq.server.parkings import Parkings
from escrowmq.server.pressure import Pressure
from escrowmq.server.relief import Relief
from escrowmq.server.resources import Alarms, give_back_memory
from escrowmq.server.ticking import Ticker
from escrowmq.server.turn import Turns
from escrowmq.wire.endpoint import Endpoint, EndpointLimits, Peer, Verdict
from escrowmq.wire.rocketmq.options import RocketmqOptions
from escrowmq.wire.sasl import TOKEN, Credentials
from escrowmq.wire.scram.keys import HASHES
from escrowmq.wire.scram.server import Challenge

T = TypeVar("T")

_log = logging.getLogger("escrowmq.connection")


def endpoint_limits(
    limits: LimitsSection,
    rabbitmq_version: str = "",
    rocketmq: RocketmqOptions | None = None,
    federation_tag: str = "",
) -> EndpointLimits:
    """Return the configured limits in the units of endpoints. The others are settings of their own."""
    return EndpointLimits(
        channels=limits.channels_per_connection,
        frame_max=limits.frame_max,
        message_size=limits.message_size,
        header_size=limits.header_size,
        arguments=limits.arguments_size,
        heartbeat=round(limits.heartbeat_seconds),
        links=limits.links_per_session,
        link_credit=limits.link_credit,
        unsettled=limits.unsettled_per_link,
        session_timeout=limits.session_timeout_seconds,
        transactions=limits.transactions_per_connection,
        subscriptions=limits.subscriptions_per_connection,
        auto_create=limits.auto_create_nodes,
        federation_tag=federation_tag,
        rabbitmq_version=rabbitmq_version,
        rocketmq=rocketmq or RocketmqOptions(),
        transaction=Limits(
            limits.transaction_operations,
            limits.transaction_bytes or CONTENT_BYTES,
            int(limits.transaction_age_seconds * 1000),
        ),
    )


def terminus_limits(limits: LimitsSection) -> TerminusLimits:
    """Return the limits of AMQP 1.0 link termini."""
    return TerminusLimits(limits.termini_per_user, limits.unsettled_per_link, limits.link_timeout_seconds * 1000)


def user_limits(limits: LimitsSection) -> UserLimits:
    """Return the configured limits of each user for distributed transactions."""
    return UserLimits(limits.branches_per_user, limits.prepared_branches_per_user, limits.applications_per_user)


def default_limits(limits: LimitsSection) -> DefaultLimits:
    """Return the configured limits of users and virtual hosts that have none of their own."""
    return DefaultLimits(
        _share(limits.connections_per_user, limits.connections),
        limits.channels_per_user or None,
        _share(limits.connections_per_vhost, limits.connections),
        limits.queues_per_vhost or None,
    )


def _share(limit: float, whole: int) -> int | None:
    """Return a limit that is configured as a share of `whole` or as a number; None if it is 0, for no limit."""
    return (limit if isinstance(limit, int) else ceil(limit * whole)) or None


class Runtime:
    """Implements `wire.endpoint.Host`, and keeps the list of connections."""

    def __init__(
        self,
        turns: Turns,
        authenticator: Authenticator,
        alarms: Alarms,
        limits: LimitsSection,
        mechanisms: tuple[str, ...],
        grace_seconds: float = 30.0,
        rabbitmq_version: str = "",
        websocket_origins: Collection[str] = (),
        rocketmq: RocketmqOptions | None = None,
        federation_tag: str = "",
    ) -> None:
        """`grace_seconds` is `memory.grace_seconds`; `rabbitmq_version` is `compatibility.rabbitmq_version`;
        `websocket_origins` is `security.websocket_origins`. `federation_tag` tells this broker from others.
        """
        self.websocket_origins = websocket_origins
        self.turns = turns
        self.broker: Broker = turns.broker
        self.live_events = LiveEvents(lambda: self.broker.engine.now)
        self.broker.coordinator.limit(user_limits(limits))
        self.broker.termini.limits = terminus_limits(limits)
        self.broker.access.defaults = default_limits(limits)
        self.broker.holdings.user_limit = in_bytes(limits.held_memory_per_user, alarms.memory_limit)
        self.broker.holdings.vhost_limit = in_bytes(limits.held_memory_per_vhost, alarms.memory_limit)
        self.limits: EndpointLimits = endpoint_limits(limits, rabbitmq_version, rocketmq, federation_tag)
        self._mechanisms = mechanisms
        self.alarms = alarms
        self.large_buffer = memoryview(bytearray(LARGE_READ))
        """Connections are read into this buffer while their clients publish large bodies."""
        self.buffer = self.large_buffer[:READ]
        """Other connections are read into this part of it."""
        self.paced_buffer = self.large_buffer[:PACED_READ]
        """They are read into this smaller part while publishers outpace consumers."""
        self.small_buffer = self.large_buffer[:SMALL_READ]
        """All connections are read into this part while too many bytes of held back ones wait."""
        self.held_back = HeldBack(in_bytes(limits.held_back_reads, alarms.memory_limit))
        self.connections: dict[ClientConnection, None] = {}
        """Open connections, oldest first."""
        self.connection_watches: list[ChangeWatch[OpenConnection]] = []
        """Of those who want to know which connections change."""
        self.intake = Intake(asyncio.get_running_loop())
        self.ticker = Ticker(turns, self.connections, int(limits.unauthenticated_seconds * 1000), self._end_of_round)
        self.unread_ms = int(limits.unread_seconds * 1000)
        """The time for which a client may leave output unread; 0 for any time."""
        self.accepted = 0
        self.stopping = False
        self.all_closed = asyncio.Event()
        self.cut_off = False
        """Whether no client may connect, since another node probably leads."""
        self._authenticator = authenticator
        self._admission = Admission(limits)
        self._relief = Relief(turns.broker, alarms.memory_limit, int(grace_seconds * 1000))
        self._pressure = Pressure(turns, self.intake, alarms, self.live_events)
        self._by_endpoint: dict[Endpoint, ClientConnection] = {}
        self._faults = Faults()
        self._common: dict[type, Any] = {}
        self.broker.engine.unavailable.changed = self._availability_changed
        Parkings(self.broker)
        for queue, reason in self.broker.engine.unavailable.reasons.items():  # found at the start
            self._availability_changed(queue, reason)

    # -- called by endpoints (wire.endpoint.Host)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """See `Host.mechanisms`."""
        return tuple(name for name in self._mechanisms if name not in HASHES or self._authenticator.scram.offers(name))

    def secret_key(self, access_key: str) -> bytes:
        """See `Host.secret_key`."""
        return self._authenticator.secret_keys.secret_key(access_key)

    def challenge(self, mechanism: str, user: str) -> Challenge:
        """See `Host.challenge`."""
        return self._authenticator.scram.challenge(mechanism, user)

    def authenticate(self, endpoint: Endpoint, credentials: Credentials, done: Callable[[Verdict], None]) -> None:
        """See `Host.authenticate`."""
        connection = self._by_endpoint[endpoint]

        def judged(verdict: Verdict) -> None:
            connection.user = verdict.user or ""
            connection.expires_ms = verdict.grant.expires_ms if verdict.grant is not None else 0
            connection.changed()
            done(verdict)

        self._authenticator.authenticate(
            connection.peer, credentials, judged, lambda: connection in self.connections and not connection.closing_ms
        )

    def login_judged(self, endpoint: Endpoint, who: str, verdict: Verdict) -> None:
        """See `Host.login_judged`."""
        log_verdict(self._by_endpoint[endpoint].peer, who, verdict)

    def check_room(self, endpoint: Endpoint, user: str, vhost: str) -> None:
        """See `Host.check_room`."""
        self._admission.check(self.broker.access, user, vhost)

    def admitted(self, endpoint: Endpoint, user: str, vhost: str) -> None:
        """See `Host.admitted`."""
        connection = self._by_endpoint[endpoint]
        connection.user, connection.vhost, connection.admitted = user, vhost, True
        self._admission.log_in(connection)
        whose = {"peer": connection.address, "user": user, "vhost": vhost}
        self.live_events.note(CONNECTION_OPENED, **whose, client=endpoint.label, tls=connection.peer.tls)

    def stir(self, endpoint: Endpoint) -> None:
        """See `Host.stir`."""
        self.turns.dirty[endpoint] = None

    def await_sync(self, endpoint: Endpoint, *, urgent: bool = True) -> None:
        """See `Host.await_sync`."""
        (self.turns.holding if urgent else self.turns.patient)[endpoint] = None

    def publishing(self, endpoint: Endpoint) -> None:
        """See `Host.publishing`."""
        self._pressure.add(endpoint, self._by_endpoint[endpoint])

    def waiting(self, endpoint: Endpoint) -> None:
        """See `Host.waiting`."""
        self._by_endpoint[endpoint].pause(Pause.ALARM, on=True)

    def carry_on(self, endpoint: Endpoint) -> None:
        """See `Host.carry_on`."""
        self._by_endpoint[endpoint].carry_on()

    def failed(self, endpoint: Endpoint, code: int | str, text: str) -> None:
        """See `Host.failed`."""
        connection = self._by_endpoint[endpoint]
        self._faults.note(self.broker.engine.now, endpoint.label, connection.peer, connection.user, code, text)

    def common(self, kind: type[T]) -> T:
        """See `Host.common`."""
        found = self._common.get(kind)
        if found is None:
            found = self._common[kind] = kind()
        return found

    def password_changed(self, endpoint: Endpoint, secret: bytes) -> None:
        """See `Host.password_changed`: passwords do not expire, so there is nothing to do with a new one."""
        connection = self._by_endpoint[endpoint]
        _log.debug("user %r on %s sent a new secret", connection.user, connection.peer)

    def renew(self, endpoint: Endpoint, token: str, done: Callable[[Verdict], None]) -> None:
        """See `Host.renew`."""
        connection = self._by_endpoint[endpoint]

        def judged(verdict: Verdict) -> None:
            done(verdict)
            if verdict.grant is not None and verdict.user == connection.user:
                connection.expires_ms = verdict.grant.expires_ms
                self.broker.engine.left_over.begin(self._end_forbidden(connection))

        self._authenticator.authenticate(
            connection.peer,
            Credentials(TOKEN, connection.user, token),
            judged,
            lambda: connection in self.connections and not connection.closing_ms,
        )

    def _end_forbidden(self, connection: ClientConnection) -> Iterator[None]:
        """End the consumers of queues that the user may no longer read."""
        for _ in connection.permissions_changed():
            yield
            if connection not in self.connections or connection.closing_ms:
                return

    # -- called by the admin service

    @property
    def blocked_publishers(self) -> int:
        """Connections whose publishers are blocked by an alarm."""
        return self._pressure.blocked

    @property
    def publishers(self) -> int:
        """Connections that have published."""
        return self._pressure.publishers

    def check_login(self, peer: Peer, credentials: Credentials, done: Callable[[Verdict], None]) -> None:
        """Call `done` with the verdict on a login that belongs to no connection."""
        self._authenticator.authenticate(peer, credentials, done)

    # -- called by connections

    def opened(self, connection: ClientConnection) -> bool:
        """Note an accepted socket. Return False if it must be closed: at a limit, or because the broker stops or is cut
        off.
        """
        self.accepted += 1
        connection.ident = self.accepted
        self.connections[connection] = None
        note_in(self.connection_watches, connection)
        crowded = self._admission.arrive(connection)
        if crowded is not None:
            closed, limit = crowded
            self.turned_away(closed, f"{limit} is reached")
            if closed is connection:
                return False
            self._admission.evict(closed)
            closed.abort()
        _log.debug("connection from %s accepted", connection.peer, extra={"fields": {"peer": connection.peer}})
        return not self.stopping and not self.cut_off

    def turned_away(self, connection: ClientConnection, reason: str) -> None:
        """A connection whose client has not logged in is being closed."""
        self._faults.note_closed(self.broker.engine.now, connection.peer, reason)

    def adopt(self, connection: ClientConnection, endpoint: Endpoint) -> None:
        """Let `endpoint` handle the bytes of `connection` from now on."""
        self.turns.outlets[endpoint] = connection
        self._by_endpoint[endpoint] = connection

    def closed(self, connection: ClientConnection, error: Exception | None) -> None:
        """Note that the socket is closed."""
        self.connections.pop(connection, None)
        note_in(self.connection_watches, connection)
        self._admission.leave(connection)
        endpoint = connection.endpoint
        if endpoint is not None:
            self._by_endpoint.pop(endpoint, None)
            self._pressure.forget(endpoint)
            self.turns.forget(endpoint)
            seconds = (self.broker.engine.now - connection.opened_ms) / 1000
            cause = f": {error}" if error else ""
            fields = {"peer": connection.peer, "user": connection.user, "seconds": seconds, "reason": error}
            _log.info("closed %s after %.1f s%s", endpoint.label, seconds, cause, extra={"fields": fields})
        if connection.admitted:
            whose = {"peer": connection.address, "user": connection.user, "vhost": connection.vhost}
            age_ms = self.broker.engine.now - connection.opened_ms
            self.live_events.note(CONNECTION_CLOSED, **whose, seconds=age_ms // 1000, reason=str(error or ""))
        if not self.connections:
            self.all_closed.set()

    def _availability_changed(self, queue: Queue, reason: str) -> None:
        """Report that a queue has become unavailable for `reason`, or is available again if `reason` is empty."""
        names = queue.name, queue.vhost
        about = {"fields": {"queue": queue.name, "vhost": queue.vhost, "reason": reason or None}}
        if reason:
            text = "queue '%s' in vhost '%s' is unavailable and keeps its messages: %s"
            _log.error(text, *names, reason, extra=about)
        else:
            _log.warning("queue '%s' in vhost '%s' is available again", *names, extra=about)
        name = QUEUE_UNAVAILABLE if reason else QUEUE_AVAILABLE
        self.live_events.note(name, queue=queue.name, vhost=queue.vhost, reason=reason)

    # -- the end

    def shut(self, text: str) -> None:
        """Ask every client to leave, a bounded number in each iteration of the loop; then `all_closed` is set."""
        self.stopping = True
        if not self.connections:
            self.all_closed.set()
        for connection in self.connections:
            self.intake.defer(partial(self._ask_to_leave, connection, text))

    def abort(self) -> None:
        """Close all connections without another answer, a bounded number in each iteration of the loop."""
        for connection in self.connections:
            self.intake.defer(connection.abort)

    def stop(self) -> None:
        """Stop the ticks, and abort connections that are still open."""
        self.ticker.stop()
        self.abort()

    def _ask_to_leave(self, connection: ClientConnection, text: str) -> None:
        if connection not in self.connections:
            return
        self.turns.begin()
        connection.pause(Pause.JOURNAL, on=False)  # the client's answer must be read
        connection.read_on()
        if connection.endpoint is not None:
            connection.endpoint.shut(text)
        else:
            connection.close()

    def _end_of_round(self) -> None:
        if self.alarms.memory:
            self._relief.look()
        else:
            self._relief.rest()
        if self.alarms.pressing:
            give_back_memory()
