"""Messages as operators see them: ids, properties, and the beginning of the body."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from escrowmq.admin.operation import NothingFound, Operation, OperationRefused, Row
from escrowmq.admin.ports import BrokerProcess
from escrowmq.core.branches.xa_branch import XaBranch
from escrowmq.core.conditions import BrokerError
from escrowmq.core.messages.entry import Entry
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.queue import Queue
from escrowmq.core.queues.stream import StreamQueue
from escrowmq.xid_names.names import parsed

MOST: Final = 50
"""The largest number of messages that one operation shows."""


class ContentAdmin:
    """The operations by name are in `operations`. They change nothing. Raises OperationRefused or BrokerError."""

    def __init__(self, process: BrokerProcess) -> None:
        self._process = process
        self._broker = process.broker
        self.operations: Mapping[str, Operation] = {"queue.peek": self.peek, "tx.messages": self.of_branch}

    async def peek(
        self, vhost: str, queue: str, count: int = 10, start: int = 0, number: int | None = None
    ) -> list[Row]:
        """Return the first messages of a queue that are ready, from position `start` on, at most `count` (1 to `MOST`).
        With `number`, there are none unless the queue is the one that the journal knows by it.
        They stay where they are: nobody receives them, and no delivery is counted.
        """
        if not 1 <= count <= MOST:
            raise OperationRefused(f"the number of messages is 1 to {MOST}, and not {count}")
        found = self._broker.directory.vhost(vhost).queue(queue)
        if found.fault:
            raise OperationRefused(f"queue '{queue}' is unavailable: {found.fault}")
        if number is not None and found.ident != number:
            return []
        return [entry_row(self._process, entry) for entry in first_entries(found, count, start)]

    async def of_branch(self, xid: str) -> Row:
        """Return the messages that a branch takes from queues and those that it brings to them: of each at most `MOST`,
        and whether these are `all`. Reserved messages are not among them, because the broker has not read them.
        """
        branch = self._broker.branches.by_xid.get(parsed(xid))
        if branch is None:
            raise NothingFound(f"no branch {xid}; `escrowmq tx list` shows the branches that exist")
        taken, brought = list(islice(_taken(branch), MOST + 1)), list(islice(_brought(branch), MOST + 1))
        return {
            "taken": [
                {"queue": queue.name, "vhost": queue.vhost, **entry_row(self._process, entry)}
                for queue, entry in taken[:MOST]
            ],
            "brought": [
                {"queues": [queue.name for queue in queues], **_message(self._process, envelope, content)}
                for queues, envelope, content in brought[:MOST]
            ],
            "all": len(taken) <= MOST and len(brought) <= MOST and not branch.reservations and branch.unread is None,
        }


def entry_row(process: BrokerProcess, entry: Entry) -> Row:
    """Return a message of a queue as operators see it."""
    place = {"position": entry.position, "deliveries": entry.deliveries, "time_ms": entry.run.time}
    return place | _message(process, entry.run.envelope, entry.content)


def _message(process: BrokerProcess, envelope: Envelope, content: bytes) -> Row:
    row: Row = {"exchange": envelope.exchange, "routing_key": envelope.routing_key}
    try:
        return row | process.readable(envelope, content, whole=False)
    except BrokerError as error:
        return row | {"unreadable": error.text}


def first_entries(queue: Queue, count: int, start: int = 0) -> list[Entry]:
    """Return the first `count` entries of a queue that are ready, from position `start` on, without removing them."""
    found: list[Entry] = []
    if isinstance(queue, StreamQueue):
        while len(found) < count and (more := queue.read(start, count - len(found))):
            found += more
            start = more[-1].position + 1
        return found
    for _, level in sorted(queue.order.levels(), key=lambda each: -each[0]):
        if len(found) < count:
            found += level.scan(start, queue.visible_end, count - len(found))
    return found


def _taken(branch: XaBranch) -> Iterator[tuple[Queue, Entry]]:
    for settlement in branch.settlements:
        for entry in settlement.entries:
            yield settlement.consumer.queue, entry


def _brought(branch: XaBranch) -> Iterator[tuple[Sequence[Queue], Envelope, bytes]]:
    for publication in branch.publications:
        for content in publication.contents:
            yield publication.queues, publication.envelope, content
    for run in branch.runs:
        for content in run.contents:
            yield run.queues, run.envelope, content
