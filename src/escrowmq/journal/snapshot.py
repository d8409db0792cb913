"""Snapshots: files of records that rebuild the state as of one LSN."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Iterable, Iterator
from typing import Final

from escrowmq.journal import format as fmt
from escrowmq.journal.errors import SnapshotFailed
from escrowmq.journal.frames import JournalFile
from escrowmq.journal.storage import Storage
from escrowmq.journal.writer import FileWriter

FRAME_BYTES: Final = 1 << 20
"""The payload size of one frame of a snapshot, in bytes."""

Record = tuple[int, bytes]
"""Kind and payload of a record."""


class Snapshot:
    """A snapshot that is being written. It contains the effects of everything below `lsn`, and of nothing above."""

    def __init__(self, storage: Storage, journal_id: bytes, lsn: int, now_us: int, records: Iterable[Record]) -> None:
        self.lsn = lsn
        self.written = False
        self.record_count = 0
        self._storage = storage
        self._header = fmt.FileHeader(fmt.TYPE_SNAPSHOT, journal_id, lsn, now_us)
        self._records: Iterable[Record] | None = records
        self._name = fmt.snapshot_name(lsn)

    def write(self) -> None:
        """Write and sync everything under a temporary name. Blocks; may run on any one thread.

        Exceptions of the record iterator are raised unchanged.

        Raises:
            SnapshotFailed: The file could not be written.
        """
        records, self._records = self._records, None
        if records is None:
            raise SnapshotFailed("a snapshot can be written only once")
        file = FileWriter(self._storage, self._name + ".tmp", self._header)
        try:
            file.create()
            for payload, offsets, kinds in _frames(records):
                file.append(self._header.created_us, [payload], offsets, kinds)
                self.record_count += len(kinds)
            file.seal(0)
        except BaseException as error:
            with contextlib.suppress(OSError):
                self._storage.delete(file.name)
            if isinstance(error, OSError):
                raise SnapshotFailed(f"snapshot {self._name} cannot be written: {error}") from error
            raise
        self.written = True

    def install(self) -> None:
        """Rename the file durably to its final name; from then on recovery starts from it. Raises OSError."""
        self._storage.replace(self._name + ".tmp", self._name)

    @property
    def name(self) -> str:
        """The name of its file once installed."""
        return self._name


def _frames(records: Iterable[Record]) -> Iterator[tuple[bytes, array[int], bytearray]]:
    parts: list[bytes] = []
    offsets, kinds, fill = array("I", (0,)), bytearray(), 0
    for kind, payload in records:
        if fill and fill + len(payload) > FRAME_BYTES:
            yield b"".join(parts), offsets, kinds
            parts, offsets, kinds, fill = [], array("I", (0,)), bytearray(), 0
        parts.append(payload)
        fill += len(payload)
        offsets.append(fill)
        kinds.append(kind)
    if kinds:
        yield b"".join(parts), offsets, kinds


def read_snapshot(file: JournalFile) -> Iterator[tuple[int, memoryview, int]]:
    """Yield kind, payload and time (µs) of each record of a snapshot that `recovery.check_snapshot` has accepted."""
    assert file.footer is not None
    for frame in file.walk(end=file.footer.end_lsn, check=False):
        for _, kind, payload in frame.records():
            yield kind, payload, frame.time_us
