"""Reservations: a numbered range keeps its content until it is settled (PIPE-1)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.entry import Entry
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.queue import Queue
from escrowmq.core.records.kinds import Kind
from escrowmq.core.recovery.relocation import Relocation
from escrowmq.core.reservations import registry as module
from escrowmq.core.reservations.reading import Batch
from tests.unit.core.site import Sink, Site

Content = tuple[int, bytes, bool]
"""Position, body, redelivered."""

QUEUES: dict[str, dict[str, object]] = {
    "plain": {},
    "priority": {"x-max-priority": 3},
    "short": {"x-max-length": 6},
    "brief": {"x-message-ttl": 50},
    "counting": {"x-queue-type": "quorum", "x-delivery-limit": 2},
}
names = st.sampled_from(sorted(QUEUES))
groups = st.sampled_from(["one", "two"])
small = st.integers(1, 5)

steps = st.one_of(
    st.tuples(st.just("publish"), names, small, st.booleans(), st.integers(0, 4)),
    st.tuples(st.just("publish"), names, small, st.just(True), st.integers(0, 4)),
    st.tuples(st.just("hold"), names, groups, small),
    st.tuples(st.just("hold"), names, groups, small),
    st.tuples(st.just("until"), names, groups, small),
    st.tuples(st.just("settle"), names, groups, st.integers(0, 9), st.booleans()),
    st.tuples(st.just("release"), names, groups),
    st.tuples(st.just("deliver"), names, small),
    st.tuples(st.just("requeue")),
    st.tuples(st.just("accept")),
    st.tuples(st.just("purge"), names),
    st.tuples(st.just("wait"), st.integers(1, 60)),
    st.tuples(st.just("snapshot")),
    st.tuples(st.just("relocate"), st.integers(0, 100)),
    st.tuples(st.just("restart")),
)


def contents(batch: Batch) -> list[Content]:
    """Return the messages of a batch."""
    data, found, at, begin = b"".join(batch.contents), [], 0, 0
    for run in batch.runs:
        for i in range(begin, run.end):
            found.append((batch.positions[i], data[at : at + batch.lengths[i]], run.redelivered))
            at += batch.lengths[i]
        begin = run.end
    assert begin == len(batch.positions)
    assert at == len(data)
    return found


def read(site: Site, queue: Queue, group: str, first: int, end: int, most_bytes: int = 0) -> list[Content]:
    """Read the whole range in as many batches as necessary."""
    found: list[Content] = []
    while first < end:
        batch = site.broker.reservations.read(queue, group, first, end, most_bytes)
        assert batch.first == first
        assert batch.next == first + len(batch)
        found += contents(batch)
        first = batch.next
    return found


class Life:
    """A broker, the events in its life, and the answers to its groups. Each body occurs once."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.site = Site(resident_limit=limit, segment_bytes=500)
        self.number = 0
        self.sink = Sink()
        self.known: dict[tuple[str, str], dict[int, Content]] = {}
        self.ends: dict[tuple[str, str], int] = {}
        self.gone: set[bytes] = set()
        self.site.broker.engine.holders[self.sink] = None
        for name, arguments in QUEUES.items():
            self.site.queue(name, arguments)

    def queue(self, name: str) -> Queue:
        return self.site.vhost.queue(name)

    def contents(self, count: int) -> list[bytes]:
        self.number += count
        return [b"%05d" % i for i in range(self.number - count, self.number)]

    def reserve(self, name: str, group: str, **amount: int) -> None:
        queue, key = self.queue(name), (name, group)
        before = self.ends.get(key, 1)
        ready = len(self.queue(name).order)
        state = self.site.broker.reservations.reserve(queue, group, amount.get("most", 0), amount.get("until", 0))
        known = self.known.setdefault(key, {})
        assert state.end == before + state.added
        assert state.first == min(known, default=state.end if not state.added else before)
        assert state.added <= min(ready, amount.get("most", ready))
        new = read(self.site, queue, group, before, state.end)
        for number, content in enumerate(new, before):
            assert content[1] not in {known[1] for some in self.known.values() for known in some.values()}
            assert content[1] not in self.gone
            known[number] = content
        self.ends[key] = state.end

    def do(self, step: tuple[Any, ...]) -> None:
        site, reservations = self.site, self.site.broker.reservations
        match step:
            case ("publish", name, count, durable, priority):
                site.publish(name, *self.contents(count), durable=durable, priority=priority)
            case ("reservation", name, group, most):
                self.reserve(name, group, most=most)
            case ("until", name, group, more):
                self.reserve(name, group, until=self.ends.get((name, group), 1) + more)
            case ("settle", name, group, part, in_branch):
                self.settle(name, group, part, in_branch=in_branch)
            case ("release", name, group):
                count, _ = reservations.release(self.queue(name), group)
                assert count == len(self.known.pop((name, group), {}))
            case ("deliver", name, credit):
                consumer, _ = site.consume(self.queue(name), self.sink, credit=credit)
                site.broker.engine.turn.end()
                site.broker.engine.unsubscribe(consumer)
            case ("requeue" | "accept" as how,):
                for consumer, entry in self.sink.got:
                    self.part_with(consumer, entry, accept=how == "accept")
                self.sink.got = []
            case ("purge", name):
                site.broker.directory.purge(self.queue(name))
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
                self.sink.got = []
                self.site.broker.engine.holders[self.sink] = None

    def part_with(self, consumer: Consumer, entry: Entry, *, accept: bool) -> None:
        if accept:
            self.gone.add(entry.content)
            self.site.broker.engine.settle(consumer, [entry], Disposition.ACCEPTED)
        else:
            self.site.broker.engine.requeue(consumer, [entry])

    def settle(self, name: str, group: str, part: int, *, in_branch: bool) -> None:
        broker = self.site.broker
        known = self.known.get((name, group), {})
        if not known:
            return
        end = min(min(known) + part, self.ends[name, group])
        work = broker.reservations.settlement(self.queue(name), group, end)
        if in_branch and work is not None:
            branch = self.site.begin()
            broker.transactions.enlist(branch, self.site.publication(name, *self.contents(1)))
            broker.transactions.settle_reservation(branch, work)
            broker.transactions.commit(branch)
        else:
            broker.reservations.settle(work)
        for number in [number for number in known if number < end]:
            self.gone.add(known.pop(number)[1])

    def check(self, most_bytes: int) -> None:
        """Check that every reserved range has its original content."""
        for (name, group), known in self.known.items():
            if known:
                first, end = min(known), self.ends[name, group]
                assert list(known) == list(range(first, end))
                assert read(self.site, self.queue(name), group, first, end, most_bytes) == list(known.values())
        held = {content[1] for known in self.known.values() for content in known.values()}
        for name in QUEUES:
            ready = [content for _, content, _ in self.site.ready(self.queue(name))]
            assert len(ready) == len(set(ready))
            assert not (held | self.gone) & set(ready)


