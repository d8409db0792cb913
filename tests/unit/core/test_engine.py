"""The engine: publishing, delivering, settling, dead-lettering, memory, turns."""

from __future__ import annotations

import tracemalloc

import pytest

from escrowmq.core.branches.branch import Settlement
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.entry import Entry
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.messages.marks import Marks, Modification
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.records.kinds import Kind
from escrowmq.core.recovery.relocation import Relocation
from escrowmq.core.topology.arguments.consumer import ConsumerOptions, StreamOffset
from tests.unit.core.site import Sink, Site, dead_lettering, taken
from tests.unit.core.xa_site import X, XaSite


@pytest.fixture
def site() -> Site:
    return Site()


class TestPublishing:
    def test_confirms_of_durable_messages_wait_for_the_record(self, site: Site) -> None:
        site.queue()
        site.queue("passing", durable=False)
        assert site.publish("q", b"x").lsn == site.journal.end_lsn > site.journal.synced_lsn
        assert site.publish("q", b"x", durable=False).lsn == 0
        assert site.publish("passing", b"x").lsn == 0

    def test_a_body_is_shared_by_all_queues(self, site: Site) -> None:
        for name in "abc":
            site.queue(name)
            site.broker.directory.bind_queue(site.vhost, "amq.fanout", name, "")
        before = site.journal.end_lsn
        site.publish("", b"x" * 1000, exchange="amq.fanout")
        assert site.journal.end_lsn - before < 1300
        assert site.live() == 3
        assert [site.contents(name) for name in "abc"] == [[b"x" * 1000]] * 3

    @pytest.mark.rule("DUR-1")
    def test_synced_messages_survive_a_restart(self, site: Site) -> None:
        site.queue()
        site.publish("q", b"a", b"b")
        site.publish("q", b"transient", durable=False)
        site.sync()
        site.publish("q", b"not synced")
        assert site.restart().contents() == [b"a", b"b"]

    @pytest.mark.parametrize("overflow", ["drop-head", "reject-publish-dlx"])
    def test_positions_are_correct_if_a_queue_overflows_into_another_of_the_same_publish(
        self, site: Site, overflow: str
    ) -> None:
        limited, dead = dead_lettering(site, max_length=1, overflow=overflow)
        for queue in (limited, dead):
            site.broker.directory.bind_queue(site.vhost, "amq.fanout", queue.name, "")
        for i in range(4):
            site.publish("", b"%d" % i, b"%d+" % i, exchange="amq.fanout")
        site.turn()
        again = site.restart()
        for name in ("q", "dead"):
            queue = site.vhost.queue(name)
            assert again.ready(again.vhost.queue(name)) == site.ready(queue)
            positions = [position for position, _, _ in site.ready(queue)]
            assert positions == sorted(set(positions))
        assert len(site.contents("dead")) == 8 + 7
        assert again.live() == site.live()

    def test_a_refused_message_may_be_dead_lettered(self, site: Site) -> None:
        dead_lettering(site, max_length=1, overflow="reject-publish-dlx")
        receipt = site.publish("q", b"a", b"b")
        assert receipt.refused == (1,)
        assert receipt.lsn == site.journal.end_lsn
        assert (site.contents(), site.contents("dead")) == ([b"a"], [b"b"])
        entry = site.vhost.queue("dead").take(1)[0]
        assert entry.run.envelope.deaths[0][:2] == ("q", "maxlen")

    @pytest.mark.parametrize("kind", ["quorum", "stream"])
    def test_replicated_queues_store_transient_messages_durably(self, site: Site, kind: str) -> None:
        site.queue("q", {"x-queue-type": kind})
        site.queue("classic")
        for name in ("q", "classic"):
            site.broker.directory.bind_queue(site.vhost, "amq.fanout", name, "")
        assert site.publish("", b"x", exchange="amq.fanout", durable=False).lsn == site.journal.end_lsn
        site.sync()
        assert site.restart().vhost.queue("q").ready == 1


