"""A decision: the messages that queues receive and the entries that they lose, in one record (TX-5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.counters import count_left
from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.queues.placing import WIDE
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
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from escrowmq.core.branches.xa_branch import PreparedRun
    from escrowmq.core.ports import Log
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.records.branches import Operations
    from escrowmq.core.reservations.reservation import Reservation, ReservationSettlement

INLINE_BYTES: Final = 64 * 1024
"""Bytes of blocks that the record of an outcome holds for one prepared branch. Further blocks precede it in records of
their own, so that the record stays within its limit for any number of branches decided at once."""
BLOCK_BYTES: Final = 16 * 1024 * 1024
"""Bytes of bodies in one such record of dead letters. One more message may exceed it."""

# Upper bounds, in bytes, of the parts of a record other than envelopes and bodies: its frame, and the cost of each run,
# of each queue of a run, of each body and of each settlement.
_FRAME_BYTES: Final = 64
_PLACED_BYTES: Final = 32
_TARGET_BYTES: Final = 12
_LENGTH_BYTES: Final = 4
_SETTLED_BYTES: Final = 26


if TYPE_CHECKING:
    Write = Callable[[list[Operations]], list[list[int]]]
    """Append the record with the operations of each decision; return the LSNs of their payloads."""


class Placing(Protocol):
    """A receiver of runs that are added to queues."""

    def place(self, envelope: Envelope, contents: Sequence[bytes], queues: Sequence[Queue]) -> None:
        """Add a run to `queues`, after the existing messages and the runs placed earlier."""
        ...


class Recorded(Protocol):
    """A change of other state that is part of a decision: it is in the same record, and takes effect with it."""

    def operations(self) -> list[tuple[Kind, Sequence[bytes]]]:
        """Return the operations to write."""
        ...

    def apply(self, end: int, synced: int) -> None:
        """Change the state, after the record is written up to the LSN `end`. The log is synced up to `synced`."""
        ...

    @property
    def bytes(self) -> int:
        """An upper bound, in bytes, of its part of the record."""
        ...


class Host(Protocol):
    """The part of the engine that a decision needs."""

    now: int
    log: Log

    def seal(self, queue: Queue) -> None:
        """Note that `queue` has runs that are invisible until the log is synced."""
        ...

    def show(self, queues: Collection[Queue]) -> None:
        """Let runs that `queues` keep back become visible, in pieces, unless they wait for a sync."""
        ...


@dataclass(slots=True)
class _Placement:
    """A run that is added to queues.

    Its block is already in the log at `lsn`, or begins at `offset` of its operation. With neither, the run is only in
    memory.
    """

    envelope: Envelope
    contents: Sequence[bytes]
    queues: Sequence[Queue]
    prepared: PreparedRun | None = None
    lsn: int = 0
    offset: int = 0


class OutcomeSize:
    """Upper bounds, in bytes, of the record of a decision. It receives the runs that the decision adds."""

    __slots__ = ("blocks", "places")

    def __init__(self) -> None:
        self.blocks = self.places = 0

    def place(self, envelope: Envelope, contents: Sequence[bytes], queues: Sequence[Queue]) -> None:
        """Add a run."""
        self.blocks += len(envelope.encode()) + _LENGTH_BYTES * len(contents) + sum(map(len, contents))
        self.places += _PLACED_BYTES + _TARGET_BYTES * len(queues)

    def bytes(self, settled: int) -> int:
        """Return the bound for a prepared branch with `settled` settled entries (`Decision.outcome_bytes`)."""
        return _FRAME_BYTES + _SETTLED_BYTES * settled + self.places + min(self.blocks, INLINE_BYTES)

    def check(self, settled: int, more: int = 0) -> None:
        """Raises LIMIT_EXCEEDED if the decision, with `settled` settled entries and `more` bytes, does not fit into one
        record.
        """
        size = _FRAME_BYTES + _SETTLED_BYTES * settled + self.places + self.blocks + more
        if size > records.RECORD_BYTES:
            raise too_long(size)


class Decision:
    """Effects that are gathered first, then written as one record, then applied. Nothing in memory changes before the
    log has accepted the record.

    `branch` is the number of the transaction branch, or 0 for dead-lettering, which has none. A decision on a prepared
    branch is `short`: its record refers to blocks elsewhere in the log, since many decisions may share the record.
    """

    __slots__ = ("_branch", "_host", "_placements", "_recorded", "_removals", "_reservations", "_short")

    def __init__(self, host: Host, branch: int = 0, *, short: bool = False) -> None:
        self._host = host
        self._branch = branch
        self._short = short
        self._placements: list[_Placement] = []
        self._removals: dict[tuple[Queue, Outcome], list[Entry]] = {}
        self._reservations: list[ReservationSettlement] = []
        self._recorded: list[Recorded] = []

    def place(self, envelope: Envelope, contents: Sequence[bytes], queues: Sequence[Queue]) -> None:
        """Add a run to `queues`, after the existing messages and the runs placed earlier."""
        if not envelope.durable and any(queue.persists_all for queue in queues):
            envelope = envelope.lasting()
        for part in _in_blocks(contents) if self._short else (contents,):
            self._placements.append(_Placement(envelope, part, queues))

    def place_prepared(self, run: PreparedRun, queues: Sequence[Queue]) -> None:
        """Add the run of a prepared branch. If it is durable, its block is in a PREPARE record."""
        self._placements.append(_Placement(run.envelope, run.contents, queues, run))

    def remove(self, queue: Queue, entries: list[Entry], outcome: Outcome) -> None:
        """Record that `entries`, which the caller has taken out of `queue`, have left it for good."""
        self._removals.setdefault((queue, outcome), []).extend(entries)

    def settle_reservation(self, work: ReservationSettlement) -> None:
        """Record that reserved messages are accepted."""
        self._reservations.append(work)

    def record(self, work: Recorded) -> None:
        """Make a change of other state part of this decision, such as the delivery tags of its messages (SET-8)."""
        self._recorded.append(work)

    @property
    def places(self) -> int:
        """Return the number of runs times their queues."""
        return sum([len(placement.queues) for placement in self._placements])

    def outcome_bytes(self, settled: int, *, read: bool = True) -> int:
        """Return an upper bound, in bytes, of the part that the decision has in the record of the outcome, once its
        branch is prepared. Further bodies are in records of their own. Without
        `read`, the bodies are not read from the log.
        """
        return self._size(read=read).bytes(settled)

    def _size(self, *, read: bool = True) -> OutcomeSize:
        size = OutcomeSize()
        for placement in self._placements:
            if read:
                size.place(placement.envelope, placement.contents, placement.queues)
            else:
                size.blocks = INLINE_BYTES
                size.places += _PLACED_BYTES + _TARGET_BYTES * len(placement.queues)
        return size

    def check_size(self, settled: int) -> None:
        """Raises LIMIT_EXCEEDED if the decision, with `settled` settled entries, does not fit into one record."""
        self._size().check(settled, sum([work.bytes for work in self._recorded]))

    def apply(self, *, sealed: bool = False) -> int:
        """Write and apply the decision. Return the LSN up to which the log must be synced before the answer, or 0 if
        nothing in it is durable.

        With `sealed`, the added messages stay invisible until the record is on disk (TX-2, TX-8).
        """
        if len(self._placements) == 1 and not (self._removals or self._reservations or self._recorded):
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
        """Return the decision's part of the record. `next_positions` and `settled` are carried from one decision to the
        next in the same record.
        """
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
            if placement.prepared is None or placement.prepared.has_to_be_written_again(self._host.now):
                placement.prepared = None
                block = encode_block(self._host.now, envelope, contents)
                if self._short:
                    inline += sum(map(len, block))
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
        for recorded in self._recorded:
            found += recorded.operations()
        return found

    def take_effect(self, payloads: Sequence[int], end: int) -> None:
        """Apply the decision in memory; `payloads` are the LSNs of its operations. With `end`, the added messages are
        invisible until the log is synced up to that LSN.
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
            if len(placement.queues) > WIDE:
                self._keep_back(placement, lsn, time, end)
                continue
            for queue in placement.queues:
                kept = list(contents) if queue.is_stream else contents  # a stream is read many times
                queue.enqueue(Run(envelope, 0, time, lsn if queue.durable else 0), kept, end)
                if queue.unsynced:
                    host.seal(queue)
        for (queue, outcome), entries in self._removals.items():
            count_left(queue, outcome, len(entries))
            release(log, entries)
            if queue.marks:
                queue.unmark([entry.position for entry in entries])
        for work in self._reservations:
            work.apply(log)
        for recorded in self._recorded:
            recorded.apply(log.end_lsn, log.synced_lsn)

    def _keep_back(self, placement: _Placement, lsn: int, time: int, end: int) -> None:
        """Add a run to very many queues. They get it in pieces, but no message can overtake it."""
        envelope, contents = placement.envelope, placement.contents
        for queue in placement.queues:
            kept = list(contents) if queue.is_stream else contents
            queue.keep_back(Run(envelope, 0, time, lsn if queue.durable else 0), kept, end)
        self._host.show(placement.queues)

    def _write(self, operations: list[tuple[Kind, Sequence[bytes]]]) -> list[int]:
        """Append the record; return the LSN of each operation's payload."""
        log = self._host.log
        if not operations:
            return []
        if len(operations) == 1:
            return [_append(log, self._branch, *operations[0])]
        parts, offsets = encode_commit(self._branch, operations)
        lsn = log.append(Kind.COMMIT, *parts)
        return [lsn + offset for offset in offsets]


