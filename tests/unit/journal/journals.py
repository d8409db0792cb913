"""Helpers for tests of the journal: a journal in memory, filled and written."""

from __future__ import annotations

import random
from pathlib import Path

from escrowmq.journal.journal import Journal
from escrowmq.journal.memory import MemoryStorage
from escrowmq.journal.storage import FileStorage, Storage

IDENTITY = b"0123456789abcdef"
FRAME = 384
"""The bytes of a frame with a record of 300 bytes and the digest of the frame before."""
FIRST_FRAME = 360
"""The bytes of such a frame without a digest, as the first one of a journal."""
Replayed = list[tuple[int, int, bytes, int]]


def memory() -> MemoryStorage:
    return MemoryStorage(random.Random(1))


def start(
    storage: Storage, *, segment_bytes: int = 1000, batch_bytes: int = 1 << 20, keep_dead_bytes: int = 0
) -> Journal:
    """Open and replay a journal, ignoring its records."""
    journal, _ = reopen(storage, segment_bytes=segment_bytes, batch_bytes=batch_bytes, keep_dead_bytes=keep_dead_bytes)
    return journal


def reopen(
    storage: Storage, *, segment_bytes: int = 1000, batch_bytes: int = 1 << 20, keep_dead_bytes: int = 0
) -> tuple[Journal, Replayed]:
    """Open and replay a journal. Returns it with its records as bytes."""
    journal = Journal.open(
        storage,
        segment_bytes=segment_bytes,
        batch_bytes=batch_bytes,
        keep_dead_bytes=keep_dead_bytes,
        journal_id=IDENTITY,
    )
    return journal, [(lsn, kind, bytes(payload), time) for lsn, kind, payload, time in journal.replay()]


def flush(journal: Journal, now_us: int = 7) -> None:
    """Write everything that is pending."""
    while (batch := journal.take_batch(now_us)) is not None:
        batch.write()
        journal.batch_done(batch)


def fill(journal: Journal, count: int, size: int = 300) -> list[int]:
    """Write `count` batches of one record with one live message each. Returns their LSNs."""
    lsns = []
    for i in range(count):
        lsns.append(journal.append(1, bytes([i % 256]) * size))
        journal.retain(lsns[-1], 1)
        flush(journal)
    return lsns


def tidy(journal: Journal) -> None:
    """Run all housekeeping that is due."""
    while True:
        work = journal.housekeeping()
        if work is not None:
            work()
        elif journal.removal_lsn is not None:
            flush(journal)
        else:
            return


def snapshot(journal: Journal, *records: tuple[int, bytes]) -> None:
    """Write a snapshot of these records, and install it."""
    taken = journal.begin_snapshot(records, 9)
    taken.write()
    journal.snapshot_done(taken)
    flush(journal)
    tidy(journal)


def on_disk(path: Path) -> FileStorage:
    return FileStorage(path / "data")


def lsn_of_frame(n: int) -> int:
    """Return the address of the frame with the number `n`, if all have a record of 300 bytes."""
    return FIRST_FRAME + (n - 1) * FRAME if n else 0