class TestConsuming:
    def test_an_exclusive_consumer_excludes_others(self, site: Site) -> None:
        queue = site.queue()
        consumer, _ = site.consume(queue, exclusive=True)
        for exclusive in (True, False):
            with pytest.raises(BrokerError, match="queue 'q' in vhost '/' in exclusive use") as refused:
                site.consume(queue, exclusive=exclusive)
            assert refused.value.condition is Condition.ACCESS_REFUSED
        site.broker.engine.unsubscribe(consumer)
        site.consume(queue)
        with pytest.raises(BrokerError):
            site.consume(queue, exclusive=True)

    def test_an_auto_delete_queue_is_deleted_with_its_last_consumer(self, site: Site) -> None:
        queue = site.queue(auto_delete=True)
        one, two = site.consume(queue)[0], site.consume(queue)[0]
        site.broker.engine.unsubscribe(one)
        site.broker.engine.unsubscribe(one)
        assert "q" in site.vhost.queues
        site.broker.engine.unsubscribe(two)
        assert "q" not in site.vhost.queues

    def test_get_takes_the_first_message(self, site: Site) -> None:
        queue = site.queue()
        site.publish("q", b"a", b"b")
        first = site.broker.engine.get(queue, auto_settle=False)
        second = site.broker.engine.get(queue, auto_settle=True)
        assert first is not None
        assert second is not None
        assert (first.content, second.content, queue.unsettled) == (b"a", b"b", 1)
        assert site.broker.engine.get(queue, auto_settle=False) is None
        site.turn()
        again = site.restart()
        assert again.ready(again.vhost.queue("q")) == [(1, b"a", True)], "it may have been delivered"

    def test_get_from_a_stream_returns_nothing(self, site: Site) -> None:
        queue = site.queue("s", {"x-queue-type": "stream"})
        site.publish("s", b"a")
        assert site.broker.engine.get(queue, auto_settle=True) is None


class TestSettling:
    def test_an_accepted_message_is_removed(self, site: Site) -> None:
        queue = site.queue()
        site.publish("q", b"a", b"b")
        consumer, entries = taken(site, queue)
        site.broker.engine.settle(consumer, entries[1:], Disposition.ACCEPTED)
        site.turn()
        assert queue.unsettled == 1
        assert site.restart().contents() == [b"a"]

    @pytest.mark.parametrize("how", ["settle", "requeue", "commit"])
    def test_settling_after_the_queue_was_deleted_does_nothing(self, site: Site, how: str) -> None:
        queue, dead = dead_lettering(site)
        site.publish("q", b"a", b"b")
        consumer, entries = taken(site, queue)
        site.broker.directory.delete_queue(queue)
        assert site.live() == 2
        if how == "settle":
            site.broker.engine.settle(consumer, entries[:1], Disposition.ACCEPTED)
            site.broker.engine.settle(consumer, entries[1:], Disposition.REJECTED)
        elif how == "requeue":
            site.broker.engine.requeue(consumer, entries)
        else:
            branch = site.begin()
            for entry, said in zip(entries, (Disposition.ACCEPTED, Disposition.REJECTED), strict=True):
                site.broker.transactions.enlist(branch, Settlement(consumer, [entry], said))
            assert site.broker.transactions.commit(branch).lsn == site.broker.log.end_lsn, (
                "the answer depends on the deletion"
            )
        site.turn()
        assert (site.live(), dead.ready, queue.unsettled) == (0, 0, 0)
        assert site.restart().live() == 0

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

    @pytest.mark.rule("TX-5")
    def test_dead_letters_over_the_delivery_limit_are_part_of_the_transactions_record(self, site: Site) -> None:
        queue = site.queue(
            "q",
            {
                "x-queue-type": "quorum",
                "x-delivery-limit": 0,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": "dead",
            },
        )
        site.queue("dead")
        site.queue("other")
        site.publish("q", b"a")
        consumer, entries = taken(site, queue)
        branch = site.begin()
        site.broker.transactions.enlist(branch, site.publication("other", b"x"))
        site.broker.transactions.enlist(branch, Settlement(consumer, entries, Disposition.MODIFIED))
        site.sync()
        before = len(site.records(Kind.COMMIT))
        site.broker.transactions.commit(branch)
        site.sync()
        assert len(site.records(Kind.COMMIT)) == before + 1
        assert (site.contents(), site.contents("dead"), site.contents("other")) == ([], [b"a"], [b"x"])

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
            relocation = Relocation(site.broker, 0, site.journal.end_lsn)
            while relocation.step():
                pass
            assert relocation.moved == 2
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


