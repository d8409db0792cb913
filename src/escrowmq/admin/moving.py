"""The operation that moves messages from one queue to another, for example dead letters back to where they were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from escrowmq.admin.authority import Authority
from escrowmq.admin.operation import Operation, OperationRefused
from escrowmq.admin.ports import BrokerProcess
from escrowmq.core.access.table import Operation as Right
from escrowmq.core.branches.branch import Keep, Limits, Publication, Settlement
from escrowmq.core.branches.watch import Watch
from escrowmq.core.conditions import BrokerError, Condition, check_growth
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.queue import Queue, Session

if TYPE_CHECKING:
    from escrowmq.core.engine import Engine
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.queues.consumer import Consumer

MOST: Final = 100_000
"""The number of messages that one operation moves."""
PIECE: Final = 100
"""Messages that are moved in one transaction."""


class NotMoved:
    """Gets the messages of a move that was refused (`core.branches.branch.Keeper`). They return to their places, and
    the attempt does not count towards the delivery limit: otherwise, a full destination would cost messages.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def keep(self, consumer: Consumer, tags: Sequence[int], entries: Sequence[Entry]) -> None:
        """See `Keeper.keep`."""
        del tags
        self._engine.release(consumer, list(entries))


class MoveAdmin:
    """The operation is in `operations`. What it has moved is on disk when it returns."""

    def __init__(self, process: BrokerProcess, authority: Authority) -> None:
        self._process = process
        self._broker = process.broker
        self._authority = authority
        self._session = Session("operator")
        self.operations: Mapping[str, Operation] = {"message.move": self.move}

    async def move(
        self,
        vhost: str,
        queue: str,
        destination: str,
        count: int = 1000,
        position: int | None = None,
        number: int | None = None,
        by: str = "",
    ) -> int:
        """Move up to `count` messages that are ready, oldest first, to the end of another queue of the virtual host,
        and return how many were moved. With `position`, only the message there is moved. With `number`, the queue must
        be the one that the journal knows by it, and not a later one of the same name.

        Each message is in exactly one of the two queues at any time, also after a crash: it leaves the one and enters
        the other in one transaction. Properties and headers stay as they are.

        Raises OperationRefused, BrokerError. What was moved before an error stays moved.
        """
        if not 0 < count <= MOST:
            raise OperationRefused(f"the number of messages is 1 to {MOST:,}, and not {count}")
        if queue == destination:
            raise OperationRefused("the messages are in that queue already")
        self._check(vhost, queue, destination, by)
        if number is not None and self._queue(vhost, queue).ident != number:
            raise OperationRefused(f"queue '{queue}' was deleted, and another one has its name")
        moved, label = 0, f"operator {by or 'of the command line'}"
        if position is not None:
            moved = await self._process.durably(lambda: self._move_one(vhost, queue, destination, position, label))
            if not moved:
                raise OperationRefused(f"no message is ready at position {position:,} of queue '{queue}'")
            return moved
        while moved < count:
            piece = partial(self._move_some, vhost, queue, destination, min(PIECE, count - moved), label)
            some = await self._process.durably(piece)
            moved += some
            if not some:
                break
        return moved

    def _check(self, vhost: str, queue: str, destination: str, by: str) -> None:
        place = self._authority.vhost(vhost, by)
        self._authority.check(place, by, Right.GET, queue=queue)
        door = self._authority.door(place, by)
        if door is not None:
            door.check_publish("", (destination,))

    def _move_some(self, vhost: str, source: str, destination: str, most: int, label: str) -> int:
        """Move up to `most` messages in one transaction, in this turn."""
        taken_from, target = self._ends(vhost, source, destination)
        entries = self._broker.engine.fetch(taken_from, most, auto_settle=False, label=label)
        return self._placed(entries, taken_from, target)

    def _move_one(self, vhost: str, source: str, destination: str, position: int, label: str) -> int:
        """Move the message at a position, if it is ready, in this turn."""
        taken_from, target = self._ends(vhost, source, destination)
        entries = self._broker.engine.fetch_at(taken_from, position, label=label)
        return self._placed(entries, taken_from, target)

    def _ends(self, vhost: str, source: str, destination: str) -> tuple[Queue, Queue]:
        taken_from, target = self._queue(vhost, source), self._queue(vhost, destination)
        if taken_from.is_stream:
            raise BrokerError(Condition.NOT_IMPLEMENTED, f"queue '{source}' is a stream, from which nothing is taken")
        check_growth(self._broker.engine.scarcity, "moving messages")
        return taken_from, target

    def _placed(self, entries: list[Entry], taken_from: Queue, target: Queue) -> int:
        """Settle entries and publish them to another queue in one transaction. Return their number."""
        engine, transactions = self._broker.engine, self._broker.transactions
        if not entries:
            return 0
        branch = transactions.begin(Limits(), Watch(engine.deadlines, 0, lambda: None))
        try:
            undo = Keep(NotMoved(engine), range(len(entries)))
            transactions.enlist(branch, Settlement(taken_from.getter, entries, Disposition.ACCEPTED, undo))
            for entry in entries:
                transactions.enlist(branch, Publication(entry.run.envelope, [entry.content], (target,)))
            transactions.commit(branch)
        except BrokerError:  # the destination refuses them at its limit, for example; they return to their places
            transactions.close(branch)
            raise
        transactions.begin_again(branch)
        transactions.close(branch)
        return len(entries)

    def _queue(self, vhost: str, name: str) -> Queue:
        queue = self._broker.directory.vhost(vhost).queue(name)
        queue.check_access(self._session)
        return queue
