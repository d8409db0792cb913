"""Write journals record by record with the real journal and the real encoders.

`python -m tests.pipeline.journals DIR MESSAGES [RUN] [varied]` writes a large journal.
"""

from __future__ import annotations

import random
import sys
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.blocks import encode_block
from escrowmq.core.records.changes import decode_change, encode_change
from escrowmq.core.records.commits import decode_commit, encode_commit
from escrowmq.core.records.deliveries import Delivered, Part, encode_deliveries
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.publishing import decode_publish, encode_targets
from escrowmq.core.records.queue_state import QueueState, encode_queue_state
from escrowmq.core.records.references import Range, ranges_of
from escrowmq.core.records.settling import encode_settle
from escrowmq.journal.journal import Journal
from escrowmq.journal.reader import JournalReader
from escrowmq.journal.storage import FileStorage
from escrowmq.wire.amqp091.keyed import KEYED, join
from escrowmq.wire.amqp091.packed import pack

START_US = 1_700_000_000_000_000
Operation = tuple[Kind, Sequence[bytes]]


class Scribe:
    """Writes a journal. Records become durable when `frame` is called, which also advances the clock."""

    def __init__(self, folder: Path, *, segment_bytes: int = 1 << 20, journal_id: bytes = b"0123456789abcdef") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.now_us = START_US
        self.journal = Journal.open(FileStorage(folder), segment_bytes=segment_bytes, journal_id=journal_id)
        self.branch = 0
        self.names: dict[object, tuple[int, bytes]] = {}
        """The records of the names that exist. Snapshots contain them."""
        for _, kind, payload, _ in self.journal.replay():
            if kind in (Kind.QUEUE_DECLARED, Kind.QUEUE_DELETED):
                key = ("queue", decode_change(payload)["name"])
                self.names[key] = (kind, bytes(payload))
                if kind == Kind.QUEUE_DELETED:
                    del self.names[key]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write the last frame, and close the journal as a clean stop does."""
        self.frame()
        self.journal.close()

    def frame(self, ms: int = 1) -> None:
        """Write the records appended since the last call as one frame, `ms` milliseconds later."""
        self.now_us += ms * 1000
        batch = self.journal.take_batch(self.now_us)
        while batch is not None:
            batch.write()
            self.journal.batch_done(batch)
            batch = self.journal.take_batch(self.now_us)

    def append(self, kind: Kind, *parts: bytes) -> int:
        """Append any record, and return its LSN."""
        return self.journal.append(kind, *parts)

    def queue(self, ident: int, name: str, **arguments: object) -> int:
        """Declare a durable queue. Returns the record's LSN."""
        fields = {"vhost": "/", "id": ident, "name": name, "auto_delete": False, "arguments": arguments}
        return self.declare(Kind.QUEUE_DECLARED, ("queue", name), **fields)

    def declare(self, kind: Kind, key: object, /, **fields: object) -> int:
        """Add a name, which snapshots contain from now on. Returns the record's LSN."""
        self.names[key] = (kind, encode_change(**fields))
        return self.append(kind, self.names[key][1])

    def forget(self, kind: Kind, key: object, /, **fields: object) -> int:
        """Remove a name, which snapshots no longer contain. Returns the record's LSN."""
        del self.names[key]
        return self.append(kind, encode_change(**fields))

    def delete(self, ident: int, name: str) -> int:
        """Delete a queue. Returns the record's LSN."""
        del self.names["queue", name]
        return self.append(Kind.QUEUE_DELETED, encode_change(vhost="/", id=ident, name=name))

    def published(
        self,
        targets: Sequence[tuple[int, int]],
        bodies: Sequence[bytes] = (b"body",),
        *,
        key: str = "q",
        priority: int = 0,
    ) -> Operation:
        """Return a publish operation; `targets` are pairs (queue, first position)."""
        envelope = Envelope("", key, protocol=91, durable=True, priority=priority)
        block = encode_block(self.now_us // 1000, envelope, bodies)
        return Kind.PUBLISH, [encode_targets(targets), *block]

    def settled(self, queue: int, positions: Sequence[int], outcome: Outcome = Outcome.ACCEPTED) -> Operation:
        """Return a settlement operation."""
        return Kind.SETTLE, [encode_settle(queue, outcome, ranges_of(positions))]

    def publish(self, queue: int, first: int, count: int = 1) -> int:
        """Publish a run to a queue, outside any branch. Returns the record's LSN."""
        kind, parts = self.published([(queue, first)], [b"body"] * count)
        return self.append(kind, *parts)

    def settle(self, queue: int, positions: Sequence[int], outcome: Outcome = Outcome.ACCEPTED) -> int:
        """Settle messages of a queue, outside any branch. Returns the record's LSN."""
        kind, parts = self.settled(queue, positions, outcome)
        return self.append(kind, *parts)

    def deliver(self, queue: int, positions: Sequence[int], flags: int = 0, consumer: str = "a client") -> int:
        """Record the delivery of messages to a client. Returns the record's LSN."""
        part = Part(consumer, flags, ranges_of(positions))
        return self.append(Kind.DELIVERIES, encode_deliveries(Delivered(queue, self.now_us // 1000, [part])))

    def snapshot(self, held: Mapping[int, Sequence[tuple[int, int]]], *others: tuple[int, bytes]) -> int:
        """Take a snapshot in which queues contain these ranges (first position, count), with other records after them.
        Returns the snapshot's LSN.
        """
        self.frame()
        records = []
        where = self.blocks()
        for queue, ranges in held.items():
            rows = [(i, *where.get((queue, i), (0, 0))) for first, count in ranges for i in range(first, first + count)]
            firsts, blocks = (array("Q", [row[i] for row in rows]) for i in (0, 1))
            counts, indexes = array("I", [1] * len(rows)), array("I", [row[2] for row in rows])
            state = QueueState(queue, 1 << 20, 0, firsts, blocks, counts, indexes, [])
            records.append((int(Kind.QUEUE_STATE), b"".join(encode_queue_state(state))))
        return self.snapshot_of([*records, *others])

    def snapshot_of(self, records: Sequence[tuple[int, bytes]]) -> int:
        """Take a snapshot with these records. Returns the snapshot's LSN."""
        taken = self.journal.begin_snapshot([*self.names.values(), *records], self.now_us)
        taken.write()
        self.journal.snapshot_done(taken)
        self.tidy()
        return taken.lsn

    def tidy(self) -> None:
        """Install a snapshot, and delete the segments that no message keeps."""
        while (work := self.journal.housekeeping()) is not None or self.journal.removal_lsn is not None:
            if work is None:
                self.frame(0)
            else:
                work()

    def blocks(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Return the address of each message in the log: (queue, position) to (LSN of the block, index in it)."""
        found: dict[tuple[int, int], tuple[int, int]] = {}
        reader = JournalReader.open(self.folder)
        for lsn, kind, payload in (record for frame in reader.frames() for record in frame.records()):
            operations = [(kind, 0, payload)] if kind != Kind.COMMIT else decode_commit(payload)[1]
            for what, at, data in operations:
                if what == Kind.PUBLISH:
                    run = decode_publish(data)
                    for target in run.targets:
                        some = {(target.queue, target.first + i): (lsn + at + run.block, i) for i in range(run.length)}
                        found = {**some, **found}
        reader.close()
        return found

    def commit(self, *operations: Operation, branch: int | None = None) -> int:
        """Commit a branch; without a number, a new branch with the next number. Returns the record's LSN."""
        self.branch += branch is None
        parts, _ = encode_commit(self.branch if branch is None else branch, operations)
        return self.append(Kind.COMMIT, *parts)


def _varied(first: int, count: int, body: bytes) -> list[bytes]:
    """Return keyed contents: each message has its own routing key, ids, timestamp and headers."""
    found = []
    for i in range(first, first + count):
        key = b"order.%d" % (i % 5000)
        name, other = b"m-%012d" % i, b"c-%09d" % (i // 3)
        table = b"\x05stateS\x00\x00\x00\x03new\x05shardI%s\x05traceS\x00\x00\x00\x10%016x" % (
            (i % 64).to_bytes(4, "big"),
            i * 2654435761 % (1 << 64),
        )
        props = b"\x34\xc0%s%s\x02%s%s%s%s%s" % (
            len(table).to_bytes(4, "big"),
            table,
            bytes((len(other),)),
            other,
            bytes((len(name),)),
            name,
            (1_700_000_000 + i // 1000).to_bytes(8, "big"),
        )
        found.append(join(key, pack(props, body)))
    return found


def large(
    folder: Path,
    messages: int,
    run: int = 1,
    *,
    queues: int = 8,
    body: int = 100,
    seed: int = 1,
    varied: bool = False,
) -> None:
    """Write a journal of `messages` messages in runs of `run`, some in branches, all settled a little later. With
    `varied`, they are such as applications send: each has its own routing key and properties.
    """
    rng = random.Random(seed)
    bodies = [rng.randbytes(body)] * run
    with Scribe(folder, segment_bytes=64 << 20) as scribe:
        for ident in range(1, queues + 1):
            scribe.queue(ident, f"orders.{ident}")
        ends, done = [1] * queues, [1] * queues
        envelopes = [
            Envelope("events", "", protocol=KEYED, durable=True)
            if varied
            else Envelope("", f"orders.{i}", b"\x10\x00\x02", protocol=91, durable=True)
            for i in range(1, queues + 1)
        ]
        if varied:
            fields = {"durable": True, "auto_delete": False, "internal": False, "arguments": {}}
            scribe.declare(Kind.EXCHANGE_DECLARED, "events", vhost="/", name="events", kind="topic", **fields)
        written = turn = 0
        while written < messages:
            turn += 1
            q = turn % queues
            some: list[Operation] = []
            for _ in range(max(1, 250 // run)):
                contents = _varied(written, run, bodies[0]) if varied else bodies
                block = encode_block(scribe.now_us // 1000, envelopes[q], contents)
                some.append((Kind.PUBLISH, [encode_targets([(q + 1, ends[q])]), *block]))
                ends[q] += run
                written += run
            if turn % 4:
                for kind, parts in some:
                    scribe.append(kind, *parts)
            else:
                scribe.commit(*some)
            late = (q + 3) % queues
            count = ends[late] - done[late]
            if count > 500:
                settled = encode_settle(late + 1, Outcome.ACCEPTED, [Range(done[late], count - 250)])
                scribe.append(Kind.SETTLE, settled)
                done[late] += count - 250
            if turn % 2 == 0:
                scribe.frame(rng.randint(1, 3))


if __name__ == "__main__":
    of_run = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    large(Path(sys.argv[1]), int(sys.argv[2]), of_run, varied="varied" in sys.argv[4:])
