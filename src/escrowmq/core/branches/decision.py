"""A decision: messages that come and entries that go, together, in one record (TX-5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.queues.settlement import durable_positions, release
from escrowmq.core.records import kinds as records
from escrowmq.core.records.blocks import encode_block
from escrowmq.core.records.branches import encode_placed
from escrowmq.core.records.commits import encode_commit, encode_lone
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.publishing import encode_single, encode_targets
from escrowmq.core.records.references import ranges_of
from escrowmq.core.records.settling import encode_settle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from escrowmq.core.branches.xa_branch import PreparedRun
    from escrowmq.core.ports import Log
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.records.branches import Operations
    from escrowmq.core.reservations.reservation import Reservation, ReservationSettlement

INLINE_BYTES: Final = 64 * 1024
"""Bodies that the record of an outcome holds for one prepared branch; more precede it in records of their own, so that
it never gets too long, however many branches are decided at once."""
BLOCK_BYTES: Final = 16 * 1024 * 1024
"""Bodies of one such record, of dead letters; one message more may come on top."""

# What a record holds beside envelopes and bodies, at most: for itself, a run, a queue of it, a body, a settlement.
_FRAME_BYTES: Final = 64
_PLACED_BYTES: Final = 32
_TARGET_BYTES: Final = 12
_LENGTH_BYTES: Final = 4
_SETTLED_BYTES: Final = 26


if TYPE_CHECKING:
    Write = Callable[[list[Operations]], list[list[int]]]
    """Append the record that has these operations, of each decision; the LSNs of their payloads."""


class Host(Protocol):
    """What a decision needs of the engine."""

    now: int
    log: Log

    def seal(self, queue: Queue) -> None:
        """`queue` has runs that wait for the log to be synced."""
        ...


@dataclass(slots=True)
class _Placement:
    """A run that comes to queues.

    Its block lies in the log already, at `lsn`, or stands in its operation from `offset` on; with neither, the run is
    in memory alone.
    """

    envelope: Envelope
    contents: Sequence[bytes]
    queues: Sequence[Queue]
    prepared: PreparedRun | None = None
    lsn: int = 0
    offset: int = 0


class Decision:
    """Effects that are gathered first, then written as one record and applied: nothing in memory changes before the log
    has accepted the record.

    `branch` is the number of the transaction branch, 0 where there is none (dead-lettering). A decision on a prepared
    branch is `short`: its record names blocks that lie elsewhere in the log, since it may be shared with many others.
    """

    __slots__ = ("_branch", "_host", "_placements", "_removals", "_reservations", "_short")

    def __init__(self, host: Host, branch: int = 0, *, short: bool = False) -> None:
        self._host = host
        self._branch = branch
        self._short = short
        self._placements: list[_Placement] = []
        self._removals: dict[tuple[Queue, Outcome], list[Entry]] = {}
        self._reservations: list[ReservationSettlement] = []

    def place(self, envelope: Envelope, contents: Sequence[bytes], queues: Sequence[Queue]) -> None:
        """A run comes to `queues`, behind what is there and what was placed before."""
        if not envelope.durable and any(queue.persists_all for queue in queues):
            envelope = envelope.lasting()
        for part in _in_blocks(contents) if self._short else (contents,):
            self._placements.append(_Placement(envelope, part, queues))

    def place_prepared(self, run: PreparedRun, queues: Sequence[Queue]) -> None:
        """The same with a run whose block a PREPARE record has, if it is durable."""
        self._placements.append(_Placement(run.envelope, run.contents, queues, run))

    def remove(self, queue: Queue, entries: list[Entry], outcome: Outcome) -> None:
        """Entries, which the caller has taken out of `queue`, are gone for good."""
        self._removals.setdefault((queue, outcome), []).extend(entries)

    def settle_reservation(self, work: ReservationSettlement) -> None:
        """Held messages are accepted."""
        self._reservations.append(work)

    def check_size(self, settled: int) -> None:
        """A decision is one record: raises LIMIT_EXCEEDED if that would be too long; `settled` entries go in it."""
        size = _FRAME_BYTES + _SETTLED_BYTES * settled
        for placement in self._placements:
            size += _PLACED_BYTES + len(placement.envelope.encode()) + _TARGET_BYTES * len(placement.queues)
            size += _LENGTH_BYTES * len(placement.contents) + sum(map(len, placement.contents))
        if size > records.RECORD_BYTES:
            raise BrokerError(
                Condition.LIMIT_EXCEEDED,
                f"transaction comes to {size} bytes with what it dead-letters, more than the {records.RECORD_BYTES} "
                "of one record; nothing of it was applied",
            )

    def apply(self, *, sealed: bool = False) -> int:
        """Write and apply it. What an answer has to wait for; 0 if nothing of it is durable.

        With `sealed`, what comes stays invisible until the record is on disk (TX-2, TX-8).
        """
        if len(self._placements) == 1 and not (self._removals or self._reservations):
            (lone,) = self._placements
            if len(lone.queues) == 1:
                return place_one(self._host, self._branch, lone.envelope, lone.contents, lone.queues[0], sealed=sealed)
        operations = self.operations({}, {})
        payloads = self._write(operations)
        end = self._host.log.end_lsn if operations else 0
        self.take_effect(payloads, end if sealed else 0)
        return end

    # -- the two halves, for a record that holds several decisions

    def operations(
        self, next_positions: dict[Queue, int], settled: dict[Reservation, int]
    ) -> list[tuple[Kind, Sequence[bytes]]]:
        """Its part of the record. `next_positions` and `settled` go on from one decision to the next."""
        found: list[tuple[Kind, Sequence[bytes]]] = []
        inline = 0
        for placement in self._placements:
            envelope, contents = placement.envelope, placement.contents
            targets = []
            for queue in placement.queues:
                first = next_positions.get(queue, queue.next_position)
                next_positions[queue] = first + len(contents)
                if queue.durable and envelope.durable:
                    targets.append((queue.ident, first))
            if not targets:
                continue
            if placement.prepared is None or self._has_to_be_written_again(placement):
                placement.prepared = None
                if self._short:
                    inline += sum(map(len, contents))
                block = encode_block(self._host.now, envelope, contents)
                if inline <= INLINE_BYTES:
                    head = encode_targets(targets)
                    placement.offset = len(head)
                    found.append((Kind.PUBLISH, [head, *block]))
                    continue
                placement.lsn = self._host.log.append(Kind.PAGE, *block)
            else:
                placement.lsn = placement.prepared.lsn
            found.append((Kind.PLACED, [encode_placed(targets, placement.lsn, len(contents))]))
        for (queue, outcome), entries in self._removals.items():
            positions = durable_positions(queue, entries)
            if positions and not queue.deleted:
                found.append((Kind.SETTLE, [encode_settle(queue.ident, outcome, ranges_of(positions))]))
        for work in self._reservations:
            found += work.operations(settled)
        return found

    def _has_to_be_written_again(self, placement: _Placement) -> bool:
        """Whether the time in the block of a prepared run matters and is not that of the commit.

        A message lives from its commit on, and a stream, which is read by time, has it from then on.
        """
        run = placement.prepared
        if run is None or run.time == self._host.now:
            return False
        return run.envelope.ttl is not None or any(
            queue.is_stream or queue.options.message_ttl is not None for queue in placement.queues
        )

    def take_effect(self, payloads: Sequence[int], end: int) -> None:
        """Messages come and go; `payloads` are the LSNs of the operations. With `end`, what comes is invisible until
        the log is synced so far.
        """
        host, log = self._host, self._host.log
        written = iter(payloads)
        for placement in self._placements:
            envelope, contents, run = placement.envelope, placement.contents, placement.prepared
            lsn, time = placement.lsn, host.now
            if lsn or placement.offset:
                payload = next(written)
                lsn = lsn or payload + placement.offset
                count = len(contents) * sum([queue.durable for queue in placement.queues])
                if run is None:
                    log.retain(lsn, count)
                else:
                    time = run.time
                    run.retained -= count
            for queue in placement.queues:
                kept = list(contents) if queue.is_stream else contents  # a stream is read many times
                queue.enqueue(Run(envelope, 0, time, lsn if queue.durable else 0), kept, end)
                if queue.unsynced:
                    host.seal(queue)
        for (queue, _), entries in self._removals.items():
            release(log, entries)
            if queue.marks:
                queue.unmark([entry.position for entry in entries])
        for work in self._reservations:
            work.apply(log)

    def _write(self, operations: list[tuple[Kind, Sequence[bytes]]]) -> list[int]:
        """Append the record; the LSN of each operation's payload."""
        log = self._host.log
        if not operations:
            return []
        if len(operations) == 1:
            return [_append(log, self._branch, *operations[0])]
        parts, offsets = encode_commit(self._branch, operations)
        lsn = log.append(Kind.COMMIT, *parts)
        return [lsn + offset for offset in offsets]


