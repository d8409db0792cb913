"""Each record and each live event is told once, in order, also to listeners that come again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from escrowmq.admin.events import LiveEvents
from escrowmq.admin.http.broker import BrokerUnavailable
from escrowmq.admin.http.listing import BadQuery
from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.evidence import feed, log
from escrowmq.evidence.feed import (
    ALARMS,
    CHANGES,
    CONNECTIONS,
    EVERYTHING,
    Feed,
    FeedKinds,
    FeedPlace,
    kinds_of,
    place_of,
)
from escrowmq.journal.errors import JournalDamaged
from tests.unit.evidence.test_log import damaged, journal_with
from tests.unit.inspection.journals import Writer

QUEUES = FeedKinds({Kind.QUEUE_DECLARED}, ())
BEGINNING = FeedPlace(0)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "PERIOD", 0.0)


class Ends:
    """A broker whose log is on disk up to each of `ends` in turn. Then it is gone."""

    def __init__(self, *ends: int) -> None:
        self.ends = list(ends)
        self.live = LiveEvents(lambda: 5)

    async def __call__(self, operation: str, start: str, after: int | None) -> Any:
        assert operation == "event.list"
        if not self.ends:
            raise BrokerUnavailable("gone")
        begin = self.live.last if after is None else after if start == self.live.start else 0
        return {
            "start": self.live.start,
            "last": self.live.last,
            "restarted": after is not None and start != self.live.start,
            "missed": 0,
            "events": self.live.after(begin),
            "synced_lsn": self.ends.pop(0),
        }


def heard(listening: Feed) -> list[feed.FeedEvent]:
    """Return all events until the broker is gone. Raises JournalDamaged."""

    async def collect() -> list[feed.FeedEvent]:
        found: list[feed.FeedEvent] = []
        try:
            async for event in listening.events():
                found += [] if event is None else [event]
        except BrokerUnavailable:
            pass
        return found

    return asyncio.run(collect())


def told(
    folder: Path, ask: Any, place: FeedPlace | None = BEGINNING, kinds: FeedKinds = EVERYTHING
) -> list[feed.FeedEvent]:
    return heard(Feed(folder, ask, place, kinds))


def end_of(folder: Path) -> int:
    return log.after(folder, 0, most=10_000).lines[-1].lsn + (1 << 20)


def declare(writer: Writer, name: str) -> None:
    writer.sync((Kind.QUEUE_DECLARED, [encode_change(vhost="/", id=1, name=name, auto_delete=False, arguments={})]))


def test_every_record_of_the_kinds_is_one_event_whatever_the_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "PIECE", 3)
    folder = journal_with(tmp_path, 10)
    found = told(folder, Ends(*[end_of(folder)] * 20))
    assert [(event.name, event.fields["name"]) for event in found] == [("QUEUE_DECLARED", f"q{i}") for i in range(10)]
    assert [event.place.lsn for event in found] == [
        line.lsn for line in log.after(folder, 0, {Kind.QUEUE_DECLARED}).lines
    ]


def test_many_records_of_other_kinds_are_passed_over_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "LOOKED", 3)
    folder = journal_with(tmp_path, 10)
    part = feed.read(folder, 0, 0, end_of(folder), {Kind.QUEUE_DECLARED})
    assert len(part.lines) <= 3
    assert part.position < end_of(folder)
    assert len(told(folder, Ends(*[end_of(folder)] * 30), kinds=QUEUES)) == 10


def test_feeds_read_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = journal_with(tmp_path, 3)
    reads, at_once, turns = feed.read, [0], threading.Semaphore()

    def watched(*args: Any) -> feed.RecordsRead:
        assert turns.acquire(blocking=False), "two feeds read together"
        try:
            at_once[0] += 1
            return reads(*args)
        finally:
            turns.release()

    monkeypatch.setattr(feed, "read", watched)

    async def scenario() -> None:
        reading = asyncio.Semaphore()
        feeds = [Feed(folder, Ends(*[end_of(folder)] * 2), BEGINNING, QUEUES, reading) for _ in range(8)]
        await asyncio.gather(*(anext(aiter(each.events())) for each in feeds))

    asyncio.run(scenario())
    assert at_once == [8]


def test_a_listener_that_comes_again_gets_what_follows_its_last_event(tmp_path: Path) -> None:
    folder = journal_with(tmp_path, 6)
    end, kinds = end_of(folder), FeedKinds({Kind.QUEUE_DECLARED}, CONNECTIONS)
    broker = Ends(end, end)
    place = FeedPlace(0, broker.live.start, 0)
    for number in range(3):
        broker.live.note("CONNECTION_OPENED", peer=f"10.0.0.1:{number}")
    broker.live.note("ALARM_RAISED", alarm="disk")
    whole = told(folder, broker, place, kinds)
    assert [event.name for event in whole] == ["CONNECTION_OPENED"] * 3 + ["QUEUE_DECLARED"] * 6
    for i, event in enumerate(whole):
        broker.ends = [end, end]
        again = told(folder, broker, place_of(str(event.place)), kinds)
        assert [(each.name, each.fields) for each in again] == [(each.name, each.fields) for each in whole[i + 1 :]]


def test_after_a_restart_records_go_on_and_live_events_begin_again(tmp_path: Path) -> None:
    folder = journal_with(tmp_path, 2)
    broker = Ends(*[end_of(folder)] * 2)
    broker.live.note("CONNECTION_OPENED", peer="10.0.0.1:1")
    before = FeedPlace(log.after(folder, 0, {Kind.QUEUE_DECLARED}).lines[0].lsn, "0123abcd", 70)
    found = told(folder, broker, before)
    assert [event.name for event in found] == ["restarted", "CONNECTION_OPENED", "QUEUE_DECLARED"]
    assert str(found[-1].place) == f"{found[-1].place.lsn}:{broker.live.start}:1"
    broker.ends = [end_of(folder)] * 2
    assert [event.name for event in told(folder, broker, before, QUEUES)] == ["QUEUE_DECLARED"]


def test_a_bare_address_is_a_place_in_the_journal_and_the_present_among_live_events(tmp_path: Path) -> None:
    folder = journal_with(tmp_path, 2)
    broker = Ends(*[end_of(folder)] * 2)
    broker.live.note("CONNECTION_OPENED", peer="10.0.0.1:1")
    assert [event.name for event in told(folder, broker, place_of("0x0"))] == ["QUEUE_DECLARED"] * 2


def test_nothing_is_told_before_it_is_on_disk(tmp_path: Path) -> None:
    folder = journal_with(tmp_path, 4)
    lines = log.after(folder, 0).lines
    names = [event.fields["name"] for event in told(folder, Ends(*[lines[5].lsn] * 3))]
    assert names == [event.fields["name"] for event in told(folder, Ends(*[end_of(folder)] * 3))][:2]


def test_a_feed_begins_with_what_happens_after_it_was_asked_for(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    declare(writer, "before")
    ends = Ends(writer.journal.synced_lsn)
    declare(writer, "after")
    ends.ends.append(writer.journal.synced_lsn)
    assert [event.fields["name"] for event in told(tmp_path, ends, None)] == ["after"]
    writer.journal.close()


def test_a_feed_whose_broker_was_gone_goes_on_where_it_was(tmp_path: Path) -> None:
    folder = journal_with(tmp_path, 4)
    broker = Ends(log.after(folder, 0, {Kind.QUEUE_DECLARED}).lines[2].lsn)
    listening = Feed(folder, broker, BEGINNING, QUEUES)
    first = heard(listening)
    broker.ends = [end_of(folder)] * 2
    assert first
    assert [event.fields["name"] for event in first + heard(listening)] == ["q0", "q1", "q2", "q3"]


def test_a_part_of_the_log_that_is_gone_is_an_event_and_damage_ends_the_feed(tmp_path: Path) -> None:
    folder = journal_with(tmp_path / "gone", 10)
    first, second = sorted(folder.glob("*.log"))[:2]
    first.unlink()
    found = told(folder, Ends(*[end_of(folder)] * 3), FeedPlace(200))
    assert (found[0].name, found[0].fields) == ("gone", {"from": 200, "to": int(second.stem, 16)})
    assert found[-1].fields["name"] == "q9"
    folder = damaged(journal_with(tmp_path / "damaged", 10))
    with pytest.raises(JournalDamaged):
        told(folder, Ends(*[end_of(folder)] * 9))


@pytest.mark.parametrize(
    ("text", "records", "live"),
    [
        ("", CHANGES, CONNECTIONS | ALARMS),
        ("connections", (), CONNECTIONS),
        ("alarm_raised, publish", {Kind.PUBLISH}, {"ALARM_RAISED"}),
        ("Decisions,ALARMS", log.GROUPS["decisions"], ALARMS),
    ],
)
def test_kinds_are_named_alone_and_in_groups(text: str, records: Collection[int], live: Collection[str]) -> None:
    assert kinds_of(text) == FeedKinds(frozenset(records), frozenset(live))


@pytest.mark.parametrize("text", ["x", "1:2", "1:zz:3", "1:ab:-3", "x:ab:3", "", "1:ab:3:4", ":ab:3"])
def test_a_text_that_is_no_identity_is_refused(text: str) -> None:
    with pytest.raises(BadQuery):
        place_of(text)


@pytest.mark.parametrize("place", [FeedPlace(8264), FeedPlace(8264, "5f3c9a1e", 17)])
def test_an_identity_is_read_as_it_was_written(place: FeedPlace) -> None:
    assert place_of(str(place)) == place
