"""Operations on delayed messages. Each waits in a hidden queue of its virtual host, and is routed when it is due."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from escrowmq.admin.contents import MOST, entry_row
from escrowmq.admin.operation import Listing, Operation, OperationRefused, Row
from escrowmq.admin.pieces import Pieces
from escrowmq.admin.ports import BrokerProcess
from escrowmq.core.queues.delayed import NAME, DelayedQueue
from escrowmq.core.queues.queue import Queue
from escrowmq.core.records.unreadable import LogUnreadable
from escrowmq.core.topology.vhost import VirtualHost


class DelayedAdmin:
    """The operations by name are in `operations`. They change nothing. Raises OperationRefused or BrokerError."""

    def __init__(self, process: BrokerProcess, pieces: Pieces) -> None:
        self._process = process
        self._broker = process.broker
        self._pieces = pieces
        self.operations: Mapping[str, Operation] = {"delayed.list": self.list_delayed, "delayed.peek": self.peek}

    async def list_delayed(self) -> Listing:
        """Return the number of delayed messages of each virtual host that has had some, and when the next is due, in
        milliseconds since the epoch. That time may be the beginning of its minute, and is None while it is not known.
        """
        return Listing(self._pieces, self._rows())

    async def peek(self, vhost: str, count: int = 10) -> list[Row]:
        """Return the messages of a virtual host that are due first, at most `count` (1 to `MOST`), with their times.
        They stay where they are.
        """
        if not 1 <= count <= MOST:
            raise OperationRefused(f"the number of messages is 1 to {MOST}, and not {count}")
        queue = hidden_queue(self._broker.directory.vhost(vhost))
        if queue is None:
            return []
        try:
            found = queue.waiting.first(count)
        except LogUnreadable as error:
            raise OperationRefused(f"delayed messages of vhost '{vhost}' cannot be read: {error}") from error
        return [{"due_ms": due, **entry_row(self._process, entry)} for due, entry in found]

    def _rows(self) -> Iterator[Row | None]:
        for vhost in list(self._broker.directory.vhosts.values()):
            queue = hidden_queue(vhost)
            if queue is None:
                yield None
            else:
                yield {
                    "vhost": vhost.name,
                    "messages": len(queue.waiting),
                    "next_due_ms": queue.waiting.next_due(),
                    "unavailable": queue.fault,
                }


def hidden_queue(vhost: VirtualHost[Queue]) -> DelayedQueue | None:
    """Return the queue in which delayed messages wait; None if there has been none."""
    return cast("DelayedQueue | None", vhost.hidden.get(NAME))


def delayed_messages(vhost: VirtualHost[Queue]) -> int:
    """Return the number of delayed messages."""
    queue = hidden_queue(vhost)
    return 0 if queue is None else len(queue.waiting)
