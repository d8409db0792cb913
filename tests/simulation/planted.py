"""Planted bugs that the simulator must find. Each patches one place of the broker with a typical mistake."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from escrowmq.core.branches.decision import Decision
from escrowmq.core.engine import Engine, Receipt
from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues import settlement
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.dead_letters import DeadLetters
from escrowmq.core.queues.fifo import Fifo
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.queues.queue import Queue
from escrowmq.core.queues.sealed import SealedRuns
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.moves import Move, encode_moves
from escrowmq.core.records.settling import encode_settle
from escrowmq.core.recovery import relocation
from escrowmq.core.recovery.replay import Recovery
from escrowmq.journal import format as fmt
from escrowmq.journal import journal, recovery
from escrowmq.journal.errors import JournalFailed
from escrowmq.journal.storage import Storage
from escrowmq.wire.amqp091.channel import Channel
from escrowmq.wire.amqp091.connection import Connection
from tests.simulation import planted_faults

_put = Connection.put
_enqueue = Queue.enqueue
_enqueue_sealed = Queue.enqueue_sealed
_requeue = Engine.requeue
_publish = Engine._publish


def answer_before_sync(self: Connection, channel: int, data: bytes, after: int = 0) -> None:
    _put(self, channel, data)


def no_crc_check(header: fmt.FrameHeader, body: bytes | memoryview) -> bool:
    return len(body) == header.body_size


def no_truncation(storage: Storage, *, chain_contents: bool = False) -> recovery.Found:
    """Continue after the garbage, like a program that opens its log for appending."""
    found = recovery.examine(storage, chain_contents=chain_contents)
    report = found.report
    if report.cut_file is not None and found.last_file is not None:
        end = report.cut_offset + report.cut_bytes - fmt.FILE_HEADER_SIZE
        found.end_lsn = found.last_file.origin + end + fmt.pad(end)
    return found


def refusal_ignored(self: Engine, envelope: Envelope, contents: list[bytes], queues: Sequence[Queue]) -> Receipt:
    """Confirm messages whose record the journal has refused."""
    try:
        return _publish(self, envelope, contents, queues)
    except JournalFailed:
        return Receipt()


def two_records(self: Decision, operations: list[tuple[Kind, Sequence[bytes]]]) -> list[int]:
    return [self._host.log.append(kind, *parts) for kind, parts in operations]


def ack_record_lost(queue: int, outcome: Outcome, ranges: Sequence[Any]) -> bytes:
    """Omit the last of several ranges from the record."""
    return encode_settle(queue, outcome, ranges[: max(1, len(ranges) - 1)])


def change_not_noted(self: Queue) -> None:
    """A queue that was captured for a snapshot changes, and is not captured again."""


def requeue_at_tail(self: Fifo, entries: list[Entry]) -> None:
    self.head.extend(entries)


def visible_at_once(self: Queue, run: Run, bodies: list[bytes], after: int = 0) -> None:
    _enqueue(self, run, bodies)


def large_commit_visible_at_once(self: Queue, sealed: SealedRuns, after: int) -> None:
    _enqueue_sealed(self, sealed, 0)


def settle_not_replayed(self: Recovery, lsn: int, payload: bytes) -> None:
    """Ignore settlements during recovery."""


def forgetful_moves(moves: Sequence[Move]) -> bytes:
    """Copy the last of several positions, but omit it from the record."""
    return encode_moves(
        [move._replace(positions=move.positions[:-1], starts=move.starts[:-1]) for move in moves]
        if sum(len(move.positions) for move in moves) > 1
        else moves
    )


def not_redelivered(self: Engine, consumer: Consumer, entries: list[Entry]) -> None:
    _requeue(self, consumer, entries)
    for entry in entries:
        entry.deliveries = 0


def rollback_forgets(self: Channel, consumer: Consumer, tags: Sequence[int], entries: Sequence[Entry]) -> None:
    """Forget the deliveries that were settled in a transaction that is rolled back."""


def prefetch_by_two(self: Consumer, count: int, entries: list[Entry] | None = None) -> None:
    self.credit.spend(count - count // 2)


def dead_lettered_in_two_records(
    self: DeadLetters, queue: Queue, entries: list[Entry], outcome: Outcome, modification: object = None
) -> None:
    host = self._host
    letters = Decision(host)
    self.place(letters, queue, entries, outcome)
    letters.apply()
    host.log.append(Kind.PAGE, bytes(6000))  # ends the batch between the two records
    leaving = Decision(host)
    leaving.remove(queue, entries, outcome)
    leaving.apply()


PLANTED: Final[dict[str, dict[tuple[Any, str], Any]]] = {
    "answer before the sync": {(Connection, "put"): answer_before_sync},
    "no CRC check": {(fmt, "body_is_whole"): no_crc_check},
    "no truncation of a torn tail": {(journal, "examine"): no_truncation},
    "a commit written as two records": {(Decision, "_write"): two_records},
    "ack record lost": {(settlement, "encode_settle"): ack_record_lost},
    "requeue at the tail": {(Fifo, "put_back"): requeue_at_tail},
    "transaction visible at once": {(Queue, "enqueue"): visible_at_once},
    "large commit visible at once": {(Queue, "enqueue_sealed"): large_commit_visible_at_once},
    "settle replay forgotten": {(Recovery, "_settle"): settle_not_replayed},
    "relocation forgets a position": {(relocation, "encode_moves"): forgetful_moves},
    "requeued and not marked": {(Engine, "requeue"): not_redelivered},
    "a snapshot misses a change": {(Queue, "change"): change_not_noted},
    "rollback forgets deliveries": {(Channel, "keep"): rollback_forgets},
    "prefetch counted by half": {(Consumer, "spend"): prefetch_by_two},
    "a refused append ignored": {(Engine, "_publish"): refusal_ignored},
    "dead-lettered in two records": {(DeadLetters, "send"): dead_lettered_in_two_records},
    "a footer before the sync of the frames": planted_faults.FOOTER,
    **planted_faults.OF_DISKS,
    **planted_faults.OF_CLOCKS,
}
"""The patches of each bug, by class or module and attribute."""
