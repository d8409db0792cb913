"""The budget of a turn is counted in work; a turn that has used it up leaves the rest to the next turn."""

from __future__ import annotations

import pytest

from escrowmq.core.budget import SENT_BYTES, SHARE, TURN, Budget
from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.serving import CHUNK
from tests.unit.core.site import Site


def entries(count: int, *, alike: bool) -> list[Entry]:
    run = Run(Envelope("", "q"), 1, 0)
    return [Entry(1 + i, b"", run if alike else Run(run.envelope, 1 + i, 0)) for i in range(count)]


def spent(budget: Budget) -> int:
    return TURN - budget.left


def test_entries_of_one_run_cost_a_quarter_of_those_with_runs_of_their_own() -> None:
    alike, different = Budget(), Budget()
    alike.charge(entries(400, alike=True))
    different.charge(entries(400, alike=False))
    assert (spent(alike), spent(different)) == (101, 401)


def test_even_a_single_entry_costs_something() -> None:
    budget = Budget()
    budget.charge(entries(1, alike=True))
    assert spent(budget) > 0


def test_each_consumer_costs_something() -> None:
    one, several = Budget(), Budget()
    one.charge(entries(100, alike=False))
    several.charge(entries(100, alike=False), 50)
    assert spent(several) == spent(one) + 49


@pytest.mark.rule("FAIR-1")
def test_the_bytes_of_large_messages_cost_something() -> None:
    small, large = Budget(), Budget()
    small.charge(entries(4, alike=True))
    run = Run(Envelope("", "q"), 1, 0)
    large.charge([Entry(1 + i, bytes(SENT_BYTES), run) for i in range(4)])
    assert spent(large) == spent(small) + 4


def test_each_turn_has_its_own_budget() -> None:
    budget = Budget()
    budget.charge(entries(5000, alike=False))
    assert budget.left < 0
    budget.renew()
    assert budget.left == TURN


@pytest.mark.rule("FAIR-1")
def test_a_client_that_is_served_late_has_a_share() -> None:
    budget = Budget()
    budget.left = -5
    budget.admit()
    assert budget.left == SHARE
    budget.left = SHARE + 1
    budget.admit()
    assert budget.left == SHARE + 1


@pytest.mark.rule("FAIR-1")
class TestTurns:
    def published(self, site: Site, key: str, count: int = 4000) -> list[bytes]:
        contents = [b"%d" % i for i in range(count)]
        for content in contents:
            site.publish(key, content)
        return contents

    def test_a_long_queue_is_delivered_over_several_turns_in_order(self) -> None:
        site = Site()
        queue = site.queue()
        contents = self.published(site, "q")
        _, sink = site.consume(queue)
        turns = 0
        while site.broker.engine.dirty:
            site.broker.engine.turn.end()
            turns += 1
        assert turns >= 3
        assert sink.contents == contents

    def test_it_tells_whether_publishers_outpace_consumers(self) -> None:
        site = Site()
        queue, unread = site.queue(), site.queue("unread")
        budget = site.broker.engine.budget
        site.consume(queue, credit=10)
        for name, count, outpaced in (("q", CHUNK + 10, False), ("q", 1, True), ("unread", 2 * CHUNK, True)):
            site.publish(name, *[b"x"] * count)
            site.turn()
            assert budget.outpaced == outpaced, (name, count)
        queue.order.take(2)
        site.publish("q", b"x")
        site.turn()
        assert not budget.outpaced
        assert len(unread.order) == 2 * CHUNK

    def test_queues_take_turns(self) -> None:
        site = Site()
        queues = [site.queue(name) for name in "abc"]
        for queue in queues:
            self.published(site, queue.name)
        sinks = [site.consume(queue)[1] for queue in queues]
        for served in (1, 2, 3):
            site.broker.engine.turn.end()
            assert sum(1 for sink in sinks if sink.got) == served
        assert all(queue in site.broker.engine.dirty for queue in queues)

    def test_a_stream_is_read_over_several_turns(self) -> None:
        site = Site()
        queue = site.queue("s", {"x-queue-type": "stream"})
        _, sink = site.consume(queue)
        contents = self.published(site, "s")
        site.broker.engine.turn.end()
        assert 0 < len(sink.got) < len(contents)
        while site.broker.engine.dirty:
            site.broker.engine.turn.end()
        assert sink.contents == contents

    def test_messages_that_a_consumer_gets_in_the_next_turn_are_not_dropped(self) -> None:
        site = Site()
        queue = site.queue(arguments={"x-max-length": 10})
        _, sink = site.consume(queue)
        contents = self.published(site, "q")
        while site.broker.engine.dirty:
            site.broker.engine.turn.end()
        assert sink.contents == contents

    def test_a_purge_removes_only_messages_that_no_consumer_can_get(self) -> None:
        site = Site()
        queue = site.queue(arguments={"x-max-length": 10})
        _, sink = site.consume(queue)
        contents = self.published(site, "q")
        assert site.broker.directory.purge(queue) == 0
        assert sink.contents == contents

    def test_a_message_for_this_turn_only_does_not_wait_for_the_next(self) -> None:
        site = Site()
        queue = site.queue(arguments={"x-message-ttl": 0})
        _, sink = site.consume(queue)
        contents = self.published(site, "q")
        site.broker.engine.turn.end()
        assert sink.contents == contents

    def test_a_drain_ends_when_everything_has_been_delivered(self) -> None:
        site = Site()
        queue = site.queue()
        contents = self.published(site, "q")
        consumer, sink = site.consume(queue, credit=5000)
        consumer.drain()
        site.broker.engine.turn.end()
        assert not sink.drains
        while site.broker.engine.dirty:
            site.broker.engine.turn.end()
        assert len(sink.got) == len(contents)
        assert sink.drains == [(consumer, 1000)]

    def test_a_turn_delivers_fewer_entries_if_they_must_be_loaded(self) -> None:
        delivered = []
        for limit in (1000, 1 << 20):
            site = Site(resident_limit=limit)
            queue = site.queue()
            self.published(site, "q")
            _, sink = site.consume(queue)
            site.broker.engine.turn.end()
            delivered.append(len(sink.got))
        paged, resident = delivered
        assert 0 < 2 * paged < resident
