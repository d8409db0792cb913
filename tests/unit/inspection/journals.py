"""Journals for the tests of the inspection: written by the real journal, then damaged on purpose."""

from __future__ import annotations

from pathlib import Path

from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.blocks import encode_block
from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.commits import encode_commit
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.publishing import encode_targets
from escrowmq.core.records.references import Range
from escrowmq.core.records.settling import encode_settle
from escrowmq.journal.journal import Journal
from escrowmq.journal.storage import FileStorage

MICROSECONDS = 1_700_000_000_000_000


def publish(bodies: list[bytes], queue: int = 1, first: int = 0) -> list[bytes]:
    """Return the payload of a PUBLISH record."""
    return [
        encode_targets([(queue, first)]),
        *encode_block(1_700_000_000_000, Envelope("ex", "key", durable=True), bodies),
    ]


class Writer:
    """Writes records to a journal. Each `sync` writes one frame."""

    def __init__(self, folder: Path, segment_bytes: int = 64 << 20) -> None:
        self.journal = Journal.open(FileStorage(folder), segment_bytes=segment_bytes)
        for _ in self.journal.replay():
            pass

    def sync(self, *records: tuple[int, list[bytes]]) -> list[int]:
        """Append the records and write them as one frame. Returns their LSNs."""
        lsns = [self.journal.append(kind, *parts) for kind, parts in records]
        batch = self.journal.take_batch(MICROSECONDS)
        assert batch
        batch.write()
        self.journal.batch_done(batch)
        return lsns

    def snapshot(self) -> None:
        """Write a snapshot with one record, and install it."""
        snapshot = self.journal.begin_snapshot([(Kind.COUNTERS, encode_change(queues=1))], MICROSECONDS)
        snapshot.write()
        self.journal.snapshot_done(snapshot)
        work = self.journal.housekeeping()
        assert work
        work()


def small_journal(folder: Path) -> list[int]:
    """Write three frames: a change, two publishes, a commit with a publish and a settlement.

    Returns the records' LSNs.
    """
    writer = Writer(folder)
    operations = [
        (Kind.PUBLISH, publish([b"c"], first=5)),
        (Kind.SETTLE, [encode_settle(1, Outcome.ACCEPTED, [Range(0, 3)])]),
    ]
    lsns = writer.sync((Kind.USER_SET, [encode_change(name="ann", password_hash="argon2")]))
    lsns += writer.sync((Kind.PUBLISH, publish([b"a", b"bb"])), (Kind.PUBLISH, publish([b"x"] * 3, first=2)))
    lsns += writer.sync((Kind.COMMIT, encode_commit(7, operations)[0]))
    writer.journal.close()
    return lsns


def flip(file: Path, offset: int) -> None:
    """Change one byte."""
    data = bytearray(file.read_bytes())
    data[offset] ^= 0x40
    file.write_bytes(data)
