"""Bounds on connections: those that have logged in, those that have not, and those of one address.

Sockets that never log in must not keep out clients that can. When there is no room for a further one that has not
logged in, it is not refused: the one that has tried for longest is closed. A login takes a fraction of a second, so a
client that can log in has done so long before it is the oldest.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from typing import TYPE_CHECKING

from escrowmq.config.limits import LimitsSection
from escrowmq.core.access.access import Access
from escrowmq.core.conditions import BrokerError, Condition

if TYPE_CHECKING:
    from escrowmq.server.connection import ClientConnection


def network_of(host: str) -> str:
    """Return the address for which connections are counted: an IPv4 address, or the 64-bit prefix of an IPv6 address.

    A single IPv6 host usually has all addresses of its prefix.
    """
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{ipaddress.IPv6Address(int(address) >> 64 << 64)}/64"


class Admission:
    """Counts the open connections."""

    def __init__(self, limits: LimitsSection) -> None:
        self._most = limits.connections
        self._most_of_address = limits.connections_per_address
        self._most_strangers = limits.unauthenticated_connections
        self._most_strangers_of_address = limits.unauthenticated_connections_per_address
        self._strangers: dict[ClientConnection, None] = {}  # those that have not logged in, oldest first
        self._strangers_of: dict[str, dict[ClientConnection, None]] = {}
        self._of: Counter[str] = Counter()
        self._of_user: Counter[str] = Counter()
        self._of_vhost: Counter[str] = Counter()
        self.logged_in = 0
        """The number of connections that have logged in."""

    @property
    def strangers(self) -> int:
        """The number of connections that have not logged in."""
        return len(self._strangers)

    def arrive(self, connection: ClientConnection) -> tuple[ClientConnection, str] | None:
        """Count a connection that was accepted. Returns the one that must be closed for it, and the reason."""
        network = network_of(connection.peer.host)
        self._of[network] += 1
        self._strangers[connection] = None
        of_address = self._strangers_of.setdefault(network, {})
        of_address[connection] = None
        if 0 < self._most_of_address < self._of[network]:
            limit = f"limit of {self._most_of_address} connections from {network} (limits.connections_per_address)"
            return connection, limit
        if len(of_address) > self._most_strangers_of_address:
            limit = (
                f"limit of {self._most_strangers_of_address} connections from {network} that have not logged in "
                "(limits.unauthenticated_connections_per_address)"
            )
            return self._oldest(of_address), limit
        if len(self._strangers) > self._most_strangers:
            limit = (
                f"limit of {self._most_strangers} connections that have not logged in "
                "(limits.unauthenticated_connections)"
            )
            return self._oldest(self._strangers), limit
        return None

    @staticmethod
    def _oldest(connections: dict[ClientConnection, None]) -> ClientConnection:
        return next(iter(connections))

    def check(self, access: Access, user: str, vhost: str) -> None:
        """Raises NOT_ALLOWED if `user` can log in to `vhost` with no further connection."""
        if self.logged_in >= self._most:
            raise BrokerError(
                Condition.NOT_ALLOWED,
                f"connection refused for user '{user}': node connection limit ({self._most}) is reached",
            )
        access.check_connections(user, self._of_user[user], vhost, self._of_vhost[vhost])

    def log_in(self, connection: ClientConnection) -> None:
        """Note that the connection has logged in."""
        self._forget_stranger(connection)
        self.logged_in += 1
        self._of_user[connection.user] += 1
        self._of_vhost[connection.vhost] += 1

    def evict(self, connection: ClientConnection) -> None:
        """Stop counting a connection that is being closed for another one."""
        self._forget_stranger(connection)

    def leave(self, connection: ClientConnection) -> None:
        """Note that the connection is closed."""
        network = network_of(connection.peer.host)
        _count_down(self._of, network)
        self._forget_stranger(connection)
        if connection.admitted:
            self.logged_in -= 1
            _count_down(self._of_user, connection.user)
            _count_down(self._of_vhost, connection.vhost)

    def _forget_stranger(self, connection: ClientConnection) -> None:
        self._strangers.pop(connection, None)
        network = network_of(connection.peer.host)
        of_address = self._strangers_of.get(network)
        if of_address is not None:
            of_address.pop(connection, None)
            if not of_address:
                del self._strangers_of[network]


def _count_down(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if counts[name] <= 0:
        del counts[name]
