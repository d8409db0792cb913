"""Compaction: what lives is copied, stays readable where it was, and the old place can go."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escrowmq.core import relocation
from escrowmq.core.consumer_arguments import ConsumerOptions, StreamOffset
from escrowmq.core.message import Entry
from escrowmq.core.outcome import Outcome
from escrowmq.core.records import Kind
from escrowmq.core.relocation import Relocation
from tests.unit.core.site import Site


def move(site: Site, first: int = 1, end: int | None = None) -> int:
    """Everything below `end` (default: all there is) moves; how many steps that took."""
    site.turn()
    moved = Relocation(site.broker, first, site.journal.synced_lsn if end is None else end)
    steps = 1
    while moved.step():
        steps += 1
    site.sync()
    return steps


def lowest(site: Site) -> int:
    """Where the first live message lies."""
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
        site.broker.bind_queue(site.vhost, "amq.fanout", name, "")
    number = 0
    for where, count, durable in plan:
        bodies = [b"%04d" % i for i in range(number, number + count)]
        number += count
        exchange, key = ("amq.fanout", "") if where == "both" else ("", where)
        site.publish(key, *bodies, exchange=exchange, durable=durable)
    consumer, sink = site.consume(one, credit=len(one.order) or 1)
    site.turn()
    site.broker.unsubscribe(consumer)
    gone = [entry for i, (_, entry) in enumerate(sink.got) if i in settled]
    kept = [entry for i, (_, entry) in enumerate(sink.got) if i not in settled]
    site.broker.settle(consumer, gone, Outcome.ACCEPTED)
    sink.got = [(consumer, entry) for entry in kept]
    site.broker.holders[sink] = None
    site.turn()
    site.snapshot()
    live = site.live()
    move(site, 1, 1 + site.journal.synced_lsn * percent // 100)
    site.tidy()
    assert site.live() == live
    site.broker.requeue(consumer, kept)
    again = site.restart()
    for name in ("one", "two"):
        waiting = site.vhost.queue(name).order
        entries: list[Entry] = []
        while len(waiting):
            entries += waiting.take(7)
        survivors = [(e.position, e.body) for e in entries if e.run.envelope.durable]
        assert [(p, body) for p, body, _ in again.ready(again.vhost.queue(name))] == survivors
    assert two.unsettled == 0


@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_the_old_place_holds_nothing_any_more(limit: int) -> None:
    site = Site(resident_limit=limit, segment_bytes=1000)
    site.queue()
    for i in range(50):
        site.publish("q", b"%d" % i * 10, durable=i % 3 != 0)
        site.sync()
    end = site.journal.synced_lsn
    move(site, 1, end)
    move(site, 1, end)
    assert site.live() == (50 if limit == 0 else 33), "what is in memory alone is not in the log"
    assert lowest(site) >= end - 1000
    assert site.bodies() == [b"%d" % i * 10 for i in range(50)]


def test_it_goes_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relocation, "STEP_BYTES", 100)
    site = Site(resident_limit=0)
    queue = site.queue()
    for i in range(20):
        site.publish("q", b"%050d" % i)
    site.turn()
    moved = Relocation(site.broker, 1, site.journal.synced_lsn)
    number = 0
    while moved.step():
        entry = site.broker.get(queue, auto_settle=True)
        assert entry is not None
        assert entry.body == b"%050d" % number
        number += 1
        site.turn()
    assert 5 < number < 20
    assert site.bodies() == [b"%050d" % i for i in range(number, 20)]
    assert site.restart().bodies() == site.bodies()


def test_what_went_meanwhile_is_not_copied() -> None:
    site = Site(resident_limit=0)
    queue, other = site.queue(), site.queue("other")
    for name in ("q", "other"):
        site.publish(name, *[b"x"] * 5)
        site.publish(name, *[b"y"] * 5)
    site.turn()
    moved = Relocation(site.broker, 1, site.journal.synced_lsn)
    site.broker.purge(queue)
    site.broker.delete_queue(other)
    while moved.step():
        pass
    site.turn()
    assert site.live() == 0
    assert site.records(Kind.RELOCATE) == []


def test_a_body_shared_by_queues_is_copied_once() -> None:
    site = Site(resident_limit=0)
    for name in ("one", "two"):
        site.queue(name)
        site.broker.bind_queue(site.vhost, "amq.fanout", name, "")
    site.publish("", b"x" * 2000, b"y" * 2000, exchange="amq.fanout")
    before = site.journal.end_lsn
    move(site)
    assert site.journal.end_lsn - before < 4500
    assert site.bodies("one") == site.bodies("two") == [b"x" * 2000, b"y" * 2000]


def test_what_a_transaction_has_settled_but_not_committed_moves_too() -> None:
    site = Site()
    queue = site.queue()
    site.publish("q", b"a", b"b")
    consumer, sink = site.consume(queue)
    site.broker.holders[sink] = None
    site.turn()
    end = site.journal.synced_lsn
    move(site, 1, end)
    assert all(entry.run.lsn >= end for _, entry in sink.got)
    site.broker.requeue(consumer, [entry for _, entry in sink.got])
    site.broker.unsubscribe(consumer)
    assert site.bodies() == [b"a", b"b"]


@pytest.mark.parametrize("kind", ["classic", "stream"])
def test_what_clients_hold_of_a_deleted_queue_is_let_go(kind: str) -> None:
    site = Site()
    queue, other = site.queue("q", {"x-queue-type": kind}), site.queue("other")
    for name in ("other", "q"):
        site.publish(name, b"a", b"b")
    consumer, sink = site.consume(queue, options=ConsumerOptions(stream_offset=StreamOffset("first")))
    site.broker.holders[sink] = None
    site.turn()
    assert len(sink.got) == 2
    site.broker.delete_queue(queue)
    move(site)
    assert site.live() == 2
    site.broker.settle(consumer, [entry for _, entry in sink.got], Outcome.ACCEPTED)
    assert site.live() == other.ready == 2
