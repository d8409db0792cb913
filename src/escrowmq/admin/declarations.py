"""Operations that declare, delete and purge queues, and declare and delete exchanges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from escrowmq.admin.authority import Authority, checked_arguments, checked_name
from escrowmq.admin.operation import Operation
from escrowmq.admin.pieces import Pieces
from escrowmq.admin.ports import BrokerProcess
from escrowmq.core.access.table import Operation as Right
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.queues.queue import Queue, Session
from escrowmq.core.topology.arguments.queue import DEAD_LETTER_EXCHANGE
from escrowmq.core.topology.declaration import Declaration
from escrowmq.core.topology.vhost import VirtualHost

T = TypeVar("T")
_DEAD_LETTER_KEY = "x-dead-letter-routing-key"


class DeclarationAdmin:
    """The operations by name are in `operations`. A change is on disk when its operation returns.

    Each checks the permissions of the user `by`, and raises BrokerError as for a client of AMQP.
    """

    def __init__(self, process: BrokerProcess, authority: Authority, pieces: Pieces) -> None:
        self._process = process
        self._directory = process.broker.directory
        self._authority = authority
        self._pieces = pieces
        self._session = Session("operator")
        self.operations: Mapping[str, Operation] = {
            "exchange.declare": self.declare_exchange,
            "exchange.delete": self.delete_exchange,
            "queue.declare": self.declare_queue,
            "queue.delete": self.delete_queue,
            "queue.purge": self.purge_queue,
        }

    async def declare_exchange(
        self,
        vhost: str,
        name: str,
        type: str = "direct",
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, Any] | None = None,
        by: str = "",
    ) -> bool:
        """Declare an exchange. Return whether it is new."""
        place, given = self._authority.vhost(vhost, by), checked_arguments(arguments, self._process.arguments_size)
        checked_name(name, "name of an exchange")
        self._authority.check(place, by, Right.DECLARE_EXCHANGE, exchange=name)
        alternate = given.get("alternate-exchange")
        if isinstance(alternate, str):
            self._authority.check(place, by, Right.SET_ALTERNATE, exchange=name, alternate=alternate)
        streams = await self._pieces.result(self._directory.new_streams(place, name, type, given))
        flags: dict[str, Any] = {"durable": durable, "auto_delete": auto_delete, "internal": internal}

        def change() -> bool:
            existed = name in self._still(place).exchanges
            self._directory.declare_exchange(place, name, type, arguments=given, streams=streams, **flags)
            return not existed

        return await self._process.durably(change)

    async def delete_exchange(self, vhost: str, name: str, if_unused: bool = False, by: str = "") -> None:
        """Delete an exchange. Raises NOT_FOUND."""
        place = self._authority.vhost(vhost, by)
        self._authority.check(place, by, Right.DELETE_EXCHANGE, exchange=name)

        def change() -> None:
            if name:
                self._still(place).exchange(name)
            self._directory.delete_exchange(place, name, if_unused=if_unused)

        await self._process.durably(change)

    async def declare_queue(
        self,
        vhost: str,
        name: str,
        durable: bool = True,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
        by: str = "",
    ) -> bool:
        """Declare a queue. Return whether it is new."""
        place, given = self._authority.vhost(vhost, by), checked_arguments(arguments, self._process.arguments_size)
        if not checked_name(name, "name of a queue"):
            raise BrokerError(Condition.INVALID_ARGUMENT, "a queue needs a name")
        self._authority.check(place, by, Right.DECLARE_QUEUE, queue=name)
        exchange, key = given.get(DEAD_LETTER_EXCHANGE), given.get(_DEAD_LETTER_KEY)
        if isinstance(exchange, str):
            key = key if isinstance(key, str) else None
            self._authority.check(
                place, by, Right.SET_DEAD_LETTER, queue=name, dead_letter=exchange, dead_letter_key=key
            )
        declaration = Declaration(durable, False, auto_delete, given)

        def change() -> bool:
            existed = name in self._still(place).queues
            self._directory.declare_queue(place, name, declaration, self._session)
            return not existed

        return await self._process.durably(change)

    async def delete_queue(
        self, vhost: str, name: str, if_unused: bool = False, if_empty: bool = False, by: str = ""
    ) -> int:
        """Delete a queue, and return the number of its messages."""
        return await self._on_queue(
            vhost,
            name,
            by,
            Right.DELETE_QUEUE,
            lambda queue: self._directory.delete_queue(queue, if_unused=if_unused, if_empty=if_empty),
        )

    async def purge_queue(self, vhost: str, name: str, by: str = "") -> int:
        """Remove the messages of a queue that wait for consumers, and return their number."""

        def change(queue: Queue) -> int:
            if queue.is_stream:
                raise BrokerError(
                    Condition.NOT_IMPLEMENTED, f"a stream such as queue '{name}' in vhost '{vhost}' cannot be purged"
                )
            return self._directory.purge(queue)

        return await self._on_queue(vhost, name, by, Right.PURGE_QUEUE, change)

    async def _on_queue(self, vhost: str, name: str, by: str, right: Right, change: Callable[[Queue], T]) -> T:
        place = self._authority.vhost(vhost, by)
        self._authority.check(place, by, right, queue=name)

        def run() -> T:
            queue = self._still(place).queue(name)
            queue.check_access(self._session)
            return change(queue)

        return await self._process.durably(run)

    def _still(self, vhost: VirtualHost[Queue]) -> VirtualHost[Queue]:
        """Return a virtual host, unless it was deleted meanwhile. Raises NOT_FOUND."""
        self._directory.vhost(vhost.name)
        return vhost
