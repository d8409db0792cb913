"""Bulk reading yields the same frames as reading one by one, for any window size, and no damaged ones."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from escrowmq.journal import format as fmt
from escrowmq.journal.bulk import Damaged, Window
from escrowmq.journal.errors import JournalDamaged
from escrowmq.journal.frames import Frame
from escrowmq.journal.memory import MemoryStorage
from escrowmq.journal.reader import JournalReader
from tests.unit.journal.journals import fill, memory, start

FIRST = fmt.segment_name(0)


def payloads(found: Iterable[Window]) -> list[bytes]:
    return [window.data[at : at + size] for window in found for at, _, _, size, _ in window.frames]


def sealed(count: int) -> tuple[MemoryStorage, JournalReader, int, list[Frame]]:
    """Return a journal of one segment: its reader, its end, and its frames."""
    storage = memory()
    journal = start(storage, segment_bytes=1 << 20)
    fill(journal, count)
    journal.close()
    reader = JournalReader(storage)
    (split,) = reader.splits(1 << 20)
    assert split.end_lsn is not None
    return storage, reader, split.end_lsn, list(reader.read_split(split))


@pytest.mark.parametrize("size", [1, 400, 1000, 1 << 20])
def test_windows_hold_the_frames_that_the_walk_finds(size: int) -> None:
    _, reader, end, frames = sealed(7)
    windows = list(reader.windows(FIRST, 0, end, size))
    assert payloads(windows) == [bytes(frame.payload) for frame in frames]
    assert [(lsn, time, count) for window in windows for _, lsn, time, _, count in window.frames] == [
        (frame.lsn, frame.time_us, len(frame.kinds)) for frame in frames
    ]


@pytest.mark.parametrize("size", [400, 1 << 20])
def test_a_broken_frame_is_reported_after_the_frames_before_it(size: int) -> None:
    storage, reader, end, frames = sealed(4)
    storage.flip(FIRST, 8 * (frames[2].lsn + fmt.FILE_HEADER_SIZE + 50))
    windows = reader.windows(FIRST, 0, end, size)
    found = [next(windows) for _ in range(2 if size == 400 else 1)]
    assert len(payloads(found)) == 2
    with pytest.raises(JournalDamaged, match="checksum"):
        next(windows)


@pytest.mark.parametrize("size", [1, 400, 1 << 20])
@pytest.mark.parametrize("broken", [0, 2, 3])
def test_broken_frames_are_skipped_and_reported(size: int, broken: int) -> None:
    storage, reader, end, frames = sealed(4)
    wanted = [bytes(frame.payload) for i, frame in enumerate(frames) if i != broken]
    storage.flip(FIRST, 8 * (frames[broken].lsn + fmt.FILE_HEADER_SIZE + 50))
    skipped: list[Damaged] = []
    assert payloads(reader.windows(FIRST, 0, end, size, skipped)) == wanted
    assert [(each.lsn, each.end) for each in skipped] == [(frames[broken].lsn, frames[broken].end_lsn)]
    assert "checksum" in skipped[0].why


def test_segments_are_listed_with_their_first_addresses() -> None:
    storage = memory()
    journal = start(storage)
    fill(journal, 3)
    journal.close()
    reader = JournalReader(storage)
    assert reader.segment_starts() == [(reader.file(name).origin, name) for name in reader.names(fmt.TYPE_SEGMENT)]
