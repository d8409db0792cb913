"""The table of segments finds addresses, counts live messages, and releases dead segments."""

from __future__ import annotations

import pytest

from escrowmq.journal.errors import JournalDamaged
from escrowmq.journal.segments import Segment, SegmentTable
from tests.unit.journal.journals import memory

FAR = 10_000


def table(*lives: int) -> SegmentTable:
    """Return segments of 100 bytes each, and an empty last one."""
    segments = [Segment(100 * i, 100 * i + 100, live=live, total=10) for i, live in enumerate(lives)]
    made = SegmentTable(segments)
    made.begin(100 * len(lives))
    return made


def dead(made: SegmentTable, *, below: int = FAR, synced: int = FAR, now: int = FAR, keep: int = 0) -> list[int]:
    return [segment.first_lsn for segment in made.take_dead(below, synced, now, keep)]


def test_find_searches_by_address() -> None:
    made = table(1, 1, 1)
    for lsn, first in ((0, 0), (99, 0), (100, 100), (250, 200), (300, 300), (999, 300)):
        segment = made.find(lsn)
        assert segment is not None
        assert segment.first_lsn == first
    assert SegmentTable([]).find(5) is None


def test_find_returns_none_for_a_deleted_segment() -> None:
    made = table(1, 0, 1)
    assert dead(made) == [100]
    assert made.find(150) is None
    assert made.find(50) is not None
    assert len(made) == 3


def test_only_dead_segments_below_the_snapshot_are_deleted() -> None:
    assert dead(table(0, 1, 0, 0), below=300) == [0, 200]


def test_the_last_file_stays() -> None:
    assert dead(table(0, 0), now=200, synced=200) == [0]


def test_a_segment_is_deleted_only_after_the_settlements_are_on_disk() -> None:
    made = table(0, 1, 1)
    assert dead(made, now=500, synced=400) == []
    assert dead(made, now=600, synced=499) == []
    assert dead(made, now=700, synced=500) == [0]


def test_a_segment_that_had_living_messages_again_waits_for_a_later_sync() -> None:
    made = table(0, 1, 1)
    segment = made.find(0)
    assert segment is not None
    assert dead(made, now=500, synced=400) == []
    segment.live = 1
    assert dead(made, now=600, synced=600) == []
    segment.live = 0
    assert dead(made, now=700, synced=600) == []
    assert dead(made, now=800, synced=700) == [0]


def test_the_newest_dead_segments_are_kept_for_audit() -> None:
    made = table(0, 0, 0, 1)
    assert dead(made, keep=250) == [0]
    assert dead(made, keep=250) == []
    assert dead(made, keep=99) == [100, 200]


def test_the_total_of_the_previous_segment_is_known() -> None:
    made = table(1, 2)
    assert made.before_current == 10
    assert SegmentTable([Segment(0, 0)]).before_current == 0


def test_holes_without_living_messages_are_forgotten_after_replay() -> None:
    made = SegmentTable([Segment(0, 100, missing=True), Segment(100, 200, known_total=7, total=3)])
    made.drop_holes()
    assert [(segment.first_lsn, segment.total) for segment in made] == [(100, 7)]


@pytest.mark.rule("DUR-3")
def test_living_messages_in_a_hole_are_damage() -> None:
    made = SegmentTable([Segment(0, 100, missing=True, live=2), Segment(100, 200)])
    with pytest.raises(JournalDamaged, match="from LSN 0x0 to 0x64 is missing, with 2 live messages in it"):
        made.drop_holes()


def test_reading_an_address_without_a_segment_is_refused() -> None:
    made = table(0, 1)
    dead(made)
    for lsn in (50, 195):
        with pytest.raises(JournalDamaged, match="no segment holds"):
            made.read(memory(), lsn, 10)


def test_a_file_of_which_few_messages_live_is_named_once() -> None:
    made = table(3, 2, 10, 0)
    assert [made.take_read() for _ in range(3)] == ["0000000000000064.log", "000000000000012c.log", ""]
    segment = made.find(0)
    assert segment is not None
    segment.live = 1
    assert [made.take_read() for _ in range(2)] == ["0000000000000000.log", ""]


def test_the_file_that_is_written_is_not_named() -> None:
    made = table()
    assert made.current.live == 0
    assert made.take_read() == ""
