"""Preparing a branch: everything that it does goes into one PREPARE record, and is locked (DTX-8)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from escrowmq.core.branches.branch import State
from escrowmq.core.branches.decision import Decision
from escrowmq.core.branches.xa_branch import LoggedContents, PreparedRun
from escrowmq.core.queues.settlement import durable_positions
from escrowmq.core.records.blocks import encode_block
from escrowmq.core.records.branches import (
    ADDRESS,
    Item,
    Prepared,
    SettlementItem,
    encode_prepare,
    encode_settlement,
    run_head,
)
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.references import ranges_of
from escrowmq.core.records.reservations import encode_released

if TYPE_CHECKING:
    from escrowmq.core.branches.xa_branch import XaBranch
    from escrowmq.core.broker import Broker
    from escrowmq.core.queues.queue import Queue


KEEP_BYTES: Final = 64 * 1024
"""Bodies of a run that stay in memory while it is prepared; longer ones are read from the log when they are needed."""


class Preparation:
    """What a branch will be when it is prepared."""

    def __init__(self, broker: Broker, branch: XaBranch) -> None:
        self._broker = broker
        self._branch = branch
        self._runs: list[PreparedRun] = []
        for publication in branch.publications:
            envelope, queues = publication.envelope, publication.queues
            if any(queue.persists_all for queue in queues):
                envelope = envelope.lasting()
            contents = publication.contents
            run = PreparedRun(
                envelope, contents, queues, publication.mandatory, broker.now, size=sum(map(len, contents))
            )
            self._runs.append(run)

    def check(self) -> None:
        """Once it is prepared, nothing of it may be refused any more.

        Raises LIMIT_EXCEEDED if a queue has no room for its messages or it does not fit in one record,
        PRECONDITION_FAILED if held messages that it settles are not held any more.
        """
        branch = self._branch
        decision = Decision(self._broker)
        for publication in branch.publications:
            queues = [queue for queue in publication.queues if not queue.deleted]
            decision.place(publication.envelope, publication.contents, queues)
        decision.check_room()
        for work in branch.reservations:
            work.check()
        self._broker.place_rejected(decision, branch)
        decision.check_size(branch.operations)

    def apply(self) -> int:
        """Write the record, lock what was settled, give its consumers their credit; what the answer has to wait for."""
        broker, branch = self._broker, self._branch
        log = broker.log
        items: list[tuple[Item, Sequence[bytes]]] = []
        heads: list[int | None] = []
        for run in self._runs:
            durable = [queue.ident for queue in lasting(run)]
            if durable or (run.mandatory and run.envelope.durable):  # who commits gets it back, after a restart as well
                head = run_head(durable, mandatory=run.mandatory)
                items.append((Item.RUN, [head, *encode_block(run.time, run.envelope, run.contents)]))
                heads.append(len(head))
            else:
                heads.append(None)
        items += settlement_items(branch)
        branch.prepared_at = broker.now
        parts, offsets = encode_prepare(head_of(branch), items)
        lsn = log.append(Kind.PREPARE, *parts)
        places = iter(offsets)
        for run, offset in zip(self._runs, heads, strict=True):
            if offset is not None:
                run.lsn = lsn + next(places) + offset
                run.retained = len(run.contents) * max(len(lasting(run)), 1)
                log.retain(run.lsn, run.retained)
        for run in self._runs:
            promise_room(broker, run)
            if run.lsn and run.size > KEEP_BYTES:
                run.contents = LoggedContents(broker.pager, run.lsn, len(run.contents))
        branch.runs = self._runs
        branch.publications.clear()
        for settlement in branch.settlements:
            queue = broker.leave(settlement.consumer, len(settlement.entries))
            queue.unsettled += len(settlement.entries)
            settlement.consumer = queue.getter
        for work in branch.reservations:
            work.pledge(branch.number)
        return log.end_lsn


def lasting(run: PreparedRun) -> list[Queue]:
    """The queues where its messages survive a restart."""
    return [queue for queue in run.queues if queue.durable and not queue.deleted] if run.envelope.durable else []


def head_of(branch: XaBranch) -> Prepared:
    """What precedes the items in its record."""
    return Prepared(
        branch.number,
        branch.state,
        branch.started,
        branch.prepared_at,
        branch.timeout,
        branch.xid.encode(),
        branch.owner,
        [],
        [],
        vhost=branch.vhost,
    )


def settlement_items(branch: XaBranch) -> Iterator[tuple[Item, Sequence[bytes]]]:
    """What was settled, as far as a restart brings it back."""
    for settlement in branch.settlements:
        queue = settlement.consumer.queue
        positions = durable_positions(queue, settlement.entries)
        if positions and not queue.is_stream and not queue.deleted:
            ranges = ranges_of(positions)
            yield encode_settlement(SettlementItem(queue.ident, settlement.outcome, ranges, settlement.requeue))
    for work in branch.reservations:
        queue = work.reservation.queue
        if queue.durable and not queue.deleted:
            yield Item.HOLD, [encode_released(queue.ident, work.reservation.group, work.end, work.end)]


def captured(branch: XaBranch) -> list[bytes]:
    """Its record for a snapshot: with the addresses of its blocks; of one that is decided just that it was."""
    items: list[tuple[Item, Sequence[bytes]]] = []
    if branch.state is not State.PREPARED:  # what it locks until the log is synced is back after a restart
        return encode_prepare(head_of(branch), items)[0]
    for run in branch.runs:
        if run.lsn:
            head = run_head([queue.ident for queue in lasting(run)], mandatory=run.mandatory)
            items.append((Item.ADDRESSED_RUN, [head, ADDRESS.pack(run.lsn, len(run.contents))]))
    items += settlement_items(branch)
    return encode_prepare(head_of(branch), items)[0]


def promise_room(broker: Broker, run: PreparedRun) -> None:
    """Keep room for it where messages are refused at a limit: a commit must not be."""
    for queue in run.queues:
        if queue.refuses:
            count, size = broker.promised.get(queue, (0, 0))
            broker.promised[queue] = (count + len(run.contents), size + run.size)


def _release_room(broker: Broker, run: PreparedRun) -> None:
    for queue in run.queues:
        if queue.refuses:
            count, size = broker.promised.pop(queue)
            if count > len(run.contents):
                broker.promised[queue] = (count - len(run.contents), size - run.size)


def discard(broker: Broker, branch: XaBranch) -> None:
    """The branch is decided: the log need not keep for it what nobody has taken over."""
    for run in branch.runs:
        _release_room(broker, run)
        if run.retained:
            broker.log.release(run.lsn, run.retained)
            run.retained = 0
    branch.runs = []
