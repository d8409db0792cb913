"""The scan continues after damage, and distinguishes a torn tail from damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from escrowmq.core.records.kinds import Kind
from escrowmq.inspection.scan import Fault, FileReport, Record, gap_faults, scan, verdict
from escrowmq.journal.reader import GapFound, JournalReader
from escrowmq.journal.storage import FileStorage
from tests.unit.inspection.journals import Writer, flip, publish, small_journal


def read(folder: Path, start: int = 0) -> tuple[list[Record], list[FileReport], list[Fault]]:
    """Return the records, the files' reports, and the gaps between them."""
    reader = JournalReader.open(folder)
    items = list(scan(reader, start, lambda _: None))
    reader.close()
    reports = [item for item in items if isinstance(item, FileReport)]
    gaps = [item for item in items if isinstance(item, GapFound)]
    records = [item for item in items if isinstance(item, Record) and item.kind != Kind.DIGEST]
    return records, reports, gap_faults(gaps, reports)


def test_an_undamaged_journal_has_no_findings(tmp_path: Path) -> None:
    lsns = small_journal(tmp_path)
    records, [report], _ = read(tmp_path)
    assert [(record.lsn, record.kind) for record in records] == list(
        zip(lsns, (Kind.USER_SET, Kind.PUBLISH, Kind.PUBLISH, Kind.COMMIT), strict=True)
    )
    assert (report.frames, report.records, report.sealed, report.faults, report.torn) == (3, 6, True, [], "")
    assert report.messages == {"published": 6, "accepted": 3}


def test_the_scan_can_begin_at_an_lsn(tmp_path: Path) -> None:
    lsns = small_journal(tmp_path)
    records, _, _ = read(tmp_path, start=lsns[2])
    assert [record.lsn for record in records] == lsns[2:]


@pytest.mark.rule("DUR-3")
def test_a_flipped_bit_loses_its_frame_and_reading_continues(tmp_path: Path) -> None:
    lsns = small_journal(tmp_path)
    [file] = tmp_path.glob("*.log")
    flip(file, 64 + lsns[1])
    records, [report], _ = read(tmp_path)
    assert [record.lsn for record in records] == [lsns[0], lsns[3]]
    [fault] = report.faults
    assert fault.file == file.name
    assert fault.offset == 64 + lsns[1] - 40
    assert "the frame's checksum does not match (" in fault.why


def test_a_broken_file_header_is_reported(tmp_path: Path) -> None:
    small_journal(tmp_path)
    [file] = tmp_path.glob("*.log")
    flip(file, 20)
    records, [report], _ = read(tmp_path)
    assert not records
    assert "the file header's checksum" in report.faults[0].why
    assert report.size == file.stat().st_size


@pytest.mark.rule("DUR-3")
def test_a_torn_tail_is_not_damage(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    [first] = writer.sync((Kind.PUBLISH, publish([b"a"])))
    [second] = writer.sync((Kind.PUBLISH, publish([b"b" * 100])))
    [file] = tmp_path.glob("*.log")
    with file.open("r+b") as opened:
        opened.truncate(64 + second + 50)
    records, [report], _ = read(tmp_path)
    writer.journal.close()
    assert [record.lsn for record in records] == [first]
    assert not report.faults
    assert report.torn.startswith(f"90 bytes from offset {64 + second - 40}: the frame is cut off")


def test_a_short_file_before_another_is_damage(tmp_path: Path) -> None:
    writer = Writer(tmp_path, segment_bytes=1)
    writer.sync((Kind.PUBLISH, publish([b"a" * 200])))
    writer.sync((Kind.PUBLISH, publish([b"b"])))
    writer.journal.close()
    first, _ = sorted(tmp_path.glob("*.log"))
    with first.open("r+b") as opened:
        opened.truncate(150)
    _, reports, _ = read(tmp_path)
    assert "the frame is cut off" in reports[0].faults[0].why


def test_a_record_of_an_unknown_kind_is_reported_and_the_next_one_is_read(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    lsns = writer.sync((200, [b"?"]), (Kind.SETTLE, [b"short"]), (Kind.PUBLISH, publish([b"a"])))
    writer.journal.close()
    records, [report], _ = read(tmp_path)
    assert [record.lsn for record in records] == lsns[2:]
    assert [fault.why.split(": ", 1)[1][:22] for fault in report.faults] == [
        "unknown record kind 20",
        "not a valid SETTLE rec",
    ]


def test_missing_segments_are_reported_unless_a_snapshot_covers_them(tmp_path: Path) -> None:
    writer = Writer(tmp_path, segment_bytes=1)
    for _ in range(3):
        writer.sync((Kind.PUBLISH, publish([b"a"])))
    writer.journal.close()
    files = sorted(tmp_path.glob("*.log"))
    files[1].unlink()
    _, _, [fault] = read(tmp_path)
    assert fault.file == files[1].name
    assert "is missing" in fault.why
    storage = FileStorage(tmp_path, read_only=True)
    assert "is missing" in (verdict(storage) or "")
    storage.close()


def test_a_snapshot_is_read_too_and_explains_a_gap(tmp_path: Path) -> None:
    writer = Writer(tmp_path, segment_bytes=1)
    for _ in range(3):
        writer.sync((Kind.PUBLISH, publish([b"a"])))
    writer.snapshot()
    writer.sync((Kind.PUBLISH, publish([b"a"])))
    writer.journal.close()
    sorted(tmp_path.glob("*.log"))[1].unlink()
    records, reports, gaps = read(tmp_path)
    assert [report.snapshot for report in reports].count(True) == 1
    assert Kind.COUNTERS in [record.kind for record in records]
    assert not gaps
    assert not [fault for report in reports for fault in report.faults]
