"""The timeline of the journal: frames, starts, snapshots, compactions, decisions."""

from __future__ import annotations

from pathlib import Path

import pytest

from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.kinds import STARTED, Kind
from escrowmq.evidence import log, timeline
from escrowmq.evidence.timeline import FILTERS, TimelinePage
from tests.unit.evidence.test_log import damaged, journal_with
from tests.unit.inspection.journals import MICROSECONDS, Writer, publish


def operated(operation: str, **arguments: object) -> tuple[int, list[bytes]]:
    fields = {"operation": operation, "arguments": arguments, "by": "ann", "why": "it is late", "time_ms": 1}
    return Kind.OPERATED, [encode_change(**fields)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A journal with a start, two publishes in a frame, a decision, what an operator did, and a snapshot."""
    writer = Writer(tmp_path)
    writer.sync(operated(STARTED, version="1.2.3"))
    writer.sync((Kind.PUBLISH, publish([b"a"])), (Kind.PUBLISH, publish([b"b"], first=1)))
    writer.sync((Kind.HALF_DECIDED, [b"x"]), operated("queue.purge", name="q"))
    writer.snapshot()
    writer.sync((Kind.PUBLISH, publish([b"c"], first=2)))
    writer.journal.close()
    return tmp_path


def shown(page: TimelinePage) -> list[str]:
    return [moment.what for moment in page.moments]


def test_everything_is_in_the_order_of_addresses(folder: Path) -> None:
    page = timeline.after(folder, 0)
    assert shown(page) == [
        *("segment", "frame", "start", "frame", "frame", "decision", "operator", "snapshot", "frame")
    ]
    assert [moment.lsn for moment in page.moments] == sorted(moment.lsn for moment in page.moments)
    frames = [moment for moment in page.moments if moment.what == "frame"]
    assert frames[1].text == "2 publish"
    assert frames[0].end_lsn == frames[1].lsn
    assert frames[0].time_us == MICROSECONDS
    assert timeline.newest(folder).moments == page.moments


def test_what_a_record_says_is_shown_and_the_record_opens(folder: Path) -> None:
    moments = {moment.what: moment for moment in timeline.after(folder, 0).moments}
    assert moments["start"].fields is not None
    assert moments["start"].fields["arguments"] == {"version": "1.2.3"}
    assert moments["operator"].fields is not None
    assert (moments["operator"].fields["by"], moments["operator"].opens) == ("ann", True)
    record = log.record_at(folder, moments["operator"].lsn)
    assert isinstance(record, log.Line)
    assert record.kind == "OPERATED"


@pytest.mark.parametrize("wanted", FILTERS)
def test_a_filter_shows_its_moments_only(folder: Path, wanted: str) -> None:
    everything = timeline.after(folder, 0).moments
    expected = [moment for moment in everything if moment.what in FILTERS[wanted]]
    assert expected
    assert timeline.after(folder, 0, wanted).moments == expected
    assert timeline.newest(folder, wanted, most=1).moments == expected[-1:]


def test_pages_follow_each_other_without_a_gap(tmp_path: Path) -> None:
    folder = journal_with(tmp_path, 10)
    whole = timeline.after(folder, 0, most=1000).moments
    assert len({moment.text for moment in whole if moment.what == "segment"}) > 1
    found: list[timeline.TimelineMoment] = []
    start: int | None = 0
    while start is not None:
        page = timeline.after(folder, start, most=3)
        found += page.moments
        start = page.next_lsn
    assert found == whole
    for most in (1, 5, 20):
        assert timeline.newest(folder, most=most).moments == whole[-most:]


def test_a_search_is_given_up_after_many_entries(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "SCANNED", 3)
    page = timeline.after(folder, 0, "snapshots")
    assert (page.moments, page.complete) == ([], False)
    assert page.next_lsn is not None
    assert not timeline.newest(folder, "starts").complete


def test_damage_is_always_shown(tmp_path: Path) -> None:
    folder = damaged(journal_with(tmp_path, 10))
    (part,) = log.after(folder, 0).damage
    (moment,) = timeline.after(folder, 0, "starts").moments
    assert (moment.lsn, moment.what) == (part.lsn, "damage")


def test_an_unreadable_record_does_not_hide_the_others(folder: Path) -> None:
    (decision,) = [moment for moment in timeline.after(folder, 0).moments if moment.what == "decision"]
    assert decision.fields is not None
    assert "unreadable" in decision.fields
