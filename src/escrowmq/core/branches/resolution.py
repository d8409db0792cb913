"""The outcome of prepared branches: what each does, and all of it in one record (TX-5, ORD-4, DTX-9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from escrowmq.core.branches.branch import Publication
from escrowmq.core.branches.decision import Decision
from escrowmq.core.messages.entry import Run
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.queues.settlement import durable_positions, release
from escrowmq.core.records.blocks import encode_block
from escrowmq.core.records.branches import encode_placed
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.publishing import encode_targets
from escrowmq.core.records.references import ranges_of
from escrowmq.core.records.settling import encode_settle

if TYPE_CHECKING:
    from escrowmq.core.branches.xa_branch import PreparedRun, XaBranch
    from escrowmq.core.broker import Broker
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.queues.consumer import Consumer
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.records.branches import Operations
    from escrowmq.core.reservations.reservation import Reservation

INLINE_BYTES: Final = 64 * 1024
"""Bodies that the record of an outcome holds for one branch; more precede it in records of their own, so that it never
gets too long, however many branches are decided at once."""
BLOCK_BYTES: Final = 16 * 1024 * 1024
"""Bodies of one such record, of dead letters; one message more may come on top."""

Operation = tuple[Kind, Sequence[bytes]]
Write = Callable[[list["Operations"]], list[list[int]]]
"""Append the record that has these operations, of each branch; the LSNs of their payloads."""


class Outcomes(Decision):
    """What the commit of one prepared branch does. Its blocks are in the log already."""

    __slots__ = ("_offsets", "_runs", "_written", "back", "branch", "returned")

    def __init__(self, broker: Broker, branch: XaBranch) -> None:
        super().__init__(broker, branch.number)
        self.branch = branch
        self.returned: list[Publication] = []
        self.back: list[tuple[Consumer, list[Entry]]] = []
        self._runs: dict[int, PreparedRun] = {}
        self._offsets: list[int | None] = []
        self._written: dict[int, int] = {}  # LSNs of blocks in records of their own
        for run in branch.runs:
            queues = tuple(queue for queue in run.queues if not queue.deleted)
            if queues:
                self._runs[len(self._placements)] = run
                self._placements.append((run.envelope, run.contents, queues))
            elif run.mandatory:
                self.returned.append(Publication(run.envelope, list(run.contents), (), mandatory=True))
        placed = len(self._placements)
        broker.place_rejected(self, branch)
        self._placements[placed:] = [
            (envelope, part, queues)
            for envelope, contents, queues in self._placements[placed:]
            for part in _in_blocks(contents)
        ]
        for settlement in branch.settlements:
            consumer, entries, outcome = settlement.consumer, settlement.entries, settlement.outcome
            if settlement.requeue:
                entries, returning = broker.spent(consumer.queue, entries)
                outcome = Outcome.DELIVERY_LIMIT
                self.back.append((consumer, returning))
                if not entries:
                    continue
            queue = broker.leave(consumer, len(entries))
            if not queue.is_stream:
                self.remove(queue, entries, outcome)
        self._reservations += branch.reservations

    def operations(self, next_positions: dict[Queue, int], settled: dict[Reservation, int]) -> list[Operation]:
        """The record's operations. `next_positions` and `settled` go on from branch to branch."""
        found: list[Operation] = []
        inline = 0
        for i, (envelope, contents, queues) in enumerate(self._placements):
            targets = []
            for queue in queues:
                first = next_positions.get(queue, queue.next_position)
                next_positions[queue] = first + len(contents)
                if queue.durable and envelope.durable:
                    targets.append((queue.ident, first))
            run = self._runs.get(i)
            offset: int | None = None
            if targets and run is not None and not self._ages(run, queues):
                found.append((Kind.PLACED, [encode_placed(targets, run.lsn, len(contents))]))
            elif targets:
                inline += sum(map(len, contents))
                block = encode_block(self._host.now, envelope, contents)
                if inline > INLINE_BYTES:
                    lsn = self._written[i] = self._host.log.append(Kind.PAGE, *block)
                    found.append((Kind.PLACED, [encode_placed(targets, lsn, len(contents))]))
                else:
                    head = encode_targets(targets)
                    found.append((Kind.PUBLISH, [head, *block]))
                    offset = len(head)
            self._offsets.append(offset)
        for (queue, outcome), entries in self._removals.items():
            positions = durable_positions(queue, entries)
            if positions and not queue.deleted:
                found.append((Kind.SETTLE, [encode_settle(queue.ident, outcome, ranges_of(positions))]))
        return found + self.reservation_operations(settled)

    def _ages(self, run: PreparedRun, queues: Sequence[Queue]) -> bool:
        """Whether the time in its block matters and is not that of the commit.

        A message lives from its commit on, and a stream, which is read by time, has it from then on.
        """
        if run.time == self._host.now:
            return False
        return run.envelope.ttl is not None or any(
            queue.is_stream or queue.options.message_ttl is not None for queue in queues
        )

    def take_effect(self, payloads: Sequence[int], end: int) -> None:
        """Messages come and go; they are invisible until the log is synced up to `end`."""
        host, log = self._host, self._host.log
        written = iter(payloads)
        for i, (envelope, contents, queues) in enumerate(self._placements):
            run, offset = self._runs.get(i), self._offsets[i]
            durable = [queue for queue in queues if queue.durable and envelope.durable]
            lsn, time = 0, host.now
            if durable:
                payload = next(written)
                if offset is not None or i in self._written:
                    lsn = self._written[i] if offset is None else payload + offset
                    log.retain(lsn, len(contents) * len(durable))
                elif run is not None:
                    lsn, time = run.lsn, run.time
                    run.retained -= len(contents) * len(durable)
            for queue in queues:
                kept = list(contents) if queue.is_stream else contents  # a stream is read many times
                queue.enqueue(Run(envelope, 0, time, lsn if queue.durable else 0), kept, end)
                if queue.unsynced:
                    host.seal(queue)
        for entries in self._removals.values():
            release(log, entries)
        for work in self._reservations:
            work.apply(log)


def _in_blocks(contents: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    begin = size = 0
    for i, content in enumerate(contents, 1):
        size += len(content)
        if size >= BLOCK_BYTES or i == len(contents):
            yield contents[begin:i]
            begin, size = i, 0


def resolve(broker: Broker, branches: Sequence[XaBranch], write: Write) -> list[Outcomes]:
    """Commit prepared branches: one record, written by `write`, then all of their effects."""
    broker.settlements.flush()
    outcomes = [Outcomes(broker, branch) for branch in branches]
    next_positions: dict[Queue, int] = {}
    settled: dict[Reservation, int] = {}
    payloads = write([outcome.operations(next_positions, settled) for outcome in outcomes])
    end = broker.log.end_lsn
    for outcome, places in zip(outcomes, payloads, strict=True):
        outcome.take_effect(places, end)
    for outcome in outcomes:
        for consumer, entries in outcome.back:
            broker.requeue(consumer, entries)
    return outcomes