def too_long(size: int) -> BrokerError:
    """Return the error for a transaction that does not fit into one record."""
    return BrokerError(
        Condition.LIMIT_EXCEEDED,
        f"transaction comes to {size} bytes with what it dead-letters, more than the {records.RECORD_BYTES} "
        "of one record; nothing of it was applied",
    )


def _in_blocks(contents: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    begin = size = 0
    for i, content in enumerate(contents, 1):
        size += len(content)
        if size >= BLOCK_BYTES or i == len(contents):
            yield contents[begin:i]
            begin, size = i, 0


def check_room(wanted: Iterable[tuple[Sequence[bytes], Sequence[Queue]]]) -> None:
    """Raises LIMIT_EXCEEDED if a queue would refuse a run, since a transaction takes effect completely or not at all.

    `wanted` holds the bodies and the queues of each run.
    """
    totals: dict[Queue, list[int]] = {}
    for contents, queues in wanted:
        for queue in queues:
            if queue.refuses:
                total = totals.setdefault(queue, [0, 0])
                total[0] += len(contents)
                total[1] += sum(map(len, contents))
    check_totals(totals)


def check_totals(totals: Mapping[Queue, Sequence[int]]) -> None:
    """Raises LIMIT_EXCEEDED if a queue would refuse the messages of a transaction: their number and their size."""
    for queue, (count, size) in totals.items():
        if queue.refuses and not queue.accepts(count, size):
            raise BrokerError(
                Condition.LIMIT_EXCEEDED,
                f"queue '{queue.name}' in vhost '{queue.vhost}' is full and refuses {count} "
                f"message{'s' * (count != 1)} of this transaction; nothing of it was applied",
            )


def gather(decisions: Sequence[Decision]) -> list[tuple[Decision, Operations]]:
    """Return several decisions that share a record, with the part of each. Raises LogUnreadable if content that they
    need cannot be read.
    """
    next_positions: dict[Queue, int] = {}
    settled: dict[Reservation, int] = {}
    return [(decision, decision.operations(next_positions, settled)) for decision in decisions]


def decide(log: Log, gathered: Sequence[tuple[Decision, Operations]], write: Write) -> None:
    """Apply several decisions in one record, which `write` appends. The added messages are invisible until the record
    is on disk.
    """
    payloads = write([operations for _, operations in gathered])
    end = log.end_lsn
    for (decision, _), places in zip(gathered, payloads, strict=True):
        decision.take_effect(places, end)


def place_one(
    host: Host, branch: int, envelope: Envelope, contents: Sequence[bytes], queue: Queue, *, sealed: bool
) -> int:
    """Apply a decision of one run on one queue, in fewer steps than `Decision`. Most transactions are that small."""
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
    """Append a record of one operation; return the LSN of the operation's payload."""
    if not branch:
        return log.append(kind, *parts)
    head = encode_lone(branch, kind, sum(map(len, parts)))
    return log.append(Kind.COMMIT, head, *parts) + len(head)
