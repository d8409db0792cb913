"""Preparing a branch: its work goes into one PREPARE record, and its messages are withheld and locked (DTX-8)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from escrowmq.core.branches import resolution
from escrowmq.core.branches.branch import RETURN, State
from escrowmq.core.branches.resolution import BranchEffects
from escrowmq.core.branches.xa_branch import LoggedContents, PreparedRun
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.queues.settlement import durable_positions
from escrowmq.core.records.blocks import encode_block
from escrowmq.core.records.branches import (
    ADDRESS,
    Item,
    Owner,
    Prepared,
    SettlementItem,
    encode_owner,
    encode_prepare,
    encode_settlement,
    run_head,
)
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.references import ranges_of
from escrowmq.core.records.reservations import encode_released

if TYPE_CHECKING:
    from escrowmq.core.branches.xa_branch import XaBranch
    from escrowmq.core.queues.discipline import Pager
    from escrowmq.core.queues.queue import Queue


KEEP_BYTES: Final = 64 * 1024
"""Bytes of bodies up to which a prepared run stays in memory. The bodies of a longer run are read from the log."""


class Host(resolution.Host, Protocol):
    """The part of the engine that preparing needs."""

    pager: Pager
    promised: dict[Queue, tuple[int, int]]


class Preparation:
    """The step from an active to a prepared branch."""

    def __init__(self, engine: Host, branch: XaBranch) -> None:
        self._engine = engine
        self._branch = branch
        self._runs: list[PreparedRun] = []
        for publication in branch.publications:
            envelope, queues = publication.envelope, publication.queues
            if any(queue.persists_all for queue in queues):
                envelope = envelope.lasting()
            contents = publication.contents
            run = PreparedRun(
                envelope, contents, queues, publication.mandatory, engine.now, size=sum(map(len, contents))
            )
            self._runs.append(run)

    def check(self) -> None:
        """Check everything that could prevent a commit, since a prepared branch must be able to commit.

        Raises LIMIT_EXCEEDED if a queue has no room for the branch's messages or the branch does not fit into one
        record, and PRECONDITION_FAILED if it settles reserved messages that are not reserved any more.
        """
        BranchEffects(self._engine, self._branch).check()

    def apply(self) -> int:
        """Write the record, lock the settled messages, and restore the consumers' credit. Return the LSN up to which
        the log must be synced before the answer.
        """
        engine, branch = self._engine, self._branch
        log = engine.log
        items: list[tuple[Item, Sequence[bytes]]] = []
        heads: list[int | None] = []
        for run in self._runs:
            durable = [queue.ident for queue in lasting(run)]
            if durable or (run.mandatory and run.envelope.durable):  # the commit returns it, also after a restart
                head = run_head(durable, mandatory=run.mandatory)
                items.append((Item.RUN, [head, *encode_block(run.time, run.envelope, run.contents)]))
                heads.append(len(head))
            else:
                heads.append(None)
        items += settlement_items(branch)
        items.append(owner_item(branch))
        parts, offsets = encode_prepare(head_of(branch, State.PREPARED, engine.now), items)
        lsn = log.append(Kind.PREPARE, *parts)
        branch.prepared_at = engine.now
        places = iter(offsets)
        for run, offset in zip(self._runs, heads, strict=True):
            if offset is not None:
                run.lsn = lsn + next(places) + offset
                run.retained = len(run.contents) * max(len(lasting(run)), 1)
                log.retain(run.lsn, run.retained)
        for run in self._runs:
            promise_room(engine, run)
            if run.lsn and run.size > KEEP_BYTES:
                run.contents = LoggedContents(engine.pager, run.lsn, len(run.contents))
        branch.runs = self._runs
        branch.publications.clear()
        for settlement in branch.settlements:
            queue = engine.leave(settlement.consumer, len(settlement.entries))
            queue.unsettled += len(settlement.entries)
            settlement.consumer = queue.getter
            settlement.undo = RETURN  # whatever the undo was before
        for work in branch.reservations:
            work.pledge(branch.number)
        return log.end_lsn


def lasting(run: PreparedRun) -> list[Queue]:
    """Return the queues on which the messages of `run` survive a restart."""
    return [queue for queue in run.queues if queue.durable and not queue.deleted] if run.envelope.durable else []


def head_of(branch: XaBranch, state: State, prepared_at: int) -> Prepared:
    """Return the head of the branch's record, without its items."""
    return Prepared(
        branch.number,
        state,
        branch.started,
        prepared_at,
        branch.timeout,
        branch.xid.encode(),
        branch.owner,
        [],
        [],
        vhost=branch.vhost,
    )


def owner_item(branch: XaBranch) -> tuple[Item, Sequence[bytes]]:
    """Return the item with the owner of the branch."""
    return encode_owner(Owner(branch.user, branch.concerns.complete, tuple(branch.concerns.names)))


def settlement_items(branch: XaBranch) -> Iterator[tuple[Item, Sequence[bytes]]]:
    """Yield items for the settled messages that survive a restart."""
    for settlement in branch.settlements:
        queue = settlement.consumer.queue
        positions = durable_positions(queue, settlement.entries)
        if positions and not queue.is_stream and not queue.deleted:
            ranges = ranges_of(positions)
            requeue = settlement.disposition.returns
            outcome = Outcome.REJECTED if requeue else Outcome[settlement.disposition.name]
            yield encode_settlement(SettlementItem(queue.ident, outcome, ranges, requeue))
    for work in branch.reservations:
        queue = work.reservation.queue
        if queue.durable and not queue.deleted:
            yield Item.HOLD, [encode_released(queue.ident, work.reservation.group, work.end, work.end)]


def captured(branch: XaBranch) -> list[bytes]:
    """Return the branch's record for a snapshot. It holds the addresses of its blocks, or for a decided branch only the
    decision.
    """
    items: list[tuple[Item, Sequence[bytes]]] = [owner_item(branch)]
    if branch.state is not State.PREPARED:  # its locked messages are back in their queues after a restart
        return encode_prepare(head_of(branch, branch.state, branch.prepared_at), items)[0]
    for run in branch.runs:
        if run.lsn:
            head = run_head([queue.ident for queue in lasting(run)], mandatory=run.mandatory)
            items.append((Item.ADDRESSED_RUN, [head, ADDRESS.pack(run.lsn, len(run.contents))]))
    items += settlement_items(branch)
    return encode_prepare(head_of(branch, branch.state, branch.prepared_at), items)[0]


def promise_room(engine: Host, run: PreparedRun) -> None:
    """Reserve room for `run` in queues that refuse messages at their limit, since its commit must not be refused."""
    for queue in run.queues:
        if queue.refuses:
            count, size = engine.promised.get(queue, (0, 0))
            engine.promised[queue] = (count + len(run.contents), size + run.size)


def _release_room(engine: Host, run: PreparedRun) -> None:
    for queue in run.queues:
        if queue.refuses:
            count, size = engine.promised.pop(queue)
            if count > len(run.contents):
                engine.promised[queue] = (count - len(run.contents), size - run.size)


def discard(engine: Host, branch: XaBranch) -> None:
    """Release the branch's blocks in the log, as far as no queue has taken them over. The branch is decided."""
    for run in branch.runs:
        _release_room(engine, run)
        if run.retained:
            engine.log.release(run.lsn, run.retained)
            run.retained = 0
    branch.runs = []
