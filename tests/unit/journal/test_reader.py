"""Reading without owning the journal: beside a running writer, in pieces, from an address on, and after damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from escrowmq.journal import format as fmt
from escrowmq.journal.errors import JournalDamaged
from escrowmq.journal.memory import MemoryStorage
from escrowmq.journal.reader import DamageFound, FileFound, Finding, FrameFound, GapFound, JournalReader, RecordFound
from escrowmq.journal.removals import REMOVED
from tests.unit.journal.journals import (
    FIRST_FRAME,
    FRAME,
    fill,
    flush,
    lsn_of_frame,
    memory,
    on_disk,
    reopen,
    snapshot,
    start,
)

FIRST = fmt.segment_name(0)


def payloads(reader: JournalReader, lsn: int = 0, *, synced_only: bool = False) -> list[int]:
    """Return the first byte of each frame, except those that note a deletion."""
    frames = reader.frames(lsn, synced_only=synced_only)
    return [frame.payload[0] for frame in frames if frame.kinds[0] != REMOVED]


def shape(findings: list[Finding]) -> list[str]:
    letters = {FileFound: "f", FrameFound: "F", RecordFound: "r", DamageFound: "D", GapFound: "G"}
    return ["".join(letters[type(finding)] for finding in findings)]


def test_frames_follow_a_running_writer() -> None:
    storage = memory()
    journal = start(storage)
    reader = JournalReader(storage)
    assert payloads(reader) == []
    fill(journal, 2)
    frames = list(reader.frames())
    assert [frame.payload[0] for frame in frames] == [0, 1]
    at = frames[-1].end_lsn
    assert payloads(reader, at) == []
    fill(journal, 5)
    assert payloads(reader, at) == [0, 1, 2, 3, 4]
    assert payloads(reader, at - 1) == [1, 0, 1, 2, 3, 4]
    journal.close()
    assert payloads(reader, at) == [0, 1, 2, 3, 4]


def test_who_goes_on_after_a_frame_does_not_read_those_before_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = memory()
    journal = start(storage, segment_bytes=1 << 20)
    fill(journal, 9)
    reader = JournalReader(storage)
    frames = list(reader.frames())
    walked: list[int] = []
    checked = fmt.body_is_whole

    def noted(header: fmt.FrameHeader, body: memoryview) -> bool:
        walked.append(header.lsn)
        return checked(header, body)

    monkeypatch.setattr(fmt, "body_is_whole", noted)
    assert payloads(reader, frames[5].end_lsn) == [6, 7, 8]
    assert walked == [frame.lsn for frame in frames[6:]]
    assert payloads(reader, frames[5].end_lsn - 1) == [5, 6, 7, 8]


def test_the_last_frame_may_not_be_synced() -> None:
    storage = memory()
    journal = start(storage, segment_bytes=1 << 20)
    reader = JournalReader(storage)
    fill(journal, 3)
    assert payloads(reader, synced_only=True) == [0, 1]
    journal.close()
    assert payloads(reader, synced_only=True) == [0, 1, 2]


def test_a_segment_sealed_during_the_read_is_not_damaged() -> None:
    storage = memory()
    journal = start(storage, segment_bytes=1 << 20)
    fill(journal, 3)
    frames = JournalReader(storage).frames()
    findings = JournalReader(storage).findings()
    assert next(frames).payload[0] == 0
    next(findings)
    journal.close()
    assert [frame.payload[0] for frame in frames] == [1, 2]
    assert shape(list(findings)) == ["FrFrrFrr"]


def test_a_torn_tail_ends_the_frames_and_is_found() -> None:
    storage = memory()
    fill(start(storage), 2)
    storage.flip(FIRST, 8 * (64 + FIRST_FRAME + 50))
    reader = JournalReader(storage)
    assert payloads(reader) == [0]
    findings = list(reader.findings())
    assert shape(findings) == ["fFrD"]
    damage = findings[-1]
    assert isinstance(damage, DamageFound)
    assert damage.tail
    assert (damage.file, damage.offset, damage.why) == (FIRST, 64 + FIRST_FRAME, "the frame's checksum does not match")


def test_damage_in_the_middle_stops_programs_but_not_operators() -> None:
    storage = memory()
    fill(start(storage, segment_bytes=1 << 20), 4)
    storage.flip(FIRST, 8 * (64 + FIRST_FRAME + 50))
    storage.flip(FIRST, 8 * (64 + lsn_of_frame(2)))
    reader = JournalReader(storage)
    with pytest.raises(JournalDamaged):
        payloads(reader)
    findings = list(reader.findings())
    assert shape(findings) == ["fFrDFrr"]
    damage = findings[3]
    assert isinstance(damage, DamageFound)
    assert not damage.tail
    assert (damage.offset, damage.size) == (64 + FIRST_FRAME, 2 * FRAME)


def test_damage_before_a_later_segment() -> None:
    storage = memory()
    fill(start(storage, segment_bytes=700), 4)
    storage.flip(FIRST, 8 * (64 + FIRST_FRAME + 50))
    reader = JournalReader(storage)
    with pytest.raises(JournalDamaged, match="checksum"):
        payloads(reader)
    findings = list(reader.findings())
    assert shape(findings) == ["fFrDfFrrFrr"]
    assert isinstance(findings[3], DamageFound)
    assert not findings[3].tail


def test_broken_headers_and_foreign_versions_are_findings() -> None:
    storage = memory()
    fill(start(storage, segment_bytes=300), 3)
    first, second, _ = storage.names()
    storage.flip(first, 3)
    storage.flip(second, 8 * 8 + 3)
    findings = list(JournalReader(storage).findings())
    assert shape(findings) == ["DDfFrr"]
    assert [f.why for f in findings if isinstance(f, DamageFound)][1].endswith(
        f"this program reads versions up to {fmt.VERSION}"
    )
    with pytest.raises(JournalDamaged, match="wrong magic"):
        payloads(JournalReader(storage))


def test_records_have_their_address() -> None:
    storage = memory()
    journal = start(storage)
    journal.append(3, b"one")
    lsn = journal.append(4, b"two")
    flush(journal, 77)
    found = [finding for finding in JournalReader(storage).findings() if isinstance(finding, RecordFound)]
    assert [(r.kind, bytes(r.payload), r.time_us) for r in found] == [(3, b"one", 77), (4, b"two", 77)]
    assert found[1].lsn == lsn
    assert storage.read(found[1].file, found[1].offset, 3) == b"two"


def with_hole() -> tuple[MemoryStorage, int]:
    storage = memory()
    journal = start(storage, segment_bytes=300)
    lsns = fill(journal, 4)
    journal.release(lsns[1], 1)
    snapshot(journal, (9, b"state"))
    return storage, lsns[2]


def test_snapshots_and_gaps_are_findings() -> None:
    storage, _ = with_hole()
    findings = list(JournalReader(storage).findings())
    assert shape(findings) == ["fFrfFrGfFrrfFrrfFrr"]  # the last frame notes the deletion, as does the snapshot
    assert findings[6] == GapFound(FIRST_FRAME, lsn_of_frame(2))
    assert shape(list(JournalReader(storage).findings(lsn_of_frame(3)))) == ["fFrfFrrfFrr"]


def test_resuming_in_a_deleted_part_of_the_log_is_refused() -> None:
    storage, third = with_hole()
    reader = JournalReader(storage)
    assert payloads(reader) == [0, 2, 3]
    assert payloads(reader, third) == [2, 3]
    storage.delete(FIRST)
    assert payloads(reader) == [2, 3]
    with pytest.raises(JournalDamaged, match="no longer exists"):
        payloads(reader, 10)


def test_a_segment_deleted_meanwhile_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = memory()
    fill(start(storage, segment_bytes=300), 3)
    names = storage.names()
    storage.delete(names[1])
    monkeypatch.setattr(storage, "names", lambda: names)
    reader = JournalReader(storage)
    assert payloads(reader) == [0, 2]
    assert shape(list(reader.findings())) == ["fFrfFrr"] or shape(list(reader.findings())) == ["fFrGfFrr"]
    assert len(reader.splits(1)) == 2


def test_splits_cover_the_log_once() -> None:
    storage = memory()
    journal = start(storage, segment_bytes=400_000)
    fill(journal, 60, 20_000)
    journal.append(1, b"unsealed")
    flush(journal)
    reader = JournalReader(storage)
    splits = reader.splits(100_000)
    assert len(splits) > 8
    assert splits[-1].end_lsn is None
    whole = [frame.lsn for frame in reader.frames()]
    assert [frame.lsn for split in splits for frame in reader.read_split(split)] == whole


def test_a_damaged_split_is_refused() -> None:
    storage = memory()
    journal = start(storage, segment_bytes=1 << 20)
    fill(journal, 3)
    journal.close()
    storage.flip(FIRST, 8 * (64 + FIRST_FRAME + 50))
    reader = JournalReader(storage)
    (split,) = reader.splits(1)
    with pytest.raises(JournalDamaged, match="checksum"):
        list(reader.read_split(split))


def test_directories_and_single_files_can_be_read(tmp_path: Path) -> None:
    journal = start(on_disk(tmp_path), segment_bytes=700)
    fill(journal, 4)
    snapshot(journal, (9, b"state"))
    data = tmp_path / "data"
    before = {path.name: path.read_bytes() for path in data.iterdir()}
    reader = JournalReader.open(data)
    assert payloads(reader) == [0, 1, 2, 3]
    assert reader.names(fmt.TYPE_SNAPSHOT) == [fmt.snapshot_name(lsn_of_frame(4))]
    reader.close()
    one = JournalReader.open(data / fmt.segment_name(lsn_of_frame(2)))
    assert payloads(one) == [2, 3]
    one.close()
    journal.close()
    assert set(before) == {path.name for path in data.iterdir()}
    journal, _ = reopen(on_disk(tmp_path))
    journal.close()
