"""Operations on virtual hosts."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Final

from escrowmq.admin.authority import checked_name
from escrowmq.admin.connections import ConnectionAdmin
from escrowmq.admin.links import ending
from escrowmq.admin.operation import Listing, Operation, OperationRefused, Row
from escrowmq.admin.pieces import Pieces
from escrowmq.admin.ports import BrokerProcess, OpenConnection
from escrowmq.admin.transactions import DECIDED

_LIMITS: Final = {"max-connections": "max_connections", "max-queues": "max_queues"}


class VhostAdmin:
    """The operations by name are in `operations`. A change is on disk when its operation returns."""

    def __init__(self, process: BrokerProcess, connections: ConnectionAdmin, pieces: Pieces) -> None:
        self._process = process
        self._broker = process.broker
        self._connections = connections
        self._pieces = pieces
        self.operations: Mapping[str, Operation] = {
            "vhost.list": self.list_vhosts,
            "vhost.add": self.add_vhost,
            "vhost.put": self.put_vhost,
            "vhost.delete": self.delete_vhost,
            "vhost.limits": self.set_limits,
            "vhost.limit": self.set_limit,
        }

    async def list_vhosts(self) -> Listing:
        """Return every virtual host, with the number of its queues."""
        return Listing(self._pieces, self._rows())

    async def add_vhost(self, name: str) -> None:
        """Add a virtual host. Raises OperationRefused if it exists."""
        checked_name(name, "name of a virtual host")

        def change() -> None:
            if not self._broker.directory.add_vhost(name):
                raise OperationRefused(f"vhost '{name}' already exists")

        await self._process.durably(change)

    async def put_vhost(self, name: str) -> bool:
        """Add a virtual host, unless it exists. Return whether it is new."""
        checked_name(name, "name of a virtual host")
        return await self._process.durably(lambda: self._broker.directory.add_vhost(name))

    async def delete_vhost(self, name: str, force: bool = False) -> None:
        """Delete a virtual host with its queues and their messages, exchanges, permissions, branches, progress and
        connections.

        It is refused if branches are in doubt, or decided by an operator and not forgotten, unless `force` is given,
        which rolls back and forgets them. Connections are closed
        first, then branches and link termini ended, queues and consumer groups deleted, all piece by piece. Those that
        appear meanwhile are removed in one piece with the virtual host. A crash in between leaves the virtual host with
        the remaining ones.
        """
        self._broker.access.vhost(name)
        self._check_decided(name, force=force)

        def on_it(connection: OpenConnection) -> bool:
            return connection.vhost == name

        def change() -> None:
            self._check_decided(name, force=force)
            self._connections.close_now(on_it, reason)
            self._broker.directory.delete_vhost(name)

        reason = f"vhost '{name}' was deleted"
        await self._connections.close_those(on_it, reason)
        self._check_decided(name, force=force)  # a branch may have been prepared meanwhile
        await self._pieces.result(self._ending_branches(name))
        await self._pieces.result(ending(self._process, self._broker.termini.of_vhost(name)))
        await self._pieces.result(self._deleting_queues(name))
        await self._pieces.result(self._deleting_groups(name))
        await self._process.durably(change)

    async def set_limits(self, name: str, max_connections: int | None = None, max_queues: int | None = None) -> None:
        """Set all limits of a virtual host; None means no limit. What is there already stays."""
        broker = self._broker
        await self._process.durably(
            lambda: broker.directory.record_access(broker.access.set_vhost_limits(name, max_connections, max_queues))
        )

    async def set_limit(self, name: str, limit: str, value: int | None = None) -> None:
        """Set one limit of a virtual host, `max-connections` or `max-queues`; None or a negative number removes it.
        Raises OperationRefused, BrokerError.
        """
        field = _LIMITS.get(limit)
        if field is None:
            raise OperationRefused(f"unknown limit {limit!r}; known ones: {', '.join(_LIMITS)}")
        most, access = None if value is None or value < 0 else value, self._broker.access

        def change() -> None:
            vhost = access.vhost(name)
            limits = {"max_connections": vhost.max_connections, "max_queues": vhost.max_queues} | {field: most}
            self._broker.directory.record_access(access.set_vhost_limits(name, **limits))

        await self._process.durably(change)

    def _rows(self) -> Iterator[Row | None]:
        for vhost in list(self._broker.directory.vhosts.values()):
            limits = self._broker.access.vhosts[vhost.name]
            yield {
                "name": vhost.name,
                "queues": len(vhost.queues),
                "max_connections": limits.max_connections,
                "max_queues": limits.max_queues,
            }

    def _check_decided(self, name: str, *, force: bool) -> None:
        found = self._broker.branches.in_doubt(name)
        if not found or force:
            return
        decided = sum([branch.state in DECIDED for branch in found])
        waiting = len(found) - decided
        parts = [f"{_branches(waiting)} in doubt"] if waiting else []
        if decided:
            parts.append(f"{_branches(decided)} that an operator has decided")
        raise OperationRefused(
            f"vhost '{name}' has {' and '.join(parts)}. `escrowmq tx` lists, decides and forgets them. With --force, "
            "over HTTP force=true, the virtual host is deleted all the same, and those in doubt are rolled back"
        )

    def _ending_branches(self, name: str) -> Generator[None, None, None]:
        branches = self._broker.branches
        for branch in branches.of_vhost(name):
            if branches.by_xid.get(branch.xid) is branch:
                self._process.begin()
                self._broker.coordinator.abandon(branch)
            yield

    def _deleting_queues(self, name: str) -> Generator[None, None, None]:
        for topic in self._broker.topics.all(self._broker.directory.vhost(name)):
            self._process.begin()
            self._broker.topics.delete(self._broker.directory.vhost(name), topic.name)
            yield
        queues = list(self._broker.directory.vhost(name).queues.values())
        while queues:  # so that their memory is free one by one, too
            queue = queues.pop()
            if not queue.deleted:
                self._process.begin()
                self._broker.directory.delete_queue(queue)
            yield

    def _deleting_groups(self, name: str) -> Generator[None, None, None]:
        """Delete consumer groups, most of which have lost their progress with their streams before."""
        groups = self._broker.groups
        for group in groups.all(name):
            if not group.deleted:
                self._process.begin()
                groups.delete(group)
            yield


def _branches(count: int) -> str:
    return f"{count:,} transaction {'branch' if count == 1 else 'branches'}"
