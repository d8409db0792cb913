"""Operations on virtual hosts."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping

from escrowmq.admin.connections import ConnectionAdmin
from escrowmq.admin.operation import Listing, Operation, OperationRefused, Row
from escrowmq.admin.pieces import Pieces
from escrowmq.admin.ports import BrokerProcess, OpenConnection


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
            "vhost.delete": self.delete_vhost,
        }

    async def list_vhosts(self) -> Listing:
        """Return every virtual host, with the number of its queues."""
        return Listing(self._pieces, self._rows())

    async def add_vhost(self, name: str) -> None:
        """Add a virtual host. Raises OperationRefused if it exists."""

        def change() -> None:
            if not self._broker.directory.add_vhost(name):
                raise OperationRefused(f"vhost '{name}' already exists")

        await self._process.durably(change)

    async def delete_vhost(self, name: str) -> None:
        """Delete a virtual host with its queues and their messages, exchanges, permissions and connections.

        Connections are closed first and queues deleted next, both piece by piece. Connections and queues that appear
        meanwhile are removed in one piece with the virtual host. A crash in between leaves the virtual host with the
        remaining queues.
        """
        self._broker.access.vhost(name)

        def on_it(connection: OpenConnection) -> bool:
            return connection.vhost == name

        def change() -> None:
            self._connections.close_now(on_it, reason)
            self._broker.directory.delete_vhost(name)

        reason = f"vhost '{name}' was deleted"
        await self._connections.close_those(on_it, reason)
        await self._pieces.result(self._deleting_queues(name))
        await self._process.durably(change)

    def _rows(self) -> Iterator[Row | None]:
        for vhost in list(self._broker.directory.vhosts.values()):
            yield {"name": vhost.name, "queues": len(vhost.queues)}

    def _deleting_queues(self, name: str) -> Generator[None, None, None]:
        for queue in list(self._broker.directory.vhost(name).queues.values()):
            if not queue.deleted:
                self._process.begin()
                self._broker.directory.delete_queue(queue)
            yield
