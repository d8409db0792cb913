"""Compaction: living messages are copied and stay readable, and their old segments can be deleted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escrowmq.core.messages.entry import Entry
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.records.blocks import decode_block
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.moves import decode_moves
from escrowmq.core.records.references import TRANSIENT, Reference
from escrowmq.core.recovery import relocation
from escrowmq.core.recovery.relocation import Relocation
from escrowmq.core.topology.arguments.consumer import ConsumerOptions, StreamOffset
from tests.unit.core.site import Sink, Site


def move(site: Site, first: int = 1, end: int | None = None) -> int:
    """Move all living messages below `end` (default: the end of the log), and return the number of steps."""
    site.turn()
    moved = Relocation(site.broker, first, site.journal.synced_lsn if end is None else end)
    steps = 1
    while moved.step():
        steps += 1
    site.sync()
    return steps


def lowest(site: Site) -> int:
    """Return the address of the first living message."""
    return min(segment.first_lsn for segment in site.journal._table if segment.live)


@pytest.mark.rule("ORD-5")
@settings(max_examples=80)
@given(
    st.lists(st.tuples(st.sampled_from(["one", "two", "both"]), st.integers(1, 6), st.booleans()), max_size=12),
    st.sets(st.integers(0, 40)),
    st.sampled_from([0, 600, 1 << 20]),
    st.integers(0, 100),
)
def test_every_message_stays_readable(
    plan: list[tuple[str, int, bool]], settled: set[int], limit: int, percent: int
) -> None:
    site = Site(resident_limit=limit, segment_bytes=300)
    one, two = site.queue("one"), site.queue("two")
    for name in ("one", "two"):
        site.broker.directory.bind_queue(site.vhost, "amq.fanout", name, "")
    number = 0
    for where, count, durable in plan:
        contents = [b"%04d" % i for i in range(number, number + count)]
        number += count
        exchange, key = ("amq.fanout", "") if where == "both" else ("", where)
        site.publish(key, *contents, exchange=exchange, durable=durable)
    consumer, sink = site.consume(one, credit=len(one.order) or 1)
    site.turn()
    site.broker.engine.unsubscribe(consumer)
    gone = [entry for i, (_, entry) in enumerate(sink.got) if i in settled]
    kept = [entry for i, (_, entry) in enumerate(sink.got) if i not in settled]
    site.broker.engine.settle(consumer, gone, Disposition.ACCEPTED)
    sink.got = [(consumer, entry) for entry in kept]
    site.broker.engine.holders[sink] = None
    site.turn()
    site.snapshot()
    live = site.live()
    move(site, 1, 1 + site.journal.synced_lsn * percent // 100)
    site.tidy()
    assert site.live() == live
    site.broker.engine.requeue(consumer, kept)
    again = site.restart()
    for name in ("one", "two"):
        waiting = site.vhost.queue(name).order
        entries: list[Entry] = []
        while len(waiting):
            entries += waiting.take(7)
        survivors = [(e.position, e.content) for e in entries if e.run.envelope.durable]
        assert [(p, content) for p, content, _ in again.ready(again.vhost.queue(name))] == survivors
    assert two.unsettled == 0


@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_the_old_address_has_no_living_messages(limit: int) -> None:
    site = Site(resident_limit=limit, segment_bytes=1000)
    site.queue()
    for i in range(50):
        site.publish("q", b"%d" % i * 10, durable=i % 3 != 0)
        site.sync()
    end = site.journal.synced_lsn
    move(site, 1, end)
    move(site, 1, end)
    assert site.live() == (50 if limit == 0 else 33), "content that is only in memory is not in the log"
    assert lowest(site) >= end - 1000
    assert site.contents() == [b"%d" % i * 10 for i in range(50)]


def test_a_compaction_is_divided_into_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relocation, "STEP_COST", 300)
    site = Site(resident_limit=0)
    queue = site.queue()
    for i in range(20):
        site.publish("q", b"%050d" % i)
    site.turn()
    moved = Relocation(site.broker, 1, site.journal.synced_lsn)
    number = 0
    while moved.step():
        entry = site.broker.engine.get(queue, auto_settle=True)
        assert entry is not None
        assert entry.content == b"%050d" % number
        number += 1
        site.turn()
    assert 5 < number < 20
    assert site.contents() == [b"%050d" % i for i in range(number, 20)]
    assert site.restart().contents() == site.contents()


def test_a_large_block_is_moved_in_pieces_and_stays_shared() -> None:
    site = Site(resident_limit=0, segment_bytes=1 << 20)
    for name in ("one", "two"):
        site.queue(name)
        site.broker.directory.bind_queue(site.vhost, "amq.fanout", name, "")
    contents = [b"%06d" % i for i in range(12_000)]
    site.publish("", *contents, exchange="amq.fanout")
    site.publish("", *[b"x" * 400_000] * 6, exchange="amq.fanout")
    site.turn()
    end = site.journal.synced_lsn
    move(site)
    blocks = [len(decode_block(r, decode_moves(r)[1]).contents) for r in site.records(Kind.RELOCATE)]
    assert blocks == [5000, 5000, 2000, 2, 2, 2]
    assert len(site.records(Kind.READDRESSED)) == len(blocks)
    assert lowest(site) >= end - (1 << 20)
    for running in (site, site.restart(resident_limit=0)):
        assert running.contents("one") == running.contents("two") == [*contents, *[b"x" * 400_000] * 6]


@pytest.mark.parametrize("paged", [False, True])
def test_queues_with_different_parts_of_a_block_share_the_common_part(paged: bool) -> None:
    site = Site(resident_limit=0)
    queues = [site.queue(name) for name in ("one", "two")]
    for queue in queues:
        site.broker.directory.bind_queue(site.vhost, "amq.fanout", queue.name, "")
    contents = [bytes([c]) * 300 for c in b"abcdefgh"]
    site.publish("", *contents, exchange="amq.fanout")
    site.turn()
    consumer, sink = site.consume(queues[0], credit=8)
    site.turn()
    site.broker.engine.unsubscribe(consumer)
    site.broker.engine.settle(consumer, [sink.got[i][1] for i in (0, 3, 4, 7)], Disposition.ACCEPTED)
    site.broker.engine.requeue(consumer, [sink.got[i][1] for i in (1, 2, 5, 6)])
    site.turn()
    if paged:  # after a restart, only a block at the head is in memory
        site = site.restart(resident_limit=0)
    before = site.journal.end_lsn
    move(site)
    assert site.journal.end_lsn - before < 8 * 300 + 1000
    found = [site.restart(resident_limit=0)]
    site.snapshot()
    for running in (*found, site.restart(resident_limit=0), site):
        assert running.contents("one") == [contents[i] for i in (1, 2, 5, 6)]
        assert running.contents("two") == contents


def test_entries_in_memory_keep_sharing_their_run() -> None:
    """A snapshot has one reference for a run, also after a compaction."""
    site = Site()
    queue = site.queue()
    site.publish("q", *[b"x"] * 100)
    move(site)
    entries = queue.order.in_memory()
    assert len({entry.run for entry in entries}) == 1
    assert [entry.start for entry in entries] == list(range(100))


def test_nothing_to_move_needs_no_step() -> None:
    site = Site()
    for i in range(3):
        site.queue(f"{i}")
    site.publish("1", b"a")
    site.turn()
    end = site.journal.end_lsn
    relocation = Relocation(site.broker, end, end + 100)
    assert not relocation.step()
    assert relocation.moved == 0
    assert site.journal.end_lsn == end


def test_messages_that_leave_meanwhile_are_not_copied() -> None:
    site = Site(resident_limit=0)
    queue, other = site.queue(), site.queue("other")
    for name in ("q", "other"):
        site.publish(name, *[b"x"] * 5)
        site.publish(name, *[b"y"] * 5)
    site.turn()
    moved = Relocation(site.broker, 1, site.journal.synced_lsn)
    site.broker.directory.purge(queue)
    site.broker.directory.delete_queue(other)
    while moved.step():
        pass
    site.turn()
    assert site.live() == 0
    assert site.records(Kind.RELOCATE) == []


def test_a_body_shared_by_queues_is_copied_once() -> None:
    site = Site(resident_limit=0)
    for name in ("one", "two"):
        site.queue(name)
        site.broker.directory.bind_queue(site.vhost, "amq.fanout", name, "")
    site.publish("", b"x" * 2000, b"y" * 2000, exchange="amq.fanout")
    before = site.journal.end_lsn
    move(site)
    assert site.journal.end_lsn - before < 4500
    assert site.contents("one") == site.contents("two") == [b"x" * 2000, b"y" * 2000]


def test_messages_settled_in_an_uncommitted_transaction_are_moved_too() -> None:
    site = Site()
    queue = site.queue()
    site.publish("q", b"a", b"b")
    consumer, sink = site.consume(queue)
    site.broker.engine.holders[sink] = None
    site.turn()
    end = site.journal.synced_lsn
    move(site, 1, end)
    assert all(entry.run.lsn >= end for _, entry in sink.got)
    site.broker.engine.requeue(consumer, [entry for _, entry in sink.got])
    site.broker.engine.unsubscribe(consumer)
    assert site.contents() == [b"a", b"b"]


@pytest.mark.parametrize("kind", ["classic", "stream"])
def test_unacknowledged_messages_of_a_deleted_queue_are_released(kind: str) -> None:
    site = Site()
    queue, other = site.queue("q", {"x-queue-type": kind}), site.queue("other")
    for name in ("other", "q"):
        site.publish(name, b"a", b"b")
    consumer, sink = site.consume(queue, options=ConsumerOptions(stream_offset=StreamOffset("first")))
    site.broker.engine.holders[sink] = None
    site.turn()
    assert len(sink.got) == 2
    site.broker.directory.delete_queue(queue)
    move(site)
    assert site.live() == 2
    site.broker.engine.settle(consumer, [entry for _, entry in sink.got], Disposition.ACCEPTED)
    assert site.live() == other.ready == 2


names = st.sampled_from(["one", "two", "urgent", "stream"])
few = st.integers(1, 4)
happenings = st.one_of(
    st.tuples(st.just("publish"), names, few, st.booleans(), st.integers(0, 3)),
    st.tuples(st.just("fan out"), few, st.integers(0, 3)),
    st.tuples(st.just("deliver"), names, few),
    st.tuples(st.just("get"), names),
    st.tuples(st.just("settle"), st.sampled_from(Disposition), st.integers(0, 9)),
    st.tuples(st.just("requeue"), st.integers(0, 9)),
    st.tuples(st.just("purge"), names),
    st.tuples(st.just("redeclare"), names),
    st.tuples(st.just("restart")),
    st.tuples(st.just("step")),
    st.tuples(st.just("step")),
    st.tuples(st.just("step")),
)
ARGUMENTS: dict[str, dict[str, object]] = {
    "urgent": {"x-max-priority": 2},
    "stream": {"x-queue-type": "stream", "x-max-length-bytes": 200},
}


class Upheaval:
    """A broker that is compacted continuously in the smallest steps while everything else continues."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.site = Site(resident_limit=limit, segment_bytes=500)
        self.relocation: Relocation | None = None
        self.number = 0
        self.sink = Sink()
        self.site.broker.engine.holders[self.sink] = None
        for name in ("one", "two", "urgent", "stream"):
            self.declare(name)

    def declare(self, name: str) -> None:
        self.site.queue(name, ARGUMENTS.get(name))
        self.site.broker.directory.bind_queue(self.site.vhost, "amq.fanout", name, "")

    def bodies(self, count: int) -> list[bytes]:
        self.number += count
        return [b"%04d" % i for i in range(self.number - count, self.number)]

    def do(self, happening: tuple[Any, ...]) -> None:
        site, broker = self.site, self.site.broker
        match happening:
            case ("publish", name, count, durable, priority):
                site.publish(name, *self.bodies(count), durable=durable, priority=priority)
            case ("fan out", count, priority):
                site.publish("", *self.bodies(count), exchange="amq.fanout", priority=priority)
            case ("deliver", name, credit):
                options = ConsumerOptions(stream_offset=StreamOffset("first"))
                consumer, _ = site.consume(site.vhost.queue(name), self.sink, credit=credit, options=options)
                broker.engine.turn.end()
                broker.engine.unsubscribe(consumer)
            case ("get", name):
                broker.engine.get(site.vhost.queue(name), auto_settle=True)
            case ("settle", disposition, i) if self.sink.got:
                consumer, entry = self.sink.got.pop(i % len(self.sink.got))
                broker.engine.settle(consumer, [entry], disposition)
            case ("requeue", i) if self.sink.got:
                consumer, entry = self.sink.got.pop(i % len(self.sink.got))
                broker.engine.requeue(consumer, [entry])
            case ("purge", name) if name != "stream":
                broker.directory.purge(site.vhost.queue(name))
            case ("redeclare", name):
                broker.directory.delete_queue(site.vhost.queue(name))
                self.declare(name)
            case ("restart",):
                site.turn()
                self.restart()
            case ("step",):
                site.turn()
                before = self.contents(site)
                if self.relocation is None:
                    site.snapshot()
                    self.relocation = Relocation(site.broker, 1, site.journal.synced_lsn)
                if not self.relocation.step():
                    self.relocation = None
                site.tidy()
                assert self.contents(site) == before
        site.turn()

    def restart(self) -> None:
        self.site = self.site.restart(resident_limit=self.limit, segment_bytes=500)
        self.relocation = None
        self.sink.got = []
        self.site.broker.engine.holders[self.sink] = None

    def contents(self, site: Site, *, durable: bool = False) -> dict[str, list[tuple[int, bytes]]]:
        """Return all messages by queue, read from their addresses, including unacknowledged ones."""
        found: dict[str, list[tuple[int, bytes]]] = {}
        for queue in site.vhost.queues.values():
            messages = []
            for first, length, lsn, start in queue.order.references():
                if lsn and not (durable and start & TRANSIENT):
                    contents = site.broker.engine.pager.load(Reference(first, length, lsn, start)).contents
                    messages += [(first + i, content) for i, content in enumerate(contents)]
            for entry in queue.order.in_memory():
                if not entry.run.lsn and not durable:
                    messages.append((entry.position, entry.content))
            for consumer, entry in self.sink.got if site is self.site else []:
                if consumer.queue is queue and not queue.is_stream and (entry.run.envelope.durable or not durable):
                    messages.append((entry.position, entry.content))
            found[queue.name] = sorted(messages)
        return found


