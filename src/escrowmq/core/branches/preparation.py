"""Preparing a branch: its work goes into one PREPARE record, and its messages are withheld and locked (DTX-8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from escrowmq.core.branches import large_effects
from escrowmq.core.branches.branch import RETURN, State
from escrowmq.core.branches.resolution import BranchEffects
from escrowmq.core.branches.xa_branch import LoggedContents, PreparedRun
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.queues.outcome import Disposition, Outcome
from escrowmq.core.queues.redelivery import spent
from escrowmq.core.queues.settlement import durable_positions
from escrowmq.core.records import kinds as records
from escrowmq.core.records.blocks import encode_block
from escrowmq.core.records.branches import (
    Item,
    Owner,
    Prepared,
    Route,
    SettlementItem,
    encode_owner,
    encode_prepare,
    encode_route,
    encode_settlement,
    run_head,
)
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.references import ranges_of
from escrowmq.core.records.reservations import encode_released

if TYPE_CHECKING:
    from escrowmq.core.branches.branch import Settlement
    from escrowmq.core.branches.xa_branch import XaBranch
    from escrowmq.core.leftover import LeftOver
    from escrowmq.core.queues.queue import Queue


KEEP_BYTES: Final = 64 * 1024
"""Bytes of bodies up to which a prepared run stays in memory. The bodies of a longer run are read from the log."""
_LET_GO: Final = 500  # runs that are released in one step


class Host(large_effects.Host, Protocol):
    """The part of the engine that preparing needs."""

    left_over: LeftOver
    outcomes: dict[bytes, int]


class Preparation:
    """The step from an active to a prepared branch."""

    def __init__(self, engine: Host, branch: XaBranch) -> None:
        self._engine = engine
        self._branch = branch
        self._outcome_bytes = 0
        self._parts: list[bytes] = []
        self._offsets: list[int | None] = []  # of the block of each run; None if the log has none
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

        Where its dead letters go is settled here: bindings that others make later could let the record of the commit
        grow without bound. Raises LIMIT_EXCEEDED if a queue has no room for the branch's messages, or if the branch or
        the outcome of all prepared branches of its global transaction does not fit into one record, and
        PRECONDITION_FAILED if it settles reserved messages that are not reserved any more.
        """
        branch = self._branch
        for settlement in branch.settlements:
            settlement.routes = routes_of(self._engine, settlement)
        effects = BranchEffects(self._engine, branch)
        effects.check()
        self._outcome_bytes = effects.decision.outcome_bytes(branch.operations)
        check_outcome(self._engine, branch, self._outcome_bytes)
        self._parts, self._offsets = self._encoded()
        check_record(sum(map(len, self._parts)))

    def _encoded(self) -> tuple[list[bytes], list[int | None]]:
        """Return the parts of the record, and for each run the offset of its block, or None if the log has none."""
        engine, branch = self._engine, self._branch
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
        places = iter(offsets)
        return parts, [None if offset is None else next(places) + offset for offset in heads]

    def apply(self) -> int:
        """Write the record, lock the settled messages, and restore the consumers' credit. Return the LSN up to which
        the log must be synced before the answer. `check` must have succeeded in this turn.
        """
        engine, branch = self._engine, self._branch
        log = engine.log
        lsn = log.append(Kind.PREPARE, *self._parts)
        branch.prepared_at = engine.now
        for run, offset in zip(self._runs, self._offsets, strict=True):
            if offset is not None:
                run.offset = lsn + offset
                run.retained = len(run.contents) * max(len(lasting(run)), 1)
                log.retain(run.lsn, run.retained)
        promise_outcome(engine, branch, self._outcome_bytes)
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


def check_outcome(engine: Host, branch: XaBranch, size: int) -> None:
    """Raises LIMIT_EXCEEDED if the outcome of all prepared branches of the global transaction would not fit into one
    record. `branch` adds `size` bytes.
    """
    together = engine.outcomes.get(branch.xid.gtrid, 0) + size
    if together > records.RECORD_BYTES:
        raise BrokerError(
            Condition.LIMIT_EXCEEDED,
            f"the outcome of all prepared branches of the global transaction comes to {together} bytes, more than "
            f"the {records.RECORD_BYTES} of one record",
        )


