"""Deliveries return to their places, with their counts and marks, until the delivery limit."""

from __future__ import annotations

import pytest

from escrowmq.core.branches.branch import Settlement
from escrowmq.core.messages.entry import Entry
from escrowmq.core.messages.marks import Marks, Modification
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.records.kinds import Kind
from escrowmq.core.topology.arguments.consumer import ConsumerOptions, StreamOffset
from tests.unit.core.site import Site, dead_lettering, taken
from tests.unit.core.xa_site import X, XaSite


@pytest.fixture
def site() -> Site:
    return Site()


class TestDeliveryLimit:
    def test_a_message_over_the_delivery_limit_is_dead_lettered(self, site: Site) -> None:
        dead = site.queue("dead")
        queue = site.queue(
            "q",
            {
                "x-queue-type": "quorum",
                "x-delivery-limit": 2,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": "dead",
            },
        )
        site.publish("q", b"poison")
        running = site
        for round_ in range(3):
            queue = running.vhost.queue("q")
            consumer, entries = taken(running, queue, credit=1)
            assert entries[0].deliveries == round_
            running.broker.engine.requeue(consumer, entries)
            running.turn()
            if round_ == 0:
                running = running.restart()
            elif round_ == 1:
                running.snapshot()
                running = running.restart().restart()
        assert (running.contents(), running.contents("dead")) == ([], [b"poison"])
        entry = running.vhost.queue("dead").take(1)[0]
        assert entry.run.envelope.deaths[0][:2] == ("q", "delivery_limit")
        assert dead.ready == 0

    def test_delivery_counts_of_paged_messages_survive_snapshots(self, site: Site) -> None:
        queue = site.queue("q", {"x-queue-type": "quorum", "x-delivery-limit": 9})
        for i in range(20):
            site.publish("q", b"%d" % i)
        for _ in range(2):
            consumer, entries = taken(site, queue)
            site.broker.engine.requeue(consumer, entries)
        site.turn()
        again = site.restart(resident_limit=400)
        again.snapshot()
        again = again.restart()
        queue = again.vhost.queue("q")
        found: list[Entry] = []
        while queue.ready:
            found += queue.take(20)
        assert [entry.deliveries for entry in found] == [2] * 20


