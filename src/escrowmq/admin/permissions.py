"""Operations on permissions and topic permissions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Final

from escrowmq.admin.connections import ConnectionAdmin
from escrowmq.admin.operation import Listing, Operation, OperationRefused, Row
from escrowmq.admin.pieces import Pieces
from escrowmq.admin.ports import BrokerProcess
from escrowmq.core.access.permissions import Entry, Permission, TopicPermission

MOST_NAMES: Final = 1000
"""Names that are checked together."""


class PermissionAdmin:
    """The operations by name are in `operations`. A change is on disk when its operation returns."""

    def __init__(self, process: BrokerProcess, connections: ConnectionAdmin, pieces: Pieces) -> None:
        self._process = process
        self._connections = connections
        self._broker = process.broker
        self._access = process.broker.access
        self._pieces = pieces
        self.operations: Mapping[str, Operation] = {
            "permission.list": self.list_permissions,
            "permission.readable": self.readable,
            "permission.set": self.set_permission,
            "permission.clear": self.clear_permission,
            "topic_permission.list": self.list_topic_permissions,
            "topic_permission.set": self.set_topic_permission,
            "topic_permission.clear": self.clear_topic_permission,
        }

    async def list_permissions(self, user: str | None = None, vhost: str | None = None) -> Listing:
        """Return permissions, optionally of one user or on one virtual host. Raises BrokerError for unknown ones."""
        self._check_known(user, vhost)
        return Listing(self._pieces, _matching(self._access.permissions.values(), user, vhost))

    async def readable(self, user: str, queues: Sequence[Sequence[str]]) -> list[bool]:
        """Return of each queue, a pair of virtual host and name, whether the user may read it. It need not exist."""
        if len(queues) > MOST_NAMES:
            raise OperationRefused(f"there are {len(queues)} queues, and the limit is {MOST_NAMES}")
        return [self._access.allowed(user, vhost, name, "read") for vhost, name in queues]

    async def set_permission(self, user: str, vhost: str, configure: str, write: str, read: str) -> bool:
        """Set a user's permissions on a virtual host, which replace earlier ones. Return whether there were none."""
        new = (user, vhost) not in self._access.permissions
        await self._set(lambda: self._access.set_permission(user, vhost, configure, write, read))
        await self._connections.permissions_changed(user)
        return new

    async def clear_permission(self, user: str, vhost: str) -> None:
        """Remove a user's permissions on a virtual host, and end the user's consumers there."""
        await self._clear(lambda: self._access.clear_permission(user, vhost))
        await self._connections.permissions_changed(user)

    async def list_topic_permissions(self, user: str | None = None, vhost: str | None = None) -> Listing:
        """Return topic permissions, like `list_permissions`."""
        self._check_known(user, vhost)
        return Listing(self._pieces, _matching(self._access.topic_permissions.values(), user, vhost))

    async def set_topic_permission(self, user: str, vhost: str, exchange: str, write: str, read: str) -> bool:
        """Restrict the routing keys that a user may use with an exchange. Return whether they were not restricted."""
        new = (user, vhost, exchange) not in self._access.topic_permissions
        await self._set(lambda: self._access.set_topic_permission(user, vhost, exchange, write, read))
        return new

    async def clear_topic_permission(self, user: str, vhost: str, exchange: str | None = None) -> None:
        """Remove the restriction for an exchange, or without `exchange` for all exchanges."""
        await self._clear(lambda: self._access.clear_topic_permission(user, vhost, exchange))

    def _check_known(self, user: str | None, vhost: str | None) -> None:
        if user is not None:
            self._access.user(user)
        if vhost is not None:
            self._access.vhost(vhost)

    async def _set(self, change: Callable[[], Entry]) -> None:
        await self._process.durably(lambda: self._broker.directory.record_access(change()))

    async def _clear(self, change: Callable[[], tuple[Entry, ...]]) -> None:
        await self._process.durably(lambda: self._broker.directory.record_access_removed(change()))


def _matching(
    permissions: Iterable[Permission | TopicPermission], user: str | None, vhost: str | None
) -> Iterator[Row | None]:
    for permission in list(permissions):
        yield asdict(permission) if user in {None, permission.user} and vhost in {None, permission.vhost} else None
