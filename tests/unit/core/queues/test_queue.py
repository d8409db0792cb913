"""Queues: positions, limits, expiry, and the distribution among consumers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.queues.credit import Window
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.queue import Session
from escrowmq.core.topology.arguments.consumer import ConsumerOptions
from tests.unit.core.site import Sink, Site


@pytest.fixture
def site() -> Site:
    return Site()


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % i for i in range(first, first + count)]


class TestPositions:
    def test_positions_grow_by_one_and_are_never_reused(self, site: Site) -> None:
        queue = site.queue()
        site.publish("q", *numbered(3))
        assert [position for position, _, _ in site.ready(queue)] == [1, 2, 3]
        site.broker.directory.purge(queue)
        site.publish("q", b"x")
        assert site.ready(queue) == [(4, b"x", False)]

    @pytest.mark.rule("ORD-2")
    def test_a_requeued_message_returns_to_its_position_and_is_marked(self, site: Site) -> None:
        queue = site.queue()
        consumer, sink = site.consume(queue, credit=3)
        site.publish("q", *numbered(5))
        site.turn()
        assert sink.contents == numbered(3)
        site.broker.engine.unsubscribe(consumer)
        site.broker.engine.requeue(consumer, [sink.got[2][1], sink.got[0][1]])
        assert site.ready(queue) == [(1, b"0", True), (3, b"2", True), (4, b"3", False), (5, b"4", False)]
        assert queue.unsettled == 1

    @pytest.mark.rule("ORD-1")
    @given(st.lists(st.integers(1, 5), max_size=8), st.integers(1, 4))
    def test_deliveries_keep_the_order_of_publishing(self, runs: list[int], credit: int) -> None:
        site = Site(resident_limit=400)
        queue = site.queue()
        consumer, sink = site.consume(queue, credit=credit)
        wanted: list[bytes] = []
        for count in runs:
            contents = numbered(count, len(wanted))
            wanted += contents
            site.publish("q", *contents)
            site.turn()
        settled = 0
        while settled < len(wanted):
            entries = [entry for _, entry in sink.got[settled:]]
            assert 1 <= len(entries) <= credit
            settled += len(entries)
            site.broker.engine.settle(consumer, entries, Disposition.ACCEPTED)
            site.turn()
        assert sink.contents == wanted
        assert site.live() == 0


class TestExclusive:
    @pytest.mark.rule("EXC-2")
    def test_only_the_owner_may_use_an_exclusive_queue(self, site: Site) -> None:
        owner = Session("owner")
        queue = site.queue(exclusive=True, session=owner)
        queue.check_access(owner)
        for session in (Session("other"), None):
            with pytest.raises(BrokerError) as refused:
                queue.check_access(session)
            assert refused.value.condition is Condition.RESOURCE_LOCKED
            assert refused.value.text.startswith(
                "cannot obtain exclusive access to locked queue 'q' in vhost '/'. It could be originally declared"
            )

    @pytest.mark.rule("EXC-3")
    def test_an_exclusive_queue_is_always_transient(self, site: Site) -> None:
        before = site.journal.end_lsn
        owner = Session("owner")
        queue = site.queue(exclusive=True, durable=True, session=owner)
        site.publish("q", b"x")
        assert not queue.durable
        assert site.journal.end_lsn == before
        assert site.queue(exclusive=True, durable=True, session=owner) is queue
        assert "q" not in site.restart().vhost.queues


class TestLengthLimit:
    def test_the_oldest_messages_are_dropped(self, site: Site) -> None:
        queue = site.queue(arguments={"x-max-length": 3})
        site.publish("q", *numbered(5))
        site.turn()
        assert site.contents() == [b"2", b"3", b"4"]
        assert queue.bytes == 3
        assert site.live() == 3

    def test_the_length_can_be_limited_in_bytes(self, site: Site) -> None:
        queue = site.queue(arguments={"x-max-length-bytes": 10})
        site.publish("q", b"aaaa", b"bbbb", b"cccc", b"dddddddddddd", b"e")
        site.turn()
        assert site.contents() == [b"e"]
        assert queue.bytes == 1

    def test_a_message_larger_than_the_limit_is_dropped(self, site: Site) -> None:
        queue = site.queue(arguments={"x-max-length-bytes": 3})
        site.publish("q", b"aaaa")
        site.turn()
        assert site.contents() == []
        assert queue.bytes == 0

    def test_a_limit_of_zero_keeps_nothing(self, site: Site) -> None:
        queue = site.queue(arguments={"x-max-length": 0})
        site.publish("q", b"lost")
        site.turn()
        assert queue.ready == 0
        assert site.live() == 0

    def test_messages_with_a_waiting_consumer_are_not_dropped(self, site: Site) -> None:
        queue = site.queue(arguments={"x-max-length": 1})
        _, sink = site.consume(queue, credit=3)
        site.publish("q", *numbered(5))
        site.turn()
        assert sink.contents == numbered(3)
        assert site.contents() == [b"4"]

    def test_the_limit_holds_whenever_the_queue_is_inspected(self, site: Site) -> None:
        queue = site.queue(arguments={"x-max-length": 1})
        site.publish("q", *numbered(3))
        entry = site.broker.engine.get(queue, auto_settle=True)
        assert entry is not None
        assert entry.content == b"2"
        site.publish("q", *numbered(3))
        assert site.queue(arguments={"x-max-length": 1}).ready == 1
        site.publish("q", *numbered(3))
        assert site.broker.directory.purge(queue) == 1

    def test_unacknowledged_messages_count_only_after_they_are_requeued(self, site: Site) -> None:
        queue = site.queue(arguments={"x-max-length": 2})
        consumer, sink = site.consume(queue, credit=2)
        site.publish("q", *numbered(4))
        site.turn()
        assert sink.contents == numbered(2)
        site.broker.engine.unsubscribe(consumer)
        site.broker.engine.requeue(consumer, [entry for _, entry in sink.got])
        site.turn()
        assert site.contents() == [b"2", b"3"]
        assert site.live() == 2

    def test_bytes_are_counted_through_all_operations(self, site: Site) -> None:
        queue = site.queue(arguments={"x-max-length-bytes": 1000})
        site.publish("q", *[b"x" * 10] * 10)
        consumer, sink = site.consume(queue, credit=4)
        site.turn()
        assert queue.bytes == 60
        site.broker.engine.requeue(consumer, [sink.got[0][1]])
        site.broker.engine.unsubscribe(consumer)
        assert queue.bytes == 70
        site.broker.directory.purge(queue)
        assert queue.bytes == 0
        site.turn()
        assert site.restart().vhost.queue("q").bytes == 30, "the three unacknowledged messages"

    def test_a_full_queue_can_refuse_publishes(self, site: Site) -> None:
        queue = site.queue(arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
        assert site.publish("q", *numbered(4)).refused == (2, 3)
        assert site.contents() == [b"0", b"1"]
        assert queue.accepts(0, 0)
        assert not queue.accepts(1, 0)

    def test_a_queue_full_by_bytes_can_refuse_publishes(self, site: Site) -> None:
        site.queue(arguments={"x-max-length-bytes": 5, "x-overflow": "reject-publish"})
        assert site.publish("q", b"aaa", b"bbb", b"cc", b"").refused == (1,)
        assert site.contents() == [b"aaa", b"cc", b""]

    def test_a_refusing_queue_delivers_to_consumers_first(self, site: Site) -> None:
        queue = site.queue(arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        _, sink = site.consume(queue, credit=2)
        assert site.publish("q", *numbered(5)).refused == (3, 4)
        site.turn()
        assert sink.contents == numbered(2)
        assert site.contents() == [b"2"]


class TestTimeToLive:
    def test_the_queues_time_to_live_expires_messages(self, site: Site) -> None:
        queue = site.queue(arguments={"x-message-ttl": 100})
        site.publish("q", b"a")
        site.after(100)
        assert queue.ready == 1
        site.after(1)
        assert queue.ready == 0
        assert site.live() == 0

    def test_the_shorter_time_to_live_applies(self, site: Site) -> None:
        queue = site.queue(arguments={"x-message-ttl": 100})
        site.publish("q", b"short", ttl=50)
        site.publish("q", b"long", ttl=500)
        site.after(51)
        assert site.contents() == [b"long"]
        site.after(50)
        assert queue.ready == 0

    def test_a_messages_time_to_live_expires_it(self, site: Site) -> None:
        queue = site.queue()
        site.publish("q", b"stays")
        site.publish("q", b"goes", ttl=10)
        site.after(1000)
        assert queue.ready == 2, "it expires only at the head, as in RabbitMQ"
        _, sink = site.consume(queue)
        site.turn()
        assert sink.contents == [b"stays"]
        assert queue.ready == 0
        assert queue.unsettled == 1

    def test_a_waiting_consumer_gets_a_message_with_any_time_to_live(self, site: Site) -> None:
        queue = site.queue(arguments={"x-message-ttl": 0})
        consumer, sink = site.consume(queue, credit=1)
        site.publish("q", b"a", b"b")
        site.turn()
        assert sink.contents == [b"a"]
        site.after(1)
        assert queue.ready == 0
        site.broker.engine.settle(consumer, [sink.got[0][1]], Disposition.ACCEPTED)
        site.turn()
        assert site.live() == 0

    def test_time_to_live_continues_while_a_message_is_unacknowledged(self, site: Site) -> None:
        queue = site.queue(arguments={"x-message-ttl": 100})
        consumer, sink = site.consume(queue, credit=1)
        site.publish("q", b"a")
        site.turn()
        site.after(200)
        site.broker.engine.unsubscribe(consumer)
        site.broker.engine.requeue(consumer, [sink.got[0][1]])
        site.after(1)
        assert queue.ready == 0

    @pytest.mark.parametrize("limit", [1, 400, 1 << 20])
    def test_time_to_live_continues_after_a_restart(self, limit: int) -> None:
        first = Site()
        first.queue(arguments={"x-message-ttl": 100})
        first.queue("other")
        first.publish("q", *numbered(20))
        first.publish("other", *numbered(3), ttl=100)
        first.turn()
        first.broker.engine.now += 50
        second = first.restart(resident_limit=limit)
        second.after(50)
        assert second.contents() == numbered(20)
        second.after(1)
        assert second.contents() == []
        assert second.contents("other") == []
        assert second.live() == 0

    def test_get_skips_expired_messages(self, site: Site) -> None:
        queue = site.queue()
        site.publish("q", b"old", ttl=10)
        site.publish("q", b"new")
        site.broker.engine.now += 11
        entry = site.broker.engine.get(queue, auto_settle=True)
        assert entry is not None
        assert entry.content == b"new"
        assert site.broker.engine.get(queue, auto_settle=True) is None


class TestExpiry:
    def test_an_unused_queue_is_deleted(self, site: Site) -> None:
        site.queue(arguments={"x-expires": 100})
        site.after(99)
        assert "q" in site.vhost.queues
        site.after(1)
        assert "q" not in site.vhost.queues

    def test_a_queue_with_a_consumer_stays(self, site: Site) -> None:
        queue = site.queue(arguments={"x-expires": 100})
        consumer, _ = site.consume(queue)
        for _ in range(5):
            site.after(90)
        site.broker.engine.unsubscribe(consumer)
        site.after(99)
        assert "q" in site.vhost.queues
        site.after(1)
        assert "q" not in site.vhost.queues

    def test_declaring_and_getting_renew_the_lease(self, site: Site) -> None:
        queue = site.queue(arguments={"x-expires": 100})
        for _ in range(3):
            site.after(60)
            site.queue(arguments={"x-expires": 100})
            site.after(60)
            site.broker.engine.get(queue, auto_settle=True)
        site.publish("q", b"is no use")
        site.after(101)
        assert "q" not in site.vhost.queues

    def test_many_uses_cost_no_memory(self, site: Site) -> None:
        queue = site.queue(arguments={"x-expires": 100_000})
        for _ in range(1000):
            site.broker.engine.get(queue, auto_settle=True)
        assert len(site.broker.engine.deadlines) == 1

    def test_a_deleted_queue_leaves_no_deadline(self, site: Site) -> None:
        for _ in range(200):
            queue = site.queue(arguments={"x-expires": 100_000, "x-message-ttl": 50_000})
            site.publish("q", b"x")
            site.broker.directory.delete_queue(queue)
        assert site.broker.engine.next_deadline() is None
        site.after(200_000)

    def test_a_restart_renews_the_lease(self, site: Site) -> None:
        site.queue(arguments={"x-expires": 100})
        site.sync()
        site.broker.engine.now += 90
        second = site.restart()
        second.after(99)
        assert "q" in second.vhost.queues
        second.after(1)
        assert "q" not in second.vhost.queues


class TestServing:
    def test_consumers_take_turns(self, site: Site) -> None:
        queue = site.queue()
        sinks = [site.consume(queue, credit=10)[1] for _ in range(3)]
        for i in range(7):
            site.publish("q", b"%d" % i)
            site.turn()
        assert [sink.contents for sink in sinks] == [[b"0", b"3", b"6"], [b"1", b"4"], [b"2", b"5"]]

    def test_consumers_share_a_burst(self, site: Site) -> None:
        queue = site.queue()
        sinks = [site.consume(queue, credit=4)[1] for _ in range(3)]
        site.publish("q", *numbered(20))
        site.turn()
        assert [len(sink.got) for sink in sinks] == [4, 4, 4]
        assert queue.ready == 8
        assert queue.unsettled == 12
        for sink in sinks:
            assert sink.contents == sorted(sink.contents, key=int)

    def test_consumers_together_get_no_more_than_the_shared_window(self, site: Site) -> None:
        one, two = site.queue("one"), site.queue("two")
        window = Window(3)
        sinks = [site.consume(queue, credit=2, window=window)[1] for queue in (one, two)]
        site.publish("one", *numbered(5))
        site.publish("two", *numbered(5))
        site.turn()
        assert sum(len(sink.got) for sink in sinks) == 3
        consumer, entry = sinks[0].got[0]
        site.broker.engine.settle(consumer, [entry], Disposition.ACCEPTED)
        site.turn()
        assert sum(len(sink.got) for sink in sinks) == 4
        assert window.credit == 0

    def test_the_higher_priority_is_served_until_it_has_no_room(self, site: Site) -> None:
        queue = site.queue()
        _, low = site.consume(queue, credit=10)
        _, high = site.consume(queue, credit=2, options=ConsumerOptions(priority=5))
        site.publish("q", *numbered(5))
        site.turn()
        assert high.contents == numbered(2)
        assert low.contents == numbered(3, 2)

    def test_a_single_active_consumer_gets_everything(self, site: Site) -> None:
        queue = site.queue(arguments={"x-single-active-consumer": True})
        first, one = site.consume(queue, credit=2)
        _, two = site.consume(queue, credit=2)
        site.publish("q", *numbered(4))
        site.turn()
        assert (one.contents, two.contents) == (numbered(2), [])
        site.broker.engine.unsubscribe(first)
        site.turn()
        assert two.contents == numbered(2, 2)

    def test_a_full_receiver_gets_no_messages(self, site: Site) -> None:
        queue = site.queue()
        _, sink = site.consume(queue)
        sink.writable = False
        site.publish("q", b"x")
        site.turn()
        assert sink.contents == []
        sink.writable = True
        site.broker.engine.wake(*sink.waiting)
        site.turn()
        assert sink.contents == [b"x"]

    def test_messages_for_an_auto_settling_consumer_are_settled_on_delivery(self, site: Site) -> None:
        queue = site.queue()
        sinks = [site.consume(queue, auto_settle=True)[1] for _ in range(2)]
        site.publish("q", *numbered(5000))
        site.turn()
        assert sorted(int(content) for sink in sinks for content in sink.contents) == list(range(5000))
        assert (queue.unsettled, site.live()) == (0, 0)
        assert site.restart().contents() == []

    def test_more_consumers_than_messages_in_a_chunk_are_served(self, site: Site) -> None:
        queue = site.queue()
        sink = Sink()
        for _ in range(1100):
            site.consume(queue, sink, auto_settle=True)
        site.publish("q", *numbered(3000))
        site.turn()
        assert len(sink.got) == 3000

    def test_paged_content_is_released_when_it_is_settled(self) -> None:
        site = Site(resident_limit=400)
        queue = site.queue(durable=False)
        for i in range(50):
            site.publish("q", b"%d" % i, durable=False)
        assert site.live() > 0
        _, sink = site.consume(queue, auto_settle=True)
        site.turn()
        assert sink.contents == numbered(50)
        assert site.live() == 0


class TestEscrow:
    @pytest.mark.rule("TX-2")
    def test_unsynced_messages_and_their_successors_are_invisible(self, site: Site) -> None:
        queue = site.queue()
        branch = site.begin()
        site.broker.transactions.enlist(branch, site.publication("q", b"tx"))
        site.broker.transactions.commit(branch)
        site.publish("q", b"plain", durable=False)
        assert queue.ready == 0
        assert site.broker.engine.get(queue, auto_settle=True) is None
        site.sync()
        assert site.contents() == [b"tx", b"plain"]

    def test_unsynced_messages_count_for_the_limit(self, site: Site) -> None:
        queue = site.queue(arguments={"x-max-length": 3, "x-max-length-bytes": 5, "x-overflow": "reject-publish"})
        branch = site.begin()
        site.broker.transactions.enlist(branch, site.publication("q", b"four"))
        site.broker.transactions.commit(branch)
        assert queue.accepts(2, 1)
        assert not queue.accepts(3, 1)
        assert not queue.accepts(1, 2)

    def test_deleting_the_queue_releases_unsynced_messages(self, site: Site) -> None:
        queue = site.queue()
        branch = site.begin()
        site.broker.transactions.enlist(branch, site.publication("q", b"tx"))
        site.broker.transactions.commit(branch)
        site.broker.directory.delete_queue(queue)
        site.turn()
        assert site.live() == 0
