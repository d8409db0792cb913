"""Operations on the clients' connections: list them, and close them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, Final

from escrowmq.admin.changes import MOST_NOTED, ListChanges, Reader, Variable
from escrowmq.admin.operation import Listing, Operation, OperationRefused, Row
from escrowmq.admin.pieces import Pieces
from escrowmq.admin.ports import BrokerProcess, OpenConnection
from escrowmq.core.watch import ChangeWatch

_DETAILS: Final = ("links", "clients")  # what a connection carries has lists of its own, and changes all the time


class ConnectionAdmin:
    """The operations by name are in `operations`."""

    def __init__(self, process: BrokerProcess, pieces: Pieces) -> None:
        self._process = process
        self._pieces = pieces
        self.operations: Mapping[str, Operation] = {
            "connection.list": self.list_connections,
            "connection.changes": ListChanges(_ListedConnections(process), pieces).since,
            "connection.close": self.close_connection,
        }

    async def list_connections(self) -> Listing:
        """Return every connection, also those that have not sent anything yet."""
        return Listing(self._pieces, self._rows())

    async def close_connection(self, peer: str, reason: str = "closed by an operator") -> None:
        """Close the connection from `peer`, HOST:PORT. Raises OperationRefused if there is none."""
        if not await self.close_those(lambda connection: connection.address == peer, reason):
            raise OperationRefused(f"no connection from {peer}")

    async def close_those(self, which: Callable[[OpenConnection], bool], reason: str) -> int:
        """Close the connections for which `which` is true, and return their number."""
        return await self._pieces.result(self._closing(which, reason))

    async def permissions_changed(self, user: str) -> None:
        """End the consumers of queues that `user` may no longer read, piece by piece."""
        await self._pieces.result(self._checking(user))

    def close_now(self, which: Callable[[OpenConnection], bool], reason: str) -> None:
        """Like `close_those`, but in one piece, for a change that must find no such connection."""
        for _ in self._closing(which, reason):
            pass

    def _rows(self) -> Iterator[Row | None]:
        still_open = self._process.connections
        for connection in list(still_open):
            yield _row(connection, self._process.broker.engine.now) if connection in still_open else None

    def _checking(self, user: str) -> Generator[None, None, None]:
        still_open = self._process.connections
        for connection in list(still_open):
            if connection in still_open and connection.user == user:
                checking = connection.permissions_changed()
                while connection in still_open:
                    self._process.begin()
                    if next(checking, True):
                        break
                    yield
            yield

    def _closing(self, which: Callable[[OpenConnection], bool], reason: str) -> Generator[None, None, int]:
        still_open, closed = self._process.connections, 0
        for connection in list(still_open):
            if connection in still_open and which(connection):
                self._process.begin()
                connection.dismiss(reason)
                closed += 1
            yield
        return closed


def _row(connection: OpenConnection, now_ms: int) -> Row:
    return {
        **connection_row(_fixed_part(connection), (connection.describe(), connection.unsent, connection.held_back_by)),
        "seconds": max(0, now_ms - connection.opened_ms) // 1000,
    }


def connection_row(fixed: Mapping[str, Any], variable: Sequence[Any]) -> Row:
    """Return the row of a connection, made of the parts that `connection.changes` has."""
    description, unsent_bytes, held_back_by = variable
    return {**description, **fixed, "unsent_bytes": unsent_bytes, "held_back_by": list(held_back_by)}


def described(variable: Sequence[Any]) -> Mapping[str, Any]:
    """Return what a connection says of itself, such as its user, from the variable part of its row."""
    found: Mapping[str, Any] = variable[0]
    return found


def _fixed_part(connection: OpenConnection) -> Row:
    return {"peer": connection.address, "local": connection.local_address, "opened_ms": connection.opened_ms}


class _ListedConnections:
    """All connections, for `ListChanges`."""

    step = 1

    def __init__(self, process: BrokerProcess) -> None:
        self._process = process
        self._watch: ChangeWatch[OpenConnection] | None = None
        self._again: dict[OpenConnection, None] = {}  # those with unsent bytes: nothing notes that they are sent

    def present(self) -> list[OpenConnection]:
        return list(self._process.connections)

    def fixed(self, listed: OpenConnection) -> Row:
        return _fixed_part(listed)

    def reading(self) -> Generator[None, None, Reader[OpenConnection]]:
        yield
        return self._read

    def changed(self) -> list[OpenConnection] | None:
        if self._watch is None:
            self._watch = ChangeWatch(MOST_NOTED)
            self._process.watch_connections(self._watch)
            return None
        noted = self._watch.take()
        again, self._again = self._again, {}
        return None if noted is None else list(dict.fromkeys(noted) | again)

    def _read(self, connections: Sequence[OpenConnection]) -> list[Variable | None]:
        still_open = self._process.connections
        return [self._read_one(each) if each in still_open else None for each in connections]

    def _read_one(self, connection: OpenConnection) -> Variable:
        description = connection.describe()
        for name in _DETAILS:
            description.pop(name, None)
        connection.watched = True
        unsent = connection.unsent
        if unsent:
            self._again[connection] = None
        return description, unsent, connection.held_back_by