@pytest.mark.rule("ORD-5")
@pytest.mark.rule("DUR-1")
@settings(max_examples=150, deadline=None)
@given(
    st.lists(happenings, min_size=5, max_size=40),
    st.sampled_from([0, 600, 1 << 20]),
    st.sampled_from([1, 300, 600, 50_000]),
    st.integers(1, 3),
)
def test_anything_may_happen_between_two_steps(
    plan: list[tuple[Any, ...]], limit: int, cost: int, at_once: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relocation, "STEP_COST", cost)
        for name in ("LOOK", "LOAD", "BLOCK_MESSAGES"):
            patch.setattr(relocation, name, at_once)
        upheaval = Upheaval(limit)
        for happening in plan:
            upheaval.do(happening)
            site = upheaval.site
            expected = upheaval.contents(site, durable=True)
            again = site.restart(resident_limit=limit, segment_bytes=500)
            assert upheaval.contents(again, durable=True) == expected
            assert again.live() == sum(map(len, expected.values()))
        assert upheaval.site.live() == kept(upheaval.site, upheaval.sink)


def kept(site: Site, sink: Sink) -> int:
    """Return the messages whose content the log must keep for the broker."""
    waiting = [r for queue in site.vhost.queues.values() for r in queue.order.references()]
    held = [entry for consumer, entry in sink.got if not consumer.queue.is_stream]
    return sum(r.length for r in waiting if r.lsn) + sum(bool(entry.run.lsn) for entry in held)
