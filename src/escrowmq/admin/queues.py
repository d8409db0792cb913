"""Operations on queues: the list, and the totals for the status."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from escrowmq.admin.changes import MOST_NOTED, ListChanges, Reader, Variable
from escrowmq.admin.delayed import delayed_messages
from escrowmq.admin.operation import Listing, NothingFound, Operation, Row
from escrowmq.admin.pieces import Pieces
from escrowmq.admin.queue_rows import fixed_part, queue_row, variable_part
from escrowmq.admin.transactions import NOTHING_IN_DOUBT, ByQueue, TransactionAdmin
from escrowmq.core.broker import Broker
from escrowmq.core.queues.queue import Queue
from escrowmq.core.watch import ChangeWatch

TOTALLED: Final = 16
"""Queues in one step of the totals."""


class QueueAdmin:
    """The operations by name are in `operations`."""

    def __init__(self, broker: Broker, transactions: TransactionAdmin, pieces: Pieces) -> None:
        self._broker = broker
        self._transactions = transactions
        self._pieces = pieces
        self._changes = ListChanges(_ListedQueues(broker, transactions), pieces)
        self.operations: Mapping[str, Operation] = {
            "queue.list": self.list_queues,
            "queue.show": self.show,
            "queue.changes": self._changes.since,
        }

    async def list_queues(self, vhost: str | None = None, counters: bool = False) -> Listing:
        """Return every queue, or those of one virtual host; with `counters`, also how many messages arrived, were
        delivered and were acknowledged. Raises BrokerError for an unknown virtual host.
        """
        if vhost is not None:
            self._broker.access.vhost(vhost)
        return Listing(self._pieces, self._rows(_queues(self._broker, vhost), counters=counters))

    async def show(self, vhost: str, name: str) -> Row:
        """Return the row of one queue, with counters. Raises NothingFound."""
        in_doubt = await self._pieces.result(self._transactions.by_queue())
        return _row(
            named_queue(self._broker, vhost, name), in_doubt.get((vhost, name), NOTHING_IN_DOUBT), counters=True
        )

    async def totals(self) -> dict[str, int]:
        """Return the number of queues, the sums of their messages and consumers, and the number of delayed messages,
        which are in no queue yet.
        """
        return await self._pieces.result(self._totals())

    def _rows(self, queues: Iterable[Queue], *, counters: bool) -> Iterator[Row | None]:
        in_doubt = yield from self._transactions.by_queue()
        for queue in queues:
            in_doubt_here = in_doubt.get((queue.vhost, queue.name), NOTHING_IN_DOUBT)
            yield None if queue.deleted else _row(queue, in_doubt_here, counters=counters)

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
        totals["delayed"] = sum([delayed_messages(vhost) for vhost in self._broker.directory.vhosts.values()])
        return totals


def named_queue(broker: Broker, vhost: str, name: str) -> Queue:
    """Return a queue. Raises NothingFound."""
    found = broker.directory.vhosts.get(vhost)
    queue = None if found is None else found.queues.get(name)
    if queue is None:
        raise NothingFound(f"no queue '{name}' in vhost '{vhost}'")
    return queue


def _queues(broker: Broker, vhost: str | None) -> list[Queue]:
    """Return the current queues as a list of references, which takes 3 ns for each."""
    vhosts = broker.directory.vhosts.values() if vhost is None else [broker.directory.vhost(vhost)]
    return [queue for each in vhosts for queue in each.queues.values()]


def _row(queue: Queue, in_doubt: Mapping[str, int], *, counters: bool) -> Row:
    return queue_row(fixed_part(queue), variable_part(queue, **in_doubt), counters=counters)


class _ListedQueues:
    """All queues, for `ListChanges`."""

    step = 5

    def __init__(self, broker: Broker, transactions: TransactionAdmin) -> None:
        self._broker = broker
        self._transactions = transactions
        self._watch: ChangeWatch[Queue] | None = None
        self._in_doubt: ByQueue = {}
        self._doubtful: set[tuple[str, str]] = set()  # queues with messages in doubt, at this look or the one before
        self._again: dict[Queue, None] = {}  # queues whose messages become visible by a sync, which notes nothing

    def present(self) -> list[Queue]:
        return _queues(self._broker, None)

    def fixed(self, listed: Queue) -> Row:
        return fixed_part(listed)

    def reading(self) -> Generator[None, None, Reader[Queue]]:
        before = self._in_doubt.keys()
        self._in_doubt = yield from self._transactions.by_queue()
        self._doubtful = {*before, *self._in_doubt}
        return self._read

    def changed(self) -> list[Queue] | None:
        if self._watch is None:
            self._watch = ChangeWatch(MOST_NOTED)
            self._broker.engine.watches.append(self._watch)
            return None
        noted = self._watch.take()
        if noted is None:
            return None
        vhosts = self._broker.directory.vhosts
        found = dict.fromkeys(noted) | self._again
        self._again = {}
        for vhost, name in self._doubtful:
            queue = vhosts[vhost].queues.get(name) if vhost in vhosts else None
            if queue is not None:
                found[queue] = None
        return [queue for queue in found if queue.deleted or vhosts[queue.vhost].queues.get(queue.name) is queue]

    def _read(self, queues: Sequence[Queue]) -> list[Variable | None]:
        found: list[Variable | None] = []
        for queue in queues:
            if queue.deleted:
                found.append(None)
                continue
            if self._in_doubt:
                in_doubt = self._in_doubt.get((queue.vhost, queue.name), NOTHING_IN_DOUBT)
                found.append(variable_part(queue, **in_doubt))
            else:
                found.append(variable_part(queue))
            queue.watched = True
            if queue.unsynced:
                self._again[queue] = None
        return found
