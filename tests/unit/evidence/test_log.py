"""The journal as operators read it: pages of records by address, the newest ones, and single ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.evidence import log
from escrowmq.journal.format import FILE_HEADER_SIZE, parse_name, snapshot_name
from tests.unit.inspection.journals import Writer, flip, publish


def journal_with(folder: Path, pairs: int, kind: int = Kind.PUBLISH) -> Path:
    """Write a journal of small segments, with declarations and other records in turn."""
    writer = Writer(folder, segment_bytes=700)
    for number in range(pairs):
        declared = encode_change(vhost="/", id=number, name=f"q{number}", auto_delete=False, arguments={})
        writer.sync((Kind.QUEUE_DECLARED, [declared]), (kind, publish([b"x" * 50], queue=number)))
    writer.journal.close()
    return folder


def damaged(folder: Path, number: int = 2) -> Path:
    """Damage the second frame of a segment."""
    segment = sorted(folder.glob("*.log"))[number]
    parsed = parse_name(segment.name)
    assert parsed is not None
    second = log.after(folder, parsed[1]).lines[2]
    flip(segment, second.lsn - parsed[1] + FILE_HEADER_SIZE)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal of several segments, with ten publishes and ten declarations in turn."""
    return journal_with(tmp_path_factory.mktemp("journal"), 10)


def lsns(page: log.LogPage) -> list[int]:
    return [line.lsn for line in page.lines]


def test_pages_follow_each_other_without_a_gap(folder: Path) -> None:
    whole = log.after(folder, 0, most=1000)
    assert (len(whole.lines), whole.next_lsn, whole.complete) == (20, None, True)
    assert len({line.file for line in whole.lines}) > 1
    found: list[int] = []
    start: int | None = 0
    while start is not None:
        page = log.after(folder, start, most=3)
        found += lsns(page)
        start = page.next_lsn
    assert found == lsns(whole)


def test_only_the_wanted_kinds_are_shown(folder: Path) -> None:
    page = log.after(folder, 0, log.GROUPS["names"], most=4)
    assert {line.kind for line in page.lines} == {"QUEUE_DECLARED"}
    assert page.next_lsn == log.after(folder, 0, log.GROUPS["names"], most=5).lines[-1].lsn
    assert page.lines[0].fields["name"] == "q0"
    digests = log.after(folder, 0, log.GROUPS["maintenance"]).lines
    assert [line.kind for line in digests] == ["DIGEST"] * 9


@pytest.mark.parametrize("most", [1, 5, 19, 20, 50])
def test_the_newest_are_the_last_ones_in_order(folder: Path, most: int) -> None:
    whole = lsns(log.after(folder, 0, most=1000))
    assert lsns(log.newest(folder, most=most)) == whole[-most:]
    declared = lsns(log.after(folder, 0, {Kind.QUEUE_DECLARED}, most=1000))
    assert lsns(log.newest(folder, {Kind.QUEUE_DECLARED}, most=most)) == declared[-most:]


def test_a_search_is_given_up_after_many_records(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "SCANNED", 5)
    page = log.after(folder, 0, frozenset())
    assert (page.lines, page.complete) == ([], False)
    assert page.next_lsn == log.after(folder, 0, most=5).next_lsn
    assert not log.newest(folder, frozenset()).complete


def test_one_record_is_found_by_its_address(folder: Path) -> None:
    line = log.after(folder, 0).lines[3]
    assert log.record_at(folder, line.lsn) == line
    assert log.record_at(folder, line.lsn + 1) is None
    assert log.record_at(folder, 1 << 40) is None


def test_a_record_that_cannot_be_described_is_shown_with_the_reason(tmp_path: Path) -> None:
    folder = journal_with(tmp_path, 1, kind=200)
    line = log.after(folder, 0).lines[-1]
    assert (line.kind, line.fields) == ("200", {"unreadable": "unknown record kind 200"})


def test_damage_is_an_entry_between_the_records(tmp_path: Path) -> None:
    whole = log.after(journal_with(tmp_path, 10), 0).lines
    damaged(tmp_path)
    page = log.after(tmp_path, 0)
    (part,) = page.damage
    lost = [line for line in whole if part.lsn <= line.lsn < part.lsn + part.size]
    assert lost
    assert page.lines == [line for line in whole if line not in lost]
    assert [entry.lsn for entry in page.entries] == sorted(entry.lsn for entry in page.entries)
    assert log.newest(tmp_path).entries == page.entries
    assert log.record_at(tmp_path, lost[0].lsn) == part


def test_pages_around_damage_follow_each_other_without_a_gap(tmp_path: Path) -> None:
    damaged(journal_with(tmp_path, 10))
    found: list[int] = []
    start: int | None = 0
    while start is not None:
        page = log.after(tmp_path, start, frozenset({Kind.PUBLISH}), most=1)
        found += [entry.lsn for entry in page.entries]
        start = page.next_lsn
    assert found == [entry.lsn for entry in log.after(tmp_path, 0, frozenset({Kind.PUBLISH})).entries]


def test_damage_before_the_wanted_address_is_left_out(tmp_path: Path) -> None:
    damaged(journal_with(tmp_path, 10))
    (part,) = log.after(tmp_path, 0).damage
    assert log.after(tmp_path, part.lsn + part.size).damage == []
    assert log.after(tmp_path, part.lsn + part.size - 1).damage == [part]


def test_a_segment_that_is_missing_is_damage_unless_a_snapshot_covers_it(tmp_path: Path) -> None:
    journal_with(tmp_path, 10)
    segments = sorted(tmp_path.glob("*.log"))
    starts = [parse_name(each.name) or (0, 0) for each in segments]
    segments[2].unlink()
    (part,) = log.after(tmp_path, 0).damage
    assert (part.lsn, part.lsn + part.size) == (starts[2][1], starts[3][1])
    assert log.newest(tmp_path).damage == [part]
    (tmp_path / snapshot_name(starts[3][1])).touch()
    assert log.after(tmp_path, 0).damage == []


def test_a_segment_whose_header_is_damaged_is_one_damaged_part(tmp_path: Path) -> None:
    journal_with(tmp_path, 10)
    segment = sorted(tmp_path.glob("*.log"))[2]
    flip(segment, 0)
    (part,) = log.after(tmp_path, 0).damage
    assert part.file == segment.name


def test_a_write_that_has_not_finished_is_no_damage(tmp_path: Path) -> None:
    whole = log.after(journal_with(tmp_path, 3), 0).lines
    last = max(tmp_path.glob("*.log"))
    last.write_bytes(last.read_bytes() + b"EMQF\x00\x01")
    assert (log.after(tmp_path, 0).lines, log.after(tmp_path, 0).damage) == (whole, [])


def test_an_end_is_not_part_of_the_page(folder: Path) -> None:
    whole = lsns(log.after(folder, 0, most=1000))
    page = log.after(folder, whole[3], end=whole[6])
    assert (lsns(page), page.next_lsn) == (whole[3:6], None)


def test_every_kind_is_in_a_group() -> None:
    assert frozenset().union(*log.GROUPS.values()) == frozenset(Kind)
    assert Kind.PUBLISH in log.GROUPS["messages"]
    assert Kind.PROGRESS in log.GROUPS["other"]


def test_the_journal_has_several_segments(folder: Path) -> None:
    assert sum(parse_name(each.name) is not None for each in folder.iterdir()) > 2