class TestMemory:
    @pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 5}])
    def test_while_memory_is_short_new_messages_are_only_on_disk(self, arguments: dict[str, object]) -> None:
        site = Site(segment_bytes=1 << 20)
        queues = [site.queue(name, arguments) for name in ("a", "b")]
        contents = [b"%04d" % i + bytes(10_000) for i in range(90)]

        def publish(some: list[bytes]) -> None:
            for content in some:
                site.publish("a", content)
                site.publish("b", content, durable=False)
            site.turn()

        def in_memory() -> list[int]:
            return [len(queue.order.in_memory()) for queue in queues]

        publish(contents[:30])
        site.broker.engine.keep_less(on=True)
        publish(contents[30:60])
        assert in_memory() == [30, 30], "loaded messages stay, new ones are not loaded"
        late = site.queue("late", arguments)
        for content in contents:
            site.publish("late", content)
        assert len(late.order.in_memory()) < 10
        site.broker.engine.keep_less(on=False)
        publish(contents[60:])
        assert site.contents("a") == site.contents("b") == site.contents("late") == contents

    def test_a_stream_evicts_messages_that_are_on_disk(self) -> None:
        site = Site(segment_bytes=1 << 20)
        site.queue("s", {"x-queue-type": "stream"})
        for i in range(50):
            site.publish("s", b"%04d" % i + bytes(10_000))
        site.sync()
        tracemalloc.start()
        try:
            site.broker.engine.keep_less(on=True)
            site.publish("s", bytes(10_000))
            sink = Sink()
            first = ConsumerOptions(stream_offset=StreamOffset("first", 0))
            site.consume(site.vhost.queue("s"), sink, credit=100, options=first)
            site.turn()
            assert len(sink.got) == 51
            loaded = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert loaded > 400_000, "the messages were loaded from disk"


class TestTurns:
    def test_deliveries_are_known_after_a_crash(self, site: Site) -> None:
        queue = site.queue()
        site.publish("q", b"a", b"b", b"c")
        site.consume(queue, credit=2)
        site.turn()
        again = site.restart()
        assert again.ready(again.vhost.queue("q")) == [(1, b"a", True), (2, b"b", True), (3, b"c", False)]

    def test_an_idle_turn_writes_nothing(self, site: Site) -> None:
        site.queue()
        site.turn()
        before = site.journal.end_lsn
        site.turn()
        assert site.journal.end_lsn == before

    def test_a_deleted_queue_is_not_served(self, site: Site) -> None:
        queue = site.queue()
        sink = Sink()
        site.consume(queue, sink)
        sink.writable = False
        site.publish("q", b"x")
        site.broker.directory.delete_queue(queue)
        sink.writable = True
        site.turn()
        assert sink.contents == []
        assert len(sink.gone) == 1


def test_routing_to_a_missing_exchange_is_refused(site: Site) -> None:
    with pytest.raises(BrokerError, match="no exchange 'x' in vhost '/'"):
        site.broker.engine.route(site.vhost, Envelope("x", ""))
    assert site.broker.engine.route(site.vhost, Envelope("", "q")) == ()
    queue = site.queue()
    assert site.broker.engine.route(site.vhost, Envelope("", "no", extra_keys=("q", "q"))) == (queue,)
