"""Settlements of a turn: one record for each queue and outcome, and the release of their content in the log."""

from __future__ import annotations

from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.queues.queue import Queue
from escrowmq.core.queues.settlement import durable_positions, release
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.references import Range
from escrowmq.core.records.settling import Settle, decode_settle
from tests.unit.core.site import Site


def taken(site: Site, queue: Queue, *contents: bytes, durable: bool = True) -> list[Entry]:
    site.publish(queue.name, *contents, durable=durable)
    return queue.take(len(contents))


def test_one_record_for_each_queue_and_outcome() -> None:
    site = Site()
    one, two = site.queue("one"), site.queue("two")
    entries = taken(site, one, *[b"x"] * 6)
    site.broker.engine.settlements.add(one, entries[:2], Outcome.ACCEPTED)
    site.broker.engine.settlements.add(one, entries[3:4], Outcome.ACCEPTED)
    site.broker.engine.settlements.add(one, entries[5:], Outcome.REJECTED)
    site.broker.engine.settlements.add(two, taken(site, two, b"y"), Outcome.ACCEPTED)
    site.broker.engine.settlements.flush()
    assert site.live() == 2
    assert [decode_settle(record) for record in site.records(Kind.SETTLE)] == [
        Settle(one.ident, Outcome.ACCEPTED, [Range(1, 2), Range(4, 1)]),
        Settle(one.ident, Outcome.REJECTED, [Range(6, 1)]),
        Settle(two.ident, Outcome.ACCEPTED, [Range(1, 1)]),
    ]


def test_transient_messages_need_no_record() -> None:
    site = Site()
    durable, transient = site.queue("durable"), site.queue("transient", durable=False)
    site.sync()
    entries = taken(site, durable, b"a", durable=False)
    site.broker.engine.settlements.add(durable, entries, Outcome.ACCEPTED)
    site.broker.engine.settlements.add(transient, taken(site, transient, b"b"), Outcome.ACCEPTED)
    site.broker.engine.settlements.flush()
    assert site.records(Kind.SETTLE) == []
    assert durable_positions(durable, entries) == []


def test_a_queue_with_durable_and_transient_messages() -> None:
    site = Site()
    queue = site.queue()
    entries = taken(site, queue, b"a") + taken(site, queue, b"b", durable=False) + taken(site, queue, b"c")
    assert durable_positions(queue, entries) == [1, 3]
    site.broker.engine.settlements.add(queue, entries, Outcome.ACCEPTED)
    site.broker.engine.settlements.flush()
    assert site.live() == 0
    assert decode_settle(site.records(Kind.SETTLE)[0]).ranges == [Range(1, 1), Range(3, 1)]


def test_flushing_nothing_writes_nothing() -> None:
    site = Site()
    before = site.journal.end_lsn
    site.broker.engine.settlements.flush()
    assert site.journal.end_lsn == before


def test_releasing_counts_by_block() -> None:
    site = Site()
    queue = site.queue()
    first, second = taken(site, queue, b"a", b"b"), taken(site, queue, b"c")
    in_memory = Entry(9, b"", Run(Envelope("", "q"), 9, 0))
    release(site.journal, [first[0], second[0], first[1], in_memory])
    assert site.live() == 0
    release(site.journal, [])
