"""A decision: messages that come and entries that go, together, in one record (TX-5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.queues.settlement import durable_positions, release
from escrowmq.core.records import kinds as records
from escrowmq.core.records.blocks import encode_block
from escrowmq.core.records.commits import encode_commit, encode_lone
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.publishing import encode_single, encode_targets
from escrowmq.core.records.references import ranges_of
from escrowmq.core.records.settling import encode_settle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from escrowmq.core.ports import Log
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.reservations.reservation import Reservation, ReservationSettlement


# What a record holds beside envelopes and bodies, at most: for itself, a run, a queue of it, a body, a settlement.
_FRAME_BYTES: Final = 64
_PLACED_BYTES: Final = 32
_TARGET_BYTES: Final = 12
_LENGTH_BYTES: Final = 4
_SETTLED_BYTES: Final = 26


class Host(Protocol):
    """What a decision needs of the broker."""

    now: int
    log: Log

    def seal(self, queue: Queue) -> None:
        """`queue` has runs that wait for the log to be synced."""
        ...


class Decision:
    """Effects that are gathered first, then written as one record and applied at once.

    `branch` is the number of the transaction branch, 0 where there is none (dead-lettering).
    """

    __slots__ = ("_branch", "_host", "_placements", "_removals", "_reservations")

    def __init__(self, host: Host, branch: int = 0) -> None:
        self._host = host
        self._branch = branch
        self._placements: list[tuple[Envelope, Sequence[bytes], Sequence[Queue]]] = []
        self._removals: dict[tuple[Queue, Outcome], list[Entry]] = {}
        self._reservations: list[ReservationSettlement] = []

    def place(self, envelope: Envelope, contents: Sequence[bytes], queues: Sequence[Queue]) -> None:
        """A run comes to `queues`, behind what is there and what was placed before."""
        if not envelope.durable and any(queue.persists_all for queue in queues):
            envelope = envelope.lasting()
        self._placements.append((envelope, contents, queues))

    def remove(self, queue: Queue, entries: list[Entry], outcome: Outcome) -> None:
        """Entries, which the caller has taken out of `queue`, are gone for good."""
        self._removals.setdefault((queue, outcome), []).extend(entries)

    def settle_reservation(self, work: ReservationSettlement) -> None:
        """Held messages are accepted."""
        self._reservations.append(work)

    def check_room(self) -> None:
        """A decision is all or nothing: raises LIMIT_EXCEEDED if one of its queues would refuse a message."""
        wanted: dict[Queue, list[int]] = {}
        for _, contents, queues in self._placements:
            for queue in queues:
                if queue.refuses:
                    total = wanted.setdefault(queue, [0, 0])
                    total[0] += len(contents)
                    total[1] += sum(map(len, contents))
        for queue, (count, size) in wanted.items():
            if not queue.accepts(count, size):
                raise BrokerError(
                    Condition.LIMIT_EXCEEDED,
                    f"queue '{queue.name}' in vhost '{queue.vhost}' is full and refuses {count} messages "
                    "of this transaction; nothing of it was applied",
                )

    def check_size(self, settled: int) -> None:
        """A decision is one record: raises LIMIT_EXCEEDED if that would be too long; `settled` entries go in it."""
        size = _FRAME_BYTES + _SETTLED_BYTES * settled
        for envelope, contents, queues in self._placements:
            size += _PLACED_BYTES + len(envelope.encode()) + _TARGET_BYTES * len(queues)
            size += _LENGTH_BYTES * len(contents) + sum(map(len, contents))
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
        if (
            len(self._placements) == 1
            and not (self._removals or self._reservations)
            and len(self._placements[0][2]) == 1
        ):
            envelope, contents, (queue,) = self._placements[0]
            return place_one(self._host, self._branch, envelope, contents, queue, sealed=sealed)
        host = self._host
        next_positions: dict[Queue, int] = {}
        operations: list[tuple[Kind, Sequence[bytes]]] = []
        block_offsets: list[int | None] = []
        for envelope, contents, queues in self._placements:
            targets = []
            head = b""
            for queue in queues:
                first = next_positions.get(queue, queue.next_position)
                next_positions[queue] = first + len(contents)
                if queue.durable and envelope.durable:
                    targets.append((queue.ident, first))
            if targets:
                head = encode_targets(targets)
                operations.append((Kind.PUBLISH, [head, *encode_block(host.now, envelope, contents)]))
            block_offsets.append(len(head) or None)
        for (queue, outcome), entries in self._removals.items():
            positions = durable_positions(queue, entries)
            if positions and not queue.deleted:
                operations.append((Kind.SETTLE, [encode_settle(queue.ident, outcome, ranges_of(positions))]))
        operations += self.reservation_operations({})
        lsns = iter(self._write(operations))
        end = host.log.end_lsn if operations else 0
        for (envelope, contents, queues), offset in zip(self._placements, block_offsets, strict=True):
            lsn = 0 if offset is None else next(lsns) + offset
            for queue in queues:
                kept = lsn if queue.durable else 0
                if kept:
                    host.log.retain(kept, len(contents))
                queue.enqueue(Run(envelope, 0, host.now, kept), contents, end if sealed else 0)
                if queue.unsynced:
                    host.seal(queue)
        for entries in self._removals.values():
            release(host.log, entries)
        for work in self._reservations:
            work.apply(host.log)
        return end

    def reservation_operations(self, before: dict[Reservation, int]) -> list[tuple[Kind, Sequence[bytes]]]:
        """What settles held messages; `before` is how far others in the same record go."""
        return [operation for work in self._reservations for operation in work.operations(before)]

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
