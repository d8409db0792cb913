"""Preparing a branch: everything that it does goes into one PREPARE record, and is locked (DTX-8)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from escrowmq.core.branch_records import (
    ADDRESS,
    Item,
    Prepared,
    SettlementItem,
    encode_prepare,
    encode_settlement,
    run_head,
)
from escrowmq.core.decision import Decision
from escrowmq.core.records import Kind, encode_block, ranges_of
from escrowmq.core.settlement import durable_positions
from escrowmq.core.xa_branch import PreparedRun

if TYPE_CHECKING:
    from escrowmq.core.broker import Broker
    from escrowmq.core.queue import Queue
    from escrowmq.core.xa_branch import XaBranch


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
            bodies = publication.bodies
            run = PreparedRun(envelope, bodies, queues, publication.mandatory, broker.now, size=sum(map(len, bodies)))
            self._runs.append(run)

    def check_room(self) -> None:
        """Raises LIMIT_EXCEEDED if a queue would refuse a message: once it is prepared, nothing may be refused."""
        decision = Decision(self._broker)
        for publication in self._branch.publications:
            queues = [queue for queue in publication.queues if not queue.deleted]
            decision.place(publication.envelope, publication.bodies, queues)
        decision.check_room()

    def apply(self) -> int:
        """Write the record, lock what was settled, give its consumers their credit; what the answer has to wait for."""
        broker, branch = self._broker, self._branch
        log = broker.log
        items: list[tuple[Item, Sequence[bytes]]] = []
        heads: list[int | None] = []
        for run in self._runs:
            durable = [queue.ident for queue in lasting(run)]
            if durable:
                head = run_head(durable, mandatory=run.mandatory)
                items.append((Item.RUN, [head, *encode_block(run.time, run.envelope, run.bodies)]))
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
                run.retained = len(run.bodies) * len(lasting(run))
                log.retain(run.lsn, run.retained)
        branch.runs = self._runs
        branch.publications.clear()
        for settlement in branch.settlements:
            queue = broker.leave(settlement.consumer, len(settlement.entries))
            queue.unsettled += len(settlement.entries)
            settlement.consumer = queue.getter
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
    )


def settlement_items(branch: XaBranch) -> Iterator[tuple[Item, Sequence[bytes]]]:
    """What was settled, as far as a restart brings it back."""
    for settlement in branch.settlements:
        queue = settlement.consumer.queue
        positions = durable_positions(queue, settlement.entries)
        if positions and not queue.keeps and not queue.deleted:
            ranges = ranges_of(positions)
            yield encode_settlement(SettlementItem(queue.ident, settlement.outcome, ranges, settlement.requeue))


def captured(branch: XaBranch) -> list[bytes]:
    """Its record for a snapshot: with the addresses of its blocks."""
    items: list[tuple[Item, Sequence[bytes]]] = []
    for run in branch.runs:
        if run.lsn:
            head = run_head([queue.ident for queue in lasting(run)], mandatory=run.mandatory)
            items.append((Item.ADDRESSED_RUN, [head, ADDRESS.pack(run.lsn, len(run.bodies))]))
    items += settlement_items(branch)
    return encode_prepare(head_of(branch), items)[0]


def discard(broker: Broker, branch: XaBranch) -> None:
    """The branch is decided: the log need not keep for it what nobody has taken over."""
    for run in branch.runs:
        if run.retained:
            broker.log.release(run.lsn, run.retained)
            run.retained = 0
    branch.runs = []
