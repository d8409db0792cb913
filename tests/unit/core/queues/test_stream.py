"""Streams: each reader has its own offset, and retention deletes by age and size."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escrowmq.core.budget import STREAMED, TURN
from escrowmq.core.messages.entry import Entry
from escrowmq.core.queues.availability import RETRY_MS
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.queue import Queue
from escrowmq.core.queues.stream import StreamQueue
from escrowmq.core.topology.arguments.consumer import ConsumerOptions, OffsetKind, StreamOffset
from tests.unit.core.site import Sink, Site


def stream(site: Site, **arguments: object) -> StreamQueue:
    options = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    queue = site.queue("s", {"x-queue-type": "stream", **options})
    assert isinstance(queue, StreamQueue)
    return queue


def read(site: Site, queue: StreamQueue, kind: OffsetKind, value: int = 0, credit: int = 1000) -> Sink:
    options = ConsumerOptions(stream_offset=StreamOffset(kind, value))
    _, sink = site.consume(queue, credit=credit, options=options)
    site.turn()
    return sink


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % i for i in range(first, first + count)]


def fill(site: Site, runs: int = 4) -> None:
    """Publish runs of five messages, one run per second."""
    for i in range(runs):
        site.publish("s", *numbered(5, 5 * i))
        site.after(1000)


def test_the_size_is_unknown_after_a_restart_until_the_old_messages_have_left() -> None:
    site = Site()
    queue = stream(site, max_age="3s")
    site.publish("s", b"12345")
    site.turn()
    assert queue.size == 5
    site = site.restart()
    queue = stream(site, max_age="3s")
    assert queue.size is None
    site.publish("s", b"123")
    site.turn()
    assert queue.size is None
    site.after(5000)
    assert queue.size == 3


def test_a_stream_that_is_limited_in_size_knows_it_after_a_restart() -> None:
    site = Site()
    stream(site, max_length_bytes=100)
    site.publish("s", b"12345")
    site.turn()
    assert stream(site.restart(), max_length_bytes=100).size == 5


def test_an_empty_stream_knows_its_size_after_a_restart() -> None:
    site = Site()
    stream(site)
    site.turn()
    assert stream(site.restart()).size == 0


class TestOffsets:
    @pytest.mark.parametrize(
        ("kind", "value", "expected"),
        [
            ("first", 0, 0),
            ("last", 0, 15),
            ("next", 0, 20),
            ("offset", 0, 0),
            ("offset", 7, 7),
            ("offset", 19, 19),
            ("offset", 20, 20),
            ("age", 2500, 10),
            ("age", 10**9, 0),
            ("age", 0, 20),
            ("time", 1_000_000, 0),
            ("time", 1_001_000, 5),
            ("time", 1_001_001, 10),
            ("time", 2_000_000, 20),
        ],
    )
    @pytest.mark.parametrize("restarted", [False, True])
    @pytest.mark.parametrize("limit", [0, 1 << 20])
    def test_a_reader_begins_at_its_offset(
        self, kind: OffsetKind, value: int, expected: int, restarted: bool, limit: int
    ) -> None:
        site = Site(resident_limit=limit)
        queue = stream(site)
        fill(site)
        if restarted:
            site = site.restart(resident_limit=limit)
            found = site.vhost.queue("s")
            assert isinstance(found, StreamQueue)
            queue = found
        sink = read(site, queue, kind, value)
        site.publish("s", *numbered(2, 20))
        site.turn()
        assert sink.contents == numbered(22)[expected:]
        assert [entry.position for _, entry in sink.got] == list(range(expected + 1, 23))

    @pytest.mark.parametrize("kind", ["first", "last", "next", "age", "time"])
    def test_any_offset_works_in_an_empty_stream(self, kind: OffsetKind) -> None:
        site = Site()
        queue = stream(site)
        sink = read(site, queue, kind)
        site.publish("s", b"x")
        site.turn()
        assert sink.contents == [b"x"]

    def test_a_reader_waits_for_an_offset_in_the_future(self) -> None:
        site = Site()
        queue = stream(site)
        empty = read(site, queue, "offset", 7)
        fill(site, 1)
        waiting = read(site, queue, "offset", 7)
        fill(site, 1)
        site.publish("s", *numbered(2, 10))
        site.turn()
        assert [entry.position for _, entry in empty.got] == [8, 9, 10, 11, 12]
        assert [entry.position for _, entry in waiting.got] == [8, 9, 10, 11, 12]


class TestReading:
    @settings(max_examples=40)
    @given(
        st.lists(st.integers(1, 7), max_size=10),
        st.sampled_from([0, 700, 1 << 20]),
        st.integers(1, 4),
        st.integers(0, 30),
    )
    def test_every_reader_reads_everything(self, runs: list[int], limit: int, credit: int, offset: int) -> None:
        site = Site(resident_limit=limit)
        queue = stream(site)
        total = 0
        for count in runs:
            site.publish("s", *numbered(count, total))
            total += count
        sinks = [read(site, queue, "offset", offset, credit), read(site, queue, "first", 0, credit)]
        for sink, start in zip(sinks, (offset, 0), strict=True):
            settled = 0
            while settled < len(sink.got):
                consumer, entry = sink.got[settled]
                assert len(sink.got) - settled <= credit
                site.broker.engine.settle(consumer, [entry], Disposition.ACCEPTED)
                settled += 1
                site.turn()
            assert sink.contents == numbered(total)[start:]
        assert queue.ready == total
        assert queue.unsettled == 0
        assert site.live() == total

    @pytest.mark.parametrize("credit", [1, 100])
    @pytest.mark.parametrize("limit", [700, 1 << 20])
    def test_a_selector_passes_over_what_it_does_not_want(self, credit: int, limit: int) -> None:
        site = Site(resident_limit=limit)
        queue = stream(site)
        for i in range(0, 600, 3):
            site.publish("s", *numbered(3, i))
        examined: list[bytes] = []

        def third(queue: Queue, entry: Entry) -> bool:
            examined.append(entry.content)
            return int(entry.content) % 3 == 0

        options = ConsumerOptions(stream_offset=StreamOffset("first"))
        consumer, sink = site.consume(queue, credit=credit, selects=third, options=options)
        site.turn()
        while len(sink.got) < 200:
            site.broker.engine.settle(consumer, [sink.got[-1][1]], Disposition.ACCEPTED)
            site.turn()
        assert sink.contents == numbered(600)[::3]
        assert examined[: len(set(examined))] == examined, "no message is examined twice"

    def test_a_requeued_delivery_is_not_read_again(self) -> None:
        site = Site()
        queue = stream(site)
        fill(site, 1)
        sink = read(site, queue, "first", credit=2)
        consumer, entry = sink.got[0]
        site.broker.engine.requeue(consumer, [entry])
        site.turn()
        assert [e.position for _, e in sink.got] == [1, 2, 3]

    @pytest.mark.rule("TX-2")
    def test_unsynced_messages_are_not_read(self) -> None:
        site = Site()
        queue = stream(site)
        sink = read(site, queue, "first")
        branch = site.begin()
        site.broker.transactions.enlist(branch, site.publication("s", b"a", b"b"))
        site.broker.transactions.commit(branch)
        site.turn(sync=False)
        assert sink.contents == []
        late = read(site, queue, "next")
        site.turn()
        assert sink.contents == [b"a", b"b"]
        assert late.contents == []

    def test_reading_writes_nothing(self) -> None:
        site = Site()
        queue = stream(site)
        fill(site, 1)
        before = site.journal.end_lsn
        sink = read(site, queue, "first")
        site.turn()
        assert site.journal.end_lsn == before
        assert (queue.unsettled, [entry.deliveries for _, entry in sink.got]) == (5, [0] * 5)

    def test_get_takes_nothing_from_a_stream(self) -> None:
        site = Site()
        queue = stream(site)
        fill(site, 1)
        assert queue.order.take(5) == []
        assert queue.order.peek() is None
        assert queue.ready == 5


class TestRetention:
    def test_retention_by_size_deletes_the_oldest(self) -> None:
        site = Site()
        queue = stream(site, max_length_bytes=100)
        for _ in range(10):
            site.publish("s", b"x" * 30)
        assert queue.bytes == 90
        assert (queue.ready, site.live()) == (3, 3)
        sink = read(site, queue, "first")
        assert [entry.position for _, entry in sink.got] == [8, 9, 10]
        site.turn()
        again = site.restart()
        assert again.vhost.queue("s").ready == 3
        assert again.vhost.queue("s").bytes == 90
        assert again.vhost.queue("s").next_position == 11

    def test_the_newest_run_stays_for_any_size(self) -> None:
        site = Site()
        queue = stream(site, max_length_bytes=10)
        site.publish("s", b"x" * 30, b"y" * 30)
        assert queue.ready == 2
        site.publish("s", b"z" * 50)
        assert queue.ready == 1

    @pytest.mark.parametrize("limit", [0, 1 << 20])
    def test_retention_by_age_deletes_the_oldest(self, limit: int) -> None:
        site = Site(resident_limit=limit)
        queue = stream(site, max_age="3s")
        fill(site, 6)
        behind = read(site, queue, "first")
        assert behind.contents == numbered(10, 20), "runs of an age of three seconds are deleted"
        site.after(60_000)
        assert queue.ready == 5, "the newest run stays"
        assert site.live() == 5

    def test_a_slow_reader_continues_with_the_oldest_remaining_message(self) -> None:
        site = Site()
        queue = stream(site, max_length_bytes=100)
        sink = read(site, queue, "next", credit=1)
        for i in range(10):
            site.publish("s", b"%030d" % i)
            site.turn()
        consumer, entry = sink.got[0]
        site.broker.engine.settle(consumer, [entry], Disposition.ACCEPTED)
        site.turn()
        assert [e.position for _, e in sink.got] == [1, 8]

    def test_deleting_a_stream_releases_its_messages(self) -> None:
        site = Site()
        queue = stream(site, max_age="1h")
        fill(site)
        _, sink = site.consume(queue, credit=3)
        site.broker.directory.delete_queue(queue)
        assert site.live() == 0
        assert len(sink.gone) == 1
        assert site.broker.engine.next_deadline() is None


class Counted(list[Any]):
    """Counts how often a run is looked at."""

    looks = 0

    def __getitem__(self, index: Any) -> Any:
        Counted.looks += 1
        return super().__getitem__(index)


@pytest.mark.rule("FAIR-1")
def test_reading_single_messages_looks_at_each_run_once() -> None:
    site = Site()
    queue = stream(site)
    for i in range(2000):
        site.publish("s", b"%d" % i)
    recent = queue.log._recent
    recent._runs = Counted(recent._runs)
    Counted.looks = 0
    assert read(site, queue, "first", credit=3000).contents == numbered(2000)
    assert Counted.looks <= 2 * 2000


@pytest.mark.rule("FAIR-1")
@pytest.mark.parametrize("resident_limit", [1, 1 << 20], ids=["in the log", "in memory"])
def test_single_messages_are_handed_over_many_at_a_time(resident_limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(resident_limit=resident_limit)
    queue = stream(site)
    for i in range(1000):
        site.publish("s", b"%d" % i, priority=i % 2)  # no two neighbours share a run
    sizes: list[int] = []
    deliver = Sink.deliver

    def counted(sink: Sink, consumer: Consumer, entries: list[Entry]) -> None:
        sizes.append(len(entries))
        deliver(sink, consumer, entries)

    monkeypatch.setattr(Sink, "deliver", counted)
    assert read(site, queue, "first", credit=3000).contents == numbered(1000)
    assert len(sizes) <= 1000 / 50
    assert max(sizes) <= 50


@pytest.mark.rule("FAIR-1")
@pytest.mark.parametrize("alike", [True, False])
def test_a_turn_delivers_a_bounded_part_of_a_stream(alike: bool) -> None:
    site = Site()
    queue = stream(site)
    for i in range(50):
        for number in (range(100 * i, 100 * i + 100),) if alike else ([n] for n in range(100 * i, 100 * i + 100)):
            site.publish("s", *[b"%d" % n for n in number], priority=number[0] % 2)
    _, sink = site.consume(queue, credit=10_000, options=ConsumerOptions(stream_offset=StreamOffset("first", 0)))
    site.broker.engine.turn.end()
    most = TURN / (1 / 4 + 1 / STREAMED) if alike else TURN / (1 + 1 / STREAMED)
    assert 0 < len(sink.got) <= most + 100, "each message is charged its share of the turn"
    site.turn()
    assert sink.contents == numbered(5000)


@pytest.mark.rule("DUR-4")
def test_what_can_be_read_before_damage_is_delivered() -> None:
    site = Site(resident_limit=1)
    stream(site)
    bodies = [b"%02d" % i * 700 for i in range(20)]  # the sector in the middle of a message has nothing else
    for body in bodies:
        site.publish("s", body)
        site.turn()
    site = site.restart(resident_limit=1)
    for name in site.storage.names():
        at = site.storage.read(name, 0, site.storage.size(name)).find(bodies[7])
        if at >= 0:
            site.storage.faults.unreadable[name] = {(at + 700) // 512}
    found = site.vhost.queue("s")
    assert isinstance(found, StreamQueue)
    sink = read(site, found, "first")
    assert sink.contents == bodies[:7]
    assert found.fault
    site.storage.faults.unreadable.clear()
    site.after(RETRY_MS + 1)
    assert sink.contents == bodies


def test_recent_runs_are_found_after_thousands_were_dropped() -> None:
    site = Site(resident_limit=400_000)
    queue = stream(site)
    for i in range(5000):
        site.publish("s", b"%d" % i)
    recent = queue.log._recent
    assert 0 < len(recent) < 3000
    assert len(recent._runs) < 2 * len(recent) + 1100
    run, contents = recent.find(4990)
    assert (run.first, contents) == (4990, [b"4989"])
    assert queue.log.read(recent.first, 1)[0].position == recent.first
    assert queue.log.read(recent.first - 1, 1)[0].position == recent.first - 1


class Waiter:
    """Counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def ready(self) -> None:
        self.calls += 1