def check_record(size: int) -> None:
    """Raises LIMIT_EXCEEDED if a PREPARE record of `size` bytes is too long."""
    if size > records.RECORD_BYTES:
        raise BrokerError(
            Condition.LIMIT_EXCEEDED,
            f"transaction comes to {size} bytes, more than the {records.RECORD_BYTES} of one record",
        )


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
        yield from items_of(settlement)
    yield from reservation_items(branch)


def items_of(settlement: Settlement) -> Iterator[tuple[Item, Sequence[bytes]]]:
    """Yield items for the messages of a settlement that survive a restart."""
    queue = settlement.consumer.queue
    positions = durable_positions(queue, settlement.entries)
    if positions and not queue.is_stream and not queue.deleted:
        ranges = ranges_of(positions)
        requeue = settlement.disposition.returns
        outcome = Outcome.REJECTED if requeue else Outcome[settlement.disposition.name]
        yield encode_settlement(SettlementItem(queue.ident, outcome, ranges, requeue))
        if settlement.routes:
            yield from _route_items(queue, positions, settlement.routes)


def reservation_items(branch: XaBranch) -> Iterator[tuple[Item, Sequence[bytes]]]:
    """Yield items for the reservations that the branch settles."""
    for work in branch.reservations:
        queue = work.reservation.queue
        if queue.durable and not queue.deleted:
            yield Item.HOLD, [encode_released(queue.ident, work.reservation.group, work.end, work.end)]


def _route_items(
    queue: Queue, positions: Sequence[int], routes: Mapping[int, tuple[Queue, ...]]
) -> Iterator[tuple[Item, Sequence[bytes]]]:
    found: dict[tuple[Queue, ...], list[int]] = {}
    for position in positions:
        targets = routes.get(position)
        if targets is not None:
            found.setdefault(targets, []).append(position)
    for targets, some in found.items():
        yield encode_route(Route(queue.ident, ranges_of(some), tuple(target.ident for target in targets)))


def routes_of(engine: Host, settlement: Settlement) -> dict[int, tuple[Queue, ...]]:
    """Return the queues that receive dead letters of the settlement, by position. The commit uses them (DTX-8)."""
    queue, disposition = settlement.consumer.queue, settlement.disposition
    if queue.is_stream or queue.deleted:
        return {}
    if disposition is Disposition.REJECTED:
        return engine.dead_letters.routes(queue, settlement.entries, Outcome.REJECTED)
    if disposition is Disposition.MODIFIED:
        return engine.dead_letters.routes(queue, spent(queue, settlement.entries)[0], Outcome.DELIVERY_LIMIT)
    return {}


def promise_room(engine: Host, run: PreparedRun) -> None:
    """Reserve room for `run`, since its commit must not be refused, also by a queue that a policy limits later."""
    for queue in run.queues:
        count, size = engine.promised.get(queue, (0, 0))
        engine.promised[queue] = (count + len(run.contents), size + run.size)


def promise_outcome(engine: Host, branch: XaBranch, size: int) -> None:
    """Keep `size` bytes for the outcome of `branch` in the record that may decide all branches of its global
    transaction.
    """
    branch.outcome_bytes = size
    engine.outcomes[branch.xid.gtrid] = engine.outcomes.get(branch.xid.gtrid, 0) + size


def release_outcome(engine: Host, branch: XaBranch) -> None:
    """Give up the bytes that were kept for the branch's outcome."""
    left = engine.outcomes.pop(branch.xid.gtrid, 0) - branch.outcome_bytes
    if left > 0:
        engine.outcomes[branch.xid.gtrid] = left
    branch.outcome_bytes = 0


def discard(engine: Host, branch: XaBranch) -> None:
    """Release the branch's blocks in the log, as far as no queue has taken them over; many of them in later turns. The
    branch is decided.
    """
    release_outcome(engine, branch)
    if branch.unread is not None:
        branch.unread.drop()
    runs, branch.runs = branch.runs, []
    rest = _letting_go(engine, runs)
    for _ in rest:
        engine.left_over.add(rest)
        break


def _letting_go(engine: Host, runs: list[PreparedRun]) -> Iterator[None]:
    runs.reverse()
    while runs:
        for run in runs[-_LET_GO:]:
            run.let_go(engine)
        del runs[-_LET_GO:]
        engine.requests.left -= _LET_GO // 4
        if runs:
            yield
