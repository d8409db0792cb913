"""Recovery: a snapshot and the log after it restore the state."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escrowmq.core.branches.branch import Settlement
from escrowmq.core.messages.entry import Entry
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.recovery.relocation import Relocation
from escrowmq.core.recovery.replay import Recovery, RecoveryError
from tests.unit.core.site import Sink, Site

QUEUES: dict[str, dict[str, object]] = {
    "plain": {},
    "priority": {"x-max-priority": 3},
    "short": {"x-max-length": 4, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "plain"},
    "brief": {"x-message-ttl": 50, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "priority"},
    "counting": {"x-queue-type": "quorum", "x-delivery-limit": 2},
    "stream": {"x-queue-type": "stream", "x-max-length-bytes": 60},
}
names = st.sampled_from(sorted(QUEUES))
small = st.integers(1, 4)

steps = st.one_of(
    st.tuples(st.just("publish"), names, small, st.booleans(), st.integers(0, 4)),
    st.tuples(st.just("publish"), names, small, st.just(True), st.integers(0, 4)),
    st.tuples(st.just("deliver"), names, small),
    st.tuples(st.just("accept"), st.integers(0, 9)),
    st.tuples(st.just("reject"), st.integers(0, 9)),
    st.tuples(st.just("requeue"), st.integers(0, 9)),
    st.tuples(st.just("transact"), names, names, st.integers(0, 9)),
    st.tuples(st.just("purge"), names),
    st.tuples(st.just("redeclare"), names),
    st.tuples(st.just("wait"), st.integers(1, 60)),
    st.tuples(st.just("snapshot")),
    st.tuples(st.just("relocate"), st.integers(0, 100)),
    st.tuples(st.just("restart")),
)


class Life:
    """A broker and the events in its life. Each body occurs once, so that every message is recognizable."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.site = Site(resident_limit=limit, segment_bytes=500)
        self.number = 0
        self.sink = Sink()
        self.broker_starts()
        for name, arguments in QUEUES.items():
            self.site.queue(name, arguments)

    def broker_starts(self) -> None:
        self.sink.got = []
        self.site.broker.engine.holders[self.sink] = None

    def contents(self, count: int) -> list[bytes]:
        self.number += count
        return [b"%05d" % i for i in range(self.number - count, self.number)]

    def held(self, i: int) -> tuple[Consumer, Entry] | None:
        return self.sink.got.pop(i % len(self.sink.got)) if self.sink.got else None

    def do(self, step: tuple[Any, ...]) -> None:
        site = self.site
        match step:
            case ("publish", name, count, durable, priority):
                site.publish(name, *self.contents(count), durable=durable, priority=priority)
            case ("deliver", name, credit):
                consumer, _ = site.consume(site.vhost.queue(name), self.sink, credit=credit)
                site.broker.engine.turn.end()
                site.broker.engine.unsubscribe(consumer)
            case ("accept" | "reject" as how, i):
                if (held := self.held(i)) is not None:
                    site.broker.engine.settle(
                        held[0], [held[1]], Disposition.ACCEPTED if how == "accept" else Disposition.REJECTED
                    )
            case ("requeue", i):
                if (held := self.held(i)) is not None:
                    site.broker.engine.requeue(held[0], [held[1]])
            case ("transact", one, two, i):
                branch = site.begin()
                for name in (one, two):
                    site.broker.transactions.enlist(branch, site.publication(name, *self.contents(2)))
                if (held := self.held(i)) is not None:
                    site.broker.transactions.enlist(branch, Settlement(held[0], [held[1]], Disposition.REJECTED))
                site.broker.transactions.commit(branch)
            case ("purge", name):
                if name != "stream":
                    site.broker.directory.purge(site.vhost.queue(name))
            case ("redeclare", name):
                site.broker.directory.delete_queue(site.vhost.queue(name))
                site.queue(name, QUEUES[name])
            case ("wait", ms):
                site.after(ms)
            case ("snapshot",):
                site.turn()
                site.snapshot()
            case ("relocate", percent):
                site.turn()
                relocation = Relocation(site.broker, 1, 1 + site.journal.synced_lsn * percent // 100)
                while relocation.step():
                    pass
                site.tidy()
            case _:
                site.turn()
                self.site = site.restart(resident_limit=self.limit, segment_bytes=500)
                self.broker_starts()

    def durable(self) -> dict[str, list[tuple[int, bytes]]]:
        """Return the messages that a restart must restore: ready and unacknowledged ones."""
        found: dict[str, list[tuple[int, bytes]]] = {name: [] for name in QUEUES}
        for name in QUEUES:
            queue = self.site.vhost.queue(name)
            if queue.is_stream:
                found[name] = self.stream()
                continue
            entries: list[Entry] = []
            while len(queue.order):
                entries += queue.order.take(1000)
            queue.order.put_back(entries)
            entries += [entry for consumer, entry in self.sink.got if consumer.queue is queue]
            found[name] = sorted((entry.position, entry.content) for entry in entries if entry.run.envelope.durable)
        return found

    def stream(self) -> list[tuple[int, bytes]]:
        log = self.site.vhost.queue("stream").order
        return [
            (reference.first + i, content)
            for reference in log.references()
            for i, content in enumerate(self.site.broker.engine.pager.load(reference).contents)
        ]


@pytest.mark.rule("ORD-5")
@pytest.mark.rule("DUR-1")
@settings(max_examples=150)
@given(st.lists(steps, max_size=30), st.sampled_from([0, 800, 1 << 20]))
def test_a_restart_restores_the_durable_state(plan: list[tuple[Any, ...]], limit: int) -> None:
    life = Life(limit)
    for step in plan:
        life.do(step)
    life.site.turn()
    before = life.durable()
    next_positions = {name: life.site.vhost.queue(name).next_position for name in QUEUES}
    sizes = {name: life.site.vhost.queue(name).bytes for name in ("stream",)}
    life.do(("restart",))
    assert life.durable() == before
    assert life.site.live() == sum(map(len, before.values()))
    for name, last in next_positions.items():
        queue = life.site.vhost.queue(name)
        assert max((position for position, _ in before[name]), default=0) < queue.next_position <= last
    assert {"stream": life.site.vhost.queue("stream").bytes} == sizes
    life.site.turn()
    before = life.durable()
    life.do(("snapshot",))
    life.do(("restart",))
    assert life.durable() == before


def test_an_unknown_record_is_refused() -> None:
    recovery = Recovery(Site().broker)
    with pytest.raises(RecoveryError, match="record at LSN 77 is of kind 200, which this version does not know"):
        recovery.apply(77, 200, b"")


def test_messages_delivered_before_a_crash_are_marked() -> None:
    site = Site()
    queue = site.queue()
    site.publish("q", b"a", b"b", b"c")
    _, sink = site.consume(queue, credit=2)
    site.broker.engine.holders[sink] = None
    site.turn()
    for running in (site.restart(), site.restart(resident_limit=0)):
        assert [again for _, _, again in running.ready(running.vhost.queue("q"))] == [True, True, False]
    site.snapshot()
    again = site.restart()
    assert [again_ for _, _, again_ in again.ready(again.vhost.queue("q"))] == [True, True, False]


def test_the_position_of_a_lost_message_is_not_reused() -> None:
    site = Site()
    queue = site.queue()
    site.publish("q", b"a", durable=False)
    site.consume(queue)
    site.turn()
    again = site.restart()
    again.publish("q", b"b")
    assert again.ready(again.vhost.queue("q")) == [(2, b"b", False)]
    again.sync()
    last = again.restart()
    assert last.ready(last.vhost.queue("q")) == [(2, b"b", False)]


@pytest.mark.rule("ORD-3")
def test_messages_delivered_by_a_priority_queue_are_marked() -> None:
    site = Site()
    queue = site.queue("q", {"x-max-priority": 3})
    for priority in (1, 2, 3):
        site.publish("q", bytes([priority]), priority=priority)
    site.consume(queue)
    site.turn()
    again = site.restart()
    assert [marked for _, _, marked in again.ready(again.vhost.queue("q"))] == [True, True, True]
