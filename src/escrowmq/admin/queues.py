"""Operations on queues: the list, and the totals for the status."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from escrowmq.admin.counters import deliveries
from escrowmq.admin.operation import Listing, Operation, Row
from escrowmq.admin.pieces import Pieces
from escrowmq.admin.policies import effective_row
from escrowmq.admin.transactions import NOTHING_IN_DOUBT, TransactionAdmin
from escrowmq.core.broker import Broker
from escrowmq.core.counters import arrived
from escrowmq.core.queues.queue import Queue

TOTALLED: Final = 16
"""Queues in one step of the totals."""


class QueueAdmin:
    """The operations by name are in `operations`."""

    def __init__(self, broker: Broker, transactions: TransactionAdmin, pieces: Pieces) -> None:
        self._broker = broker
        self._transactions = transactions
        self._pieces = pieces
        self.operations: Mapping[str, Operation] = {"queue.list": self.list_queues}

    async def list_queues(self, vhost: str | None = None, counters: bool = False) -> Listing:
        """Return every queue, or those of one virtual host; with `counters`, also how many messages arrived, were
        delivered and were acknowledged. Raises BrokerError for an unknown virtual host.
        """
        if vhost is not None:
            self._broker.access.vhost(vhost)
        return Listing(self._pieces, self._rows(_queues(self._broker, vhost), counters=counters))

    async def totals(self) -> dict[str, int]:
        """Return the number of queues, and the sums of their messages and consumers."""
        return await self._pieces.result(self._totals())

    def _rows(self, queues: Iterable[Queue], *, counters: bool) -> Iterator[Row | None]:
        in_doubt = yield from self._transactions.by_queue()
        for queue in queues:
            if queue.deleted:
                yield None
                continue
            row = _row(queue, in_doubt.get((queue.vhost, queue.name), NOTHING_IN_DOUBT))
            if counters:
                row["counters"] = {"unsettled": queue.unsettled, **deliveries(queue.counters, arrived(queue))}
            yield row

    def _totals(self) -> Generator[None, None, dict[str, int]]:
        totals = {"count": 0, "ready": 0, "unsettled": 0, "consumers": 0}
        queues = iter(_queues(self._broker, None))
        while some := list(islice(queues, TOTALLED)):
            there = [queue for queue in some if not queue.deleted]
            totals["count"] += len(there)
            totals["ready"] += sum([queue.ready for queue in there])
            totals["unsettled"] += sum([queue.unsettled for queue in there])
            totals["consumers"] += sum([len(queue.consumers) for queue in there])
            yield
        return totals


def _queues(broker: Broker, vhost: str | None) -> list[Queue]:
    """Return the current queues as a list of references, which takes 3 ns for each."""
    vhosts = broker.directory.vhosts.values() if vhost is None else [broker.directory.vhost(vhost)]
    return [queue for each in vhosts for queue in each.queues.values()]


def _row(queue: Queue, in_doubt: Mapping[str, int]) -> Row:
    """Return a row, in which each message is counted once. Branches were counted a moment before, so that the numbers
    of a queue may not fit together.
    """
    locked, reserved = in_doubt["locked"], in_doubt["reserved"]
    return {
        "vhost": queue.vhost,
        "name": queue.name,
        "type": queue.options.queue_type,
        "durable": queue.durable,
        "exclusive": queue.exclusive,
        "auto_delete": queue.auto_delete,
        "ready": queue.ready,
        "unsettled": max(queue.unsettled - (locked - reserved), 0),
        "held": max(sum(map(len, queue.reservations.values())) - reserved, 0),
        "locked": locked,
        "withheld": in_doubt["withheld"],
        "consumers": len(queue.consumers),
        "unavailable": queue.fault,
        "arguments": dict(queue.arguments),
        **effective_row(queue.effective),
    }