@pytest.mark.rule("PIPE-1")
@pytest.mark.rule("ORD-5")
@settings(max_examples=300)
@given(st.lists(steps, max_size=40), st.sampled_from([0, 300, 1 << 20]), st.integers(1, 40))
def test_a_range_has_the_same_content_until_it_is_settled(
    plan: list[tuple[Any, ...]], limit: int, most_bytes: int
) -> None:
    life = Life(limit)
    for step in plan:
        life.do(step)
        life.check(most_bytes)
    life.do(("restart",))
    life.check(most_bytes)
    life.do(("snapshot",))
    life.do(("restart",))
    life.check(most_bytes)


@pytest.fixture
def site() -> Site:
    site = Site()
    site.queue()
    site.publish("q", *[b"%d" % i for i in range(10)])
    return site


@pytest.mark.rule("PIPE-1")
class TestHolding:
    def test_numbers_continue(self, site: Site) -> None:
        queue, reservations = site.vhost.queue("q"), site.broker.reservations
        assert reservations.reserve(queue, "g", 4)[:4] == (1, 5, 4, 1)
        assert reservations.reserve(queue, "g", 3)[:4] == (1, 8, 3, 1)
        assert reservations.reserve(queue, "other", 2)[:4] == (1, 3, 2, 1)
        assert queue.ready == 1
        assert [content for _, content, _ in read(site, queue, "g", 1, 8)] == [b"%d" % i for i in range(7)]
        assert [content for _, content, _ in read(site, queue, "other", 1, 3)] == [b"7", b"8"]

    def test_inspecting_changes_nothing(self, site: Site) -> None:
        queue = site.vhost.queue("q")
        assert site.broker.reservations.reserve(queue, "g")[:4] == (1, 1, 0, 1)
        assert not queue.reservations
        site.broker.reservations.reserve(queue, "g", 2)
        assert site.broker.reservations.reserve(queue, "g")[:4] == (1, 3, 0, 1)

    def test_until_is_idempotent_and_waits_for_earlier_reservations(self, site: Site) -> None:
        queue, reservations = site.vhost.queue("q"), site.broker.reservations
        first = reservations.reserve(queue, "g", until=6)
        again = reservations.reserve(queue, "g", until=6)
        assert first[:4] == (1, 6, 5, 1)
        assert again[:4] == (1, 6, 0, 1)
        assert again.lsn >= first.lsn > site.journal.synced_lsn
        assert reservations.reserve(queue, "g", until=100)[:4] == (1, 11, 5, 1)

    def test_a_requeued_message_gets_a_later_number(self, site: Site) -> None:
        queue, reservations = site.vhost.queue("q"), site.broker.reservations
        consumer, sink = site.consume(queue, credit=3)
        site.turn()
        reservations.reserve(queue, "g", 4)
        site.broker.engine.unsubscribe(consumer)
        site.broker.engine.requeue(consumer, [entry for _, entry in sink.got])
        assert reservations.reserve(queue, "g", 4).added == 4
        assert read(site, queue, "g", 1, 9) == [
            *((position, b"%d" % (position - 1), False) for position in (4, 5, 6, 7)),
            *((position, b"%d" % (position - 1), True) for position in (1, 2, 3)),
            (8, b"7", False),
        ]

    def test_many_messages_are_reserved_in_several_calls(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "MOST_PARTS", 4)
        monkeypatch.setattr(module, "STEP", 3)
        site = Site(resident_limit=0)
        queue = site.queue()
        for i in range(10):
            site.publish("q", b"%d" % i)
        assert [site.broker.reservations.reserve(queue, "g", 100).added for _ in range(4)] == [4, 4, 2, 0]
        assert [content for _, content, _ in read(site, queue, "g", 1, 11)] == [b"%d" % i for i in range(10)]

    def test_transient_content_becomes_durable_in_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "COPY_BYTES", 10)
        monkeypatch.setattr(module, "STEP", 2)
        site = Site(resident_limit=0)
        queue = site.queue()
        for i in range(10):
            site.publish("q", b"%04d" % i, durable=False)
        assert site.broker.reservations.reserve(queue, "g", 100).added == 4
        site.turn()
        again = site.restart()
        assert read(again, again.vhost.queue("q"), "g", 1, 5) == [(i + 1, b"%04d" % i, False) for i in range(4)]
        assert again.vhost.queue("q").next_position == 5
        again.broker.reservations.release(again.vhost.queue("q"), "g")
        again.turn()
        third = again.restart()
        assert third.contents() == [b"%04d" % i for i in range(4)]
        assert third.live() == 4

    def test_messages_of_a_transient_queue_can_be_reserved(self) -> None:
        site = Site()
        queue = site.queue("t", durable=False)
        site.publish("t", b"a", b"b", b"c")
        state = site.broker.reservations.reserve(queue, "g", 2)
        assert state[:4] == (1, 3, 2, 1)
        assert state.lsn == 0
        assert read(site, queue, "g", 1, 3) == [(1, b"a", False), (2, b"b", False)]
        site.broker.reservations.settle(site.broker.reservations.settlement(queue, "g", 2))
        assert site.broker.reservations.release(queue, "g") == (1, 0)
        assert site.contents("t") == [b"b", b"c"]
        assert not site.records(Kind.HELD, Kind.RELEASED)

    def test_reserved_messages_do_not_expire(self) -> None:
        site = Site(resident_limit=0)
        queue = site.queue("q")
        site.publish("q", b"old", ttl=5)
        site.publish("q", b"new", ttl=5000)
        site.turn()
        site = site.restart(resident_limit=0)
        queue = site.vhost.queue("q")
        site.broker.engine.now += 10
        assert site.broker.reservations.reserve(queue, "g", 2).added == 1
        site.after(10_000)
        assert read(site, queue, "g", 1, 2) == [(2, b"new", False)]
        site.broker.reservations.release(queue, "g")
        site.after(10)
        assert queue.ready == 0

    def test_limits_do_not_count_reserved_messages(self) -> None:
        site = Site()
        queue = site.queue("q", {"x-max-length-bytes": 6})
        site.publish("q", b"aa", b"bb", b"cc")
        site.broker.reservations.reserve(queue, "g", 2)
        site.publish("q", b"dd", b"ee", b"ff")
        site.turn()
        assert site.contents() == [b"dd", b"ee", b"ff"]
        site.broker.reservations.release(queue, "g")
        site.turn()
        assert site.contents() == [b"dd", b"ee", b"ff"]
        assert queue.bytes == 6

    def test_a_purge_keeps_reserved_messages(self, site: Site) -> None:
        queue = site.vhost.queue("q")
        site.broker.reservations.reserve(queue, "g", 4)
        assert site.broker.directory.purge(queue) == 6
        assert len(read(site, queue, "g", 1, 5)) == 4

    def test_a_queue_with_reservations_is_not_empty_and_is_deleted_with_them(self, site: Site) -> None:
        queue, reservations = site.vhost.queue("q"), site.broker.reservations
        reservations.reserve(queue, "g", 10)
        with pytest.raises(BrokerError, match="not empty"):
            site.broker.directory.delete_queue(queue, if_empty=True)
        work = reservations.settlement(queue, "g", 4)
        assert work is not None
        branch = site.begin()
        site.broker.transactions.settle_reservation(branch, work)
        site.broker.directory.delete_queue(queue)
        assert site.live() == 0
        assert site.broker.transactions.commit(branch).lsn == site.journal.end_lsn
        site.turn()
        again = site.restart()
        assert "q" not in again.vhost.queues
        assert not again.queue("q").reservations

    def test_invalid_reservations_are_refused(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        queue, reservations = site.vhost.queue("q"), site.broker.reservations
        stream = site.queue("s", {"x-queue-type": "stream"})
        with pytest.raises(BrokerError, match="is a stream, which is read without holding it") as caught:
            reservations.reserve(stream, "g", 1)
        assert caught.value.condition is Condition.PRECONDITION_FAILED
        consumer, _ = site.consume(queue, exclusive=True)
        with pytest.raises(BrokerError, match="in exclusive use") as caught:
            reservations.reserve(queue, "g", 1)
        assert caught.value.condition is Condition.ACCESS_REFUSED
        site.broker.engine.unsubscribe(consumer)
        monkeypatch.setattr(module, "GROUPS", 1)
        reservations.reserve(queue, "g", 1)
        with pytest.raises(BrokerError, match="remembers 1 groups") as caught:
            reservations.reserve(queue, "h", 1)
        assert caught.value.condition is Condition.LIMIT_EXCEEDED
        assert queue.ready == 9


@pytest.mark.rule("PIPE-1")
class TestSettling:
    def test_settling_is_cumulative_and_idempotent(self, site: Site) -> None:
        queue, reservations = site.vhost.queue("q"), site.broker.reservations
        reservations.reserve(queue, "g", 6)
        assert reservations.settlement(queue, "g", 1) is None
        reservations.settle(reservations.settlement(queue, "g", 4))
        assert reservations.settlement(queue, "g", 4) is None
        assert reservations.settlement(queue, "g", 2) is None
        assert reservations.settle(None) == site.journal.end_lsn
        assert reservations.reserve(queue, "g")[:4] == (4, 7, 0, 4)
        assert site.live() == 7
        batch = reservations.read(queue, "g", 1)
        assert (batch.first, batch.next) == (4, 7)
        batch = reservations.read(queue, "g", 1, 3)
        assert (batch.first, batch.next, len(batch)) == (3, 3, 0)

    def test_only_reserved_messages_can_be_settled(self, site: Site) -> None:
        queue, reservations = site.vhost.queue("q"), site.broker.reservations
        with pytest.raises(
            BrokerError, match=r"group 'g' holds messages .* below 1, it cannot settle below 2"
        ) as caught:
            reservations.settlement(queue, "g", 2)
        assert caught.value.condition is Condition.PRECONDITION_FAILED
        reservations.reserve(queue, "g", 3)
        with pytest.raises(BrokerError, match="below 4, it cannot settle below 5"):
            reservations.settlement(queue, "g", 5)

    def test_a_rollback_leaves_the_reservation_unchanged(self, site: Site) -> None:
        queue, reservations = site.vhost.queue("q"), site.broker.reservations
        reservations.reserve(queue, "g", 3)
        branch = site.begin()
        work = reservations.settlement(queue, "g", 3)
        assert work is not None
        site.broker.transactions.settle_reservation(branch, work)
        assert not branch.empty
        site.broker.transactions.rollback(branch)
        assert reservations.reserve(queue, "g")[:4] == (1, 4, 0, 1)
        assert not site.records(Kind.RELEASED)

    @pytest.mark.rule("TX-5")
    def test_a_settlement_and_publishes_are_one_record(self, site: Site) -> None:
        queue, reservations = site.vhost.queue("q"), site.broker.reservations
        site.queue("out")
        reservations.reserve(queue, "g", 3)
        branch = site.begin()
        site.broker.transactions.enlist(branch, site.publication("out", b"result"))
        work = reservations.settlement(queue, "g", 4)
        assert work is not None
        site.broker.transactions.settle_reservation(branch, work)
        site.broker.transactions.commit(branch)
        site.turn()
        assert len(site.records(Kind.COMMIT)) == 1
        again = site.restart()
        assert again.contents("out") == [b"result"]
        assert again.broker.reservations.reserve(again.vhost.queue("q"), "g")[:4] == (4, 4, 0, 4)

    def test_two_settlements_in_one_decision_settle_each_message_once(self, site: Site) -> None:
        queue, reservations = site.vhost.queue("q"), site.broker.reservations
        reservations.reserve(queue, "g", 6)
        branch = site.begin()
        for end in (4, 3, 6):
            work = reservations.settlement(queue, "g", end)
            assert work is not None
            site.broker.transactions.settle_reservation(branch, work)
        site.broker.transactions.commit(branch)
        site.turn()
        again = site.restart()
        assert again.live() == site.live() == 5
        assert again.broker.reservations.reserve(again.vhost.queue("q"), "g")[:4] == (6, 7, 0, 6)

    def test_a_release_before_the_commit_fails_the_whole_transaction(self, site: Site) -> None:
        queue, reservations = site.vhost.queue("q"), site.broker.reservations
        reservations.reserve(queue, "g", 3)
        branch = site.begin()
        site.broker.transactions.enlist(branch, site.publication("q", b"more"))
        work = reservations.settlement(queue, "g", 3)
        assert work is not None
        site.broker.transactions.settle_reservation(branch, work)
        reservations.release(queue, "g")
        with pytest.raises(BrokerError, match="have been released"):
            site.broker.transactions.commit(branch)
        assert queue.ready == 10
        with pytest.raises(BrokerError, match="have been released"):
            reservations.settlement(queue, "g", 3)
        reservations.reserve(queue, "g", 2)
        reservations.settle(reservations.settlement(queue, "g", 5))
        assert reservations.reserve(queue, "g")[:4] == (5, 6, 0, 5)


@pytest.mark.rule("ORD-2")
class TestReleasing:
    def test_released_messages_return_to_their_positions_as_delivered(self, site: Site) -> None:
        queue, reservations = site.vhost.queue("q"), site.broker.reservations
        reservations.reserve(queue, "g", 6)
        reservations.settle(reservations.settlement(queue, "g", 3))
        count, lsn = reservations.release(queue, "g")
        assert (count, lsn) == (4, site.journal.end_lsn)
        expected = [(i + 1, b"%d" % i, i < 6) for i in range(2, 10)]
        assert site.ready(queue) == expected
        assert reservations.release(queue, "g") == (0, 0)
        assert reservations.release(queue, "nobody") == (0, 0)
        site.turn()
        again = site.restart()
        assert again.ready(again.vhost.queue("q")) == expected
        batch = reservations.read(queue, "g", 3)
        assert (batch.first, len(batch)) == (7, 0)

    def test_consumers_get_released_messages(self, site: Site) -> None:
        queue, reservations = site.vhost.queue("q"), site.broker.reservations
        reservations.reserve(queue, "g", 10)
        _, sink = site.consume(queue, credit=20)
        site.turn()
        assert not sink.got
        reservations.release(queue, "g")
        site.turn()
        assert sink.contents == [b"%d" % i for i in range(10)]

    def test_released_messages_over_the_delivery_limit_are_dead_lettered(self) -> None:
        site = Site()
        queue = site.queue("q", {"x-queue-type": "quorum", "x-delivery-limit": 1, "x-dead-letter-exchange": ""})
        site.publish("q", b"a", b"b")
        for ready in (2, 0):
            site.broker.reservations.reserve(queue, "g", 2)
            assert site.broker.reservations.release(queue, "g")[0] == 2
            assert queue.ready == ready
        assert site.live() == 0

    def test_a_release_is_refused_while_a_prepared_transaction_settles_the_range(self, site: Site) -> None:
        queue, reservations = site.vhost.queue("q"), site.broker.reservations
        reservations.reserve(queue, "g", 3)
        work = reservations.settlement(queue, "g", 3)
        assert work is not None
        work.pledge(7)
        with pytest.raises(BrokerError, match="a prepared transaction settles") as caught:
            reservations.release(queue, "g")
        assert caught.value.condition is Condition.RESOURCE_LOCKED
        work.withdraw(7)
        assert reservations.release(queue, "g")[0] == 3


class TestStreams:
    def test_any_range_is_read_without_a_reservation(self) -> None:
        site = Site(resident_limit=0)
        queue = site.queue("s", {"x-queue-type": "stream"})
        for i in range(0, 10, 2):
            site.publish("s", b"%d" % i, b"%d" % (i + 1))
        assert site.broker.reservations.describe(queue) == ("stream", 1, 11, 10, queue.ident)
        assert read(site, queue, "", 1, 11, 3) == [(i + 1, b"%d" % i, False) for i in range(10)]
        assert [content for _, content, _ in read(site, queue, "", 4, 6)] == [b"3", b"4"]
        batch = site.broker.reservations.read(queue, "", 11)
        assert (batch.first, batch.next, len(batch)) == (11, 11, 0)

    def test_deleted_messages_are_skipped(self) -> None:
        site = Site()
        queue = site.queue("s", {"x-queue-type": "stream", "x-max-length-bytes": 4})
        for i in range(10):
            site.publish("s", b"%d" % i)
        batch = site.broker.reservations.read(queue, "", 1)
        assert (batch.first, batch.next) == (7, 11)
        assert site.broker.reservations.describe(queue)[:3] == ("stream", 7, 11)

    def test_unsynced_messages_are_not_read(self) -> None:
        site = Site()
        queue = site.queue("s", {"x-queue-type": "stream"})
        site.publish("s", b"a")
        branch = site.begin()
        site.broker.transactions.enlist(branch, site.publication("s", b"b"))
        site.broker.transactions.commit(branch)
        assert len(site.broker.reservations.read(queue, "", 1)) == 1
        site.sync()
        assert len(site.broker.reservations.read(queue, "", 1)) == 2

    def test_an_empty_stream_is_described(self) -> None:
        site = Site()
        queue = site.queue("s", {"x-queue-type": "stream"})
        assert site.broker.reservations.describe(queue) == ("stream", 1, 1, 0, queue.ident)
        assert len(site.broker.reservations.read(queue, "", 5)) == 0


def test_a_classic_queue_is_described(site: Site) -> None:
    queue = site.vhost.queue("q")
    assert site.broker.reservations.describe(queue) == ("classic", 1, 11, 10, queue.ident)