class TestPositions:
    def test_reading_is_bounded_by_the_positions_that_are_there(self) -> None:
        site = Site()
        queue = stream(site, max_length_bytes=60)
        assert (queue.begin, queue.end, queue.read(1, 5)) == (1, 1, [])
        for i in range(4):
            site.publish("s", bytes(20), b"%d" % i)
        assert (queue.begin, queue.end) == (5, 9)
        assert [entry.position for entry in queue.read(1, 5)] == [5, 6]
        assert [entry.position for entry in queue.read(8, 5)] == [8]
        assert queue.read(9, 5) == []
        assert queue.read(8, 0) == []

    def test_positions_are_found_by_time(self) -> None:
        site = Site()
        queue = stream(site)
        fill(site)
        assert [queue.position_at(time) for time in (0, 1_000_001, 1_003_000, 1_003_001)] == [1, 6, 16, 21]

    def test_messages_that_are_not_committed_on_disk_are_beyond_the_end(self) -> None:
        site = Site()
        queue = stream(site)
        branch = site.begin()
        site.broker.transactions.enlist(branch, site.publication("s", b"m"))
        site.broker.transactions.commit(branch)
        assert (queue.end, queue.read(1, 1)) == (1, [])
        site.sync()
        assert queue.end == 2

    def test_a_watcher_is_called_in_a_turn_when_its_position_is_filled(self) -> None:
        site = Site()
        queue = stream(site)
        waiter, early = Waiter(), Waiter()
        queue.watch(2, waiter)
        site.publish("s", b"1")
        site.turn()
        assert waiter.calls == 0
        site.publish("s", b"2")
        assert waiter.calls == 0
        site.turn()
        site.turn()
        assert waiter.calls == 1
        queue.watch(1, early)
        site.turn()
        assert early.calls == 1

    def test_watchers_are_called_when_a_stream_is_deleted(self) -> None:
        site = Site()
        queue = stream(site)
        waiter, other = Waiter(), Waiter()
        queue.watch(9, waiter)
        queue.watch(9, other)
        queue.unwatch(other)
        site.broker.directory.delete_queue(queue)
        assert (waiter.calls, other.calls) == (1, 0)
        assert queue.deleted


def lines_run(action: Callable[[], object]) -> int:
    """Return the number of lines of Python that `action` executes."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.rule("FAIR-1")
@pytest.mark.parametrize("resident_limit", [1, 1 << 20], ids=["in the log", "in memory"])
def test_a_message_of_a_stream_is_found_in_the_same_steps_however_many_runs_there_are(resident_limit: int) -> None:
    site = Site(resident_limit=resident_limit)
    queue = site.queue("s", {"x-queue-type": "stream"})
    assert isinstance(queue, StreamQueue)
    counted = []
    for count in (50, 1000):
        while queue.end <= count:
            site.publish("s", b"%d" % queue.end, priority=queue.end % 2)  # no two neighbours share a run
        site.turn()
        for position in (count - 10, 10):
            queue.read(position, 1)  # the block is in the pager's memory now
            counted.append(lines_run(partial(queue.read, position, 1)))
    assert max(counted) - min(counted) < 20, counted