def _in_blocks(contents: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    begin = size = 0
    for i, content in enumerate(contents, 1):
        size += len(content)
        if size >= BLOCK_BYTES or i == len(contents):
            yield contents[begin:i]
            begin, size = i, 0


def check_room(wanted: Iterable[tuple[Sequence[bytes], Sequence[Queue]]]) -> None:
    """A transaction is all or nothing: raises LIMIT_EXCEEDED if a queue would refuse one of its runs.

    `wanted` has the bodies of each run and the queues that it goes to.
    """
    totals: dict[Queue, list[int]] = {}
    for contents, queues in wanted:
        for queue in queues:
            if queue.refuses:
                total = totals.setdefault(queue, [0, 0])
                total[0] += len(contents)
                total[1] += sum(map(len, contents))
    for queue, (count, size) in totals.items():
        if not queue.accepts(count, size):
            raise BrokerError(
                Condition.LIMIT_EXCEEDED,
                f"queue '{queue.name}' in vhost '{queue.vhost}' is full and refuses {count} messages "
                "of this transaction; nothing of it was applied",
            )


def decide(log: Log, decisions: Sequence[Decision], write: Write) -> None:
    """Several decisions in one record, written by `write`; what comes is invisible until that is on disk."""
    next_positions: dict[Queue, int] = {}
    settled: dict[Reservation, int] = {}
    payloads = write([decision.operations(next_positions, settled) for decision in decisions])
    end = log.end_lsn
    for decision, places in zip(decisions, payloads, strict=True):
        decision.take_effect(places, end)


def place_one(
    host: Host, branch: int, envelope: Envelope, contents: Sequence[bytes], queue: Queue, *, sealed: bool
) -> int:
    """What a decision does that is one run on one queue, in fewer steps: most transactions are that small."""
    lsn = end = 0
    if queue.durable:
        if queue.persists_all:
            envelope = envelope.lasting()
        if envelope.durable:
            log, first = host.log, queue.next_position
            if len(contents) == 1:
                parts, block = encode_single(queue.ident, first, host.now, envelope, contents[0], branch)
                lsn = log.append(Kind.COMMIT if branch else Kind.PUBLISH, *parts) + block
            else:
                head = encode_targets([(queue.ident, first)])
                payload = (head, *encode_block(host.now, envelope, contents))
                lsn = _append(log, branch, Kind.PUBLISH, payload) + len(head)
            log.retain(lsn, len(contents))
            end = log.end_lsn
    queue.enqueue(Run(envelope, 0, host.now, lsn), contents, end if sealed else 0)
    if queue.unsynced:
        host.seal(queue)
    return end


def _append(log: Log, branch: int, kind: Kind, parts: Sequence[bytes]) -> int:
    """Append a record of one operation; the LSN of the operation's payload."""
    if not branch:
        return log.append(kind, *parts)
    head = encode_lone(branch, kind, sum(map(len, parts)))
    return log.append(Kind.COMMIT, head, *parts) + len(head)
