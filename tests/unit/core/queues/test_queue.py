"""Queues: positions, limits, expiry, and the distribution among consumers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.queue import Session
from tests.unit.core.site import Site


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
