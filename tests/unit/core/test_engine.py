"""The engine: publishing, consuming, settling, memory."""

from __future__ import annotations

import tracemalloc
from functools import partial

import pytest

from escrowmq.core.branches.branch import Settlement
from escrowmq.core.budget import DEADLINE, TURN
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.records.kinds import Kind
from escrowmq.core.topology.arguments.consumer import ConsumerOptions, StreamOffset
from tests.unit.core.site import Sink, Site, dead_lettering, taken


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


def test_routing_to_a_missing_exchange_is_refused(site: Site) -> None:
    with pytest.raises(BrokerError, match="no exchange 'x' in vhost '/'"):
        site.broker.engine.route(site.vhost, Envelope("x", ""))
    assert site.broker.engine.route(site.vhost, Envelope("", "q")) == ()
    queue = site.queue()
    assert site.broker.engine.route(site.vhost, Envelope("", "no", extra_keys=("q", "q"))) == (queue,)


@pytest.mark.rule("FAIR-1")
def test_deadlines_that_are_due_together_are_met_in_several_turns_and_in_order(site: Site) -> None:
    engine, met = site.broker.engine, list[int]()
    for number in range(300):
        engine.deadlines.set(site.now, partial(met.append, number))
    engine.run_deadlines()
    assert 0 < len(met) <= TURN // DEADLINE + 1
    assert engine.next_deadline() == site.now
    while engine.next_deadline() is not None:
        engine.run_deadlines()
    assert met == list(range(300))
