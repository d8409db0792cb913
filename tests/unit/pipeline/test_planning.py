"""Planning a run works on a journal whose broker is running, and refuses what is not a journal."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from escrowmq.journal.storage import FileStorage
from escrowmq.pipeline.planning import NoJournalError, plan
from tests.pipeline.journals import Scribe


def test_a_snapshot_after_the_last_frame_read_replaces_missing_segments(tmp_path: Path) -> None:
    with Scribe(tmp_path, segment_bytes=4096) as scribe:
        scribe.queue(1, "q")
        for position in range(1, 401, 20):
            scribe.journal.retain(scribe.publish(1, position, 20), 20)
            scribe.frame()
        scribe.publish(1, 401)
        lsn = scribe.snapshot({})
        (tmp_path / f"{0:016x}.log").unlink(missing_ok=True)
        found = plan(tmp_path)
        assert found.held_back
        assert found.end < lsn
        assert found.holes
        assert found.newest_snapshot == lsn


def test_a_frame_written_while_it_is_read_is_not_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first read returns half of a frame. Before the second read the frame is complete, and another follows it."""
    with Scribe(tmp_path) as scribe:
        scribe.queue(1, "q")
        scribe.frame()
        half = scribe.publish(1, 1, 100)
        scribe.frame()
        scribe.publish(1, 101, 100)
        scribe.frame()
        read, seen = FileStorage.read, list[int]()

        def early(storage: FileStorage, name: str, offset: int, length: int) -> bytes:
            data = read(storage, name, offset, length)
            if length > 4096 and not seen:
                seen.append(offset)
                cut = 64 + half + 10 - offset
                return data[:cut] + bytes(len(data) - cut)
            return data

        monkeypatch.setattr(FileStorage, "read", early)
        found = plan(tmp_path)
        assert seen
        assert found.damage == []
        assert found.end < half


def test_files_of_an_unknown_version_or_without_a_valid_segment_are_no_journal(tmp_path: Path) -> None:
    with Scribe(tmp_path) as scribe:
        scribe.queue(1, "q")
    (segment,) = tmp_path.glob("*.log")
    data = bytearray(segment.read_bytes())
    data[8] = 99
    data[60:64] = zlib.crc32(data[:60]).to_bytes(4, "little")
    segment.write_bytes(data)
    with pytest.raises(NoJournalError, match="has journal format version 99"):
        plan(tmp_path)
    segment.write_bytes(b"garbage" * 100)
    with pytest.raises(NoJournalError, match=f"no segment can be read: {segment.name}: "):
        plan(tmp_path)