class TestMarks:
    def test_a_release_counts_as_a_delivery_and_not_as_a_failure(self, site: Site) -> None:
        queue, dead = dead_lettering(site, queue_type="quorum", delivery_limit=1)
        site.publish("q", b"a")
        consumer, entries = taken(site, queue)
        site.broker.engine.release(consumer, entries)
        for _ in range(4):
            consumer, entries = taken(site, queue)
            site.broker.engine.release(consumer, entries)
        site.turn()
        assert site.ready(queue) == [(1, b"a", True)]
        assert (queue.unsettled, queue.failures(entries[0]), entries[0].deliveries) == (0, 0, 5)
        for left in ([b"a"], []):
            consumer, entries = taken(site, queue)
            site.broker.engine.requeue(consumer, entries)
            site.turn()
            assert site.contents() == left
        assert site.contents("dead") == [b"a"]
        assert (queue.marks, dead.marks) == ({}, {})

    def test_a_requeue_before_a_release_counts_as_a_failure(self, site: Site) -> None:
        queue, _ = dead_lettering(site, queue_type="quorum", delivery_limit=1)
        site.publish("q", b"a")
        consumer, entries = taken(site, queue)
        site.broker.engine.requeue(consumer, entries)
        consumer, entries = taken(site, queue)
        site.broker.engine.release(consumer, entries)
        assert queue.failures(entries[0]) == 1
        consumer, entries = taken(site, queue)
        site.broker.engine.requeue(consumer, entries)
        site.turn()
        assert (site.contents(), site.contents("dead")) == ([], [b"a"])

    def test_a_modification_counts_as_a_failure_if_it_says_so(self, site: Site) -> None:
        queue, _ = dead_lettering(site, queue_type="quorum", delivery_limit=1)
        site.publish("q", b"a")
        for left in ([b"a"], []):
            consumer, entries = taken(site, queue)
            site.broker.engine.modify(consumer, entries, Modification(failed=True))
            site.turn()
            assert site.contents() == left
        assert site.contents("dead") == [b"a"]
        again = site.restart()
        assert (again.contents(), again.contents("dead")) == ([], [b"a"])

    @pytest.mark.rule("ORD-2")
    def test_a_modified_message_returns_to_its_position(self, site: Site) -> None:
        queue = site.queue()
        site.publish("q", *[b"%d" % i for i in range(4)])
        consumer, entries = taken(site, queue)
        site.broker.engine.modify(consumer, entries[1:3], Modification(annotations={"x": b"1"}, excluded="link"))
        site.broker.engine.release(consumer, entries[:1])
        site.broker.engine.requeue(consumer, entries[3:])
        assert site.ready(queue) == [(i + 1, b"%d" % i, True) for i in range(4)]
        marked = Marks(0, {"x": b"1"}, frozenset({"link"}))
        assert queue.marks == {1: Marks(), 2: marked, 3: marked}

    @pytest.mark.parametrize("with_snapshot", [False, True])
    @pytest.mark.parametrize("state", ["ready", "unsettled", "locked", "reserved", "moved"])
    def test_marks_survive_a_restart(self, state: str, with_snapshot: bool) -> None:
        site = XaSite()
        site.publish("q", b"a", b"b")
        consumer, entries = taken(site, site.q)
        site.broker.engine.modify(consumer, entries[:1], Modification(True, {"x": b"1"}, "link"))
        site.broker.engine.requeue(consumer, entries[1:])
        site.turn()
        if state == "unsettled":
            _, sink = site.consume(site.q)
            site.broker.engine.holders[sink] = None
            site.turn()
        elif state == "locked":
            site.prepared(settle=2, publish=())
        elif state == "reserved":
            site.broker.reservations.reserve(site.q, "group", 10)
        elif state == "moved":
            assert site.compact() == 2
        if with_snapshot:
            site.snapshot()
        site.turn()
        again = XaSite.restart(site)
        assert again.q.marks == {1: Marks(1, {"x": b"1"}, frozenset({"link"}))}
        if state == "locked":
            again.coordinator.rollback(X)
            again.turn()
        if state != "reserved":
            consumer, entries = taken(again, again.q)
            assert [entry.position for entry in entries] == [1, 2]
            again.broker.engine.settle(consumer, entries, Disposition.ACCEPTED)
            again.turn()
            assert again.q.marks == again.restart().q.marks == {}

    @pytest.mark.parametrize("how", ["accepted", "rejected", "committed", "purged", "expired", "reserved", "got"])
    def test_a_message_that_leaves_drops_its_marks(self, how: str) -> None:
        site = XaSite()
        queue = site.queue("marked", {"x-message-ttl": 1000} if how == "expired" else {})
        site.publish("marked", b"a", b"b")
        consumer, entries = taken(site, queue)
        site.broker.engine.modify(consumer, entries, Modification(failed=True))
        assert set(queue.marks) == {1, 2}
        if how == "purged":
            site.broker.directory.purge(queue)
        elif how == "expired":
            site.after(1002)
        elif how == "got":
            assert site.broker.engine.get(queue, auto_settle=True)
            assert site.broker.engine.get(queue, auto_settle=True)
        elif how == "reserved":
            site.turn()
            site.broker.reservations.reserve(queue, "group", 10)
            work = site.broker.reservations.settlement(queue, "group", 3)
            site.broker.reservations.settle(work)
        else:
            consumer, entries = taken(site, queue)
            if how == "committed":
                branch = site.begin()
                site.broker.transactions.enlist(branch, Settlement(consumer, entries, Disposition.ACCEPTED))
                site.broker.transactions.commit(branch)
            else:
                site.broker.engine.settle(consumer, entries, Disposition[how.upper()])
        site.turn()
        assert queue.ready == 0
        assert queue.marks == {}

    def test_marks_of_transient_messages_are_not_recorded(self, site: Site) -> None:
        queue = site.queue()
        site.publish("q", b"a", durable=False)
        consumer, entries = taken(site, queue)
        site.broker.engine.modify(consumer, entries, Modification(failed=True))
        assert queue.marks == {1: Marks(1)}
        assert site.records(Kind.MARKED) == []

    @pytest.mark.parametrize("kind", ["deleted", "stream"])
    def test_streams_and_deleted_queues_record_no_marks(self, site: Site, kind: str) -> None:
        queue = site.queue("q", {"x-queue-type": "stream"} if kind == "stream" else {})
        site.publish("q", b"a")
        options = ConsumerOptions(stream_offset=StreamOffset("first"))
        consumer, sink = site.consume(queue, options=options) if kind == "stream" else site.consume(queue)
        site.turn()
        if kind == "deleted":
            site.broker.directory.delete_queue(queue)
        site.broker.engine.modify(consumer, [entry for _, entry in sink.got], Modification(failed=True))
        assert queue.marks == {}
        assert site.live() == (1 if kind == "stream" else 0)


@pytest.mark.parametrize("before", [0, 2])
def test_what_is_put_back_is_as_before_its_delivery(site: Site, before: int) -> None:
    queue = site.queue()
    site.publish("q", b"1", b"2")
    for _ in range(before):
        site.broker.engine.requeue(*taken(site, queue))
    consumer, entries = taken(site, queue)
    site.broker.engine.put_back(consumer, entries)
    site.turn()
    assert (queue.ready, queue.unsettled) == (2, 0)
    _, entries = taken(site, queue)
    assert [(entry.content, entry.deliveries) for entry in entries] == [(b"1", before), (b"2", before)]


def test_nothing_is_put_back_into_a_deleted_queue(site: Site) -> None:
    queue = site.queue()
    site.publish("q", b"1")
    consumer, entries = taken(site, queue)
    site.broker.directory.delete_queue(queue)
    site.broker.engine.put_back(consumer, entries)
    assert (queue.ready, queue.unsettled) == (0, 0)
