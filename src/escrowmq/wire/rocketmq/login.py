"""Logging in to either RocketMQ protocol: a client has no handshake, so its first request decides who it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.core.access.door import Door
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.endpoint import Verdict
from escrowmq.wire.rocketmq.refusals import Refusals

if TYPE_CHECKING:
    from escrowmq.core.counters import Traffic
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.topology.vhost import VirtualHost
    from escrowmq.wire.endpoint import Endpoint, Host, Peer

GUEST: Final = "guest"


class RocketmqLogin:
    """The login of one connection. `user`, `vhost` and `door` are set when it is complete."""

    __slots__ = ("_endpoint", "_host", "_peer", "_protocol", "door", "refusals", "traffic", "user", "vhost")

    def __init__(self, host: Host, endpoint: Endpoint, peer: Peer, protocol: str) -> None:
        self._protocol = protocol
        self._host = host
        self._endpoint = endpoint
        self._peer = peer
        self.refusals = Refusals(host, endpoint)
        self.user = ""
        self.vhost: VirtualHost[Queue]
        self.door: Door
        self.traffic: Traffic

    @property
    def vhost_name(self) -> str:
        """The virtual host; empty before the login."""
        return self.vhost.name if self.user else ""

    def enter_anonymously(self) -> None:
        """Log in a client that has shown no access key. Raises BrokerError if such clients are refused."""
        options = self._host.limits.rocketmq
        user = options.anonymous_user
        if not user:
            raise BrokerError(Condition.ACCESS_REFUSED, "clients without an access key are refused")
        if user == GUEST and options.guest_loopback_only and not self._peer.loopback:
            raise BrokerError(Condition.ACCESS_REFUSED, f"user '{GUEST}' can only connect via localhost")
        self.enter(user)

    def enter(self, user: str) -> None:
        """Log in as `user`, who has proved it. Raises BrokerError if the user must not use the virtual host, or for
        another user than the one that this connection has.
        """
        if self.user:
            if user != self.user:
                raise BrokerError(
                    Condition.ACCESS_REFUSED, f"this connection belongs to user '{self.user}', not to '{user}'"
                )
            return
        broker, name = self._host.broker, self._host.limits.rocketmq.vhost
        if user not in broker.access.users:
            raise BrokerError(Condition.ACCESS_REFUSED, f"user '{user}' does not exist")
        broker.access.check_vhost(user, name)
        self._host.check_room(self._endpoint, user, name)
        self.vhost = broker.directory.vhost(name)
        self.door = Door(broker.access, user, self.vhost, broker.engine.requests)
        self.traffic = broker.engine.counters.traffic_of(name, self._protocol)
        self.user = user
        self._host.login_judged(self._endpoint, "", Verdict(user))
        self._host.admitted(self._endpoint, user, name)
