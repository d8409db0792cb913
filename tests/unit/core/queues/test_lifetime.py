"""Messages expire, and so do queues that are not used."""

from __future__ import annotations

import pytest

from escrowmq.core.queues import portions
from escrowmq.core.queues.outcome import Disposition
from tests.unit.core.site import Site


@pytest.fixture
def site() -> Site:
    return Site()


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % i for i in range(first, first + count)]


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


@pytest.mark.rule("FAIR-1")
def test_few_messages_expire_together_while_dead_letters_go_to_many_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions, "TOGETHER", 80)
    site = Site()
    for number in range(16):
        site.queue(f"dead {number}")
        site.vhost.bind_queue("amq.fanout", f"dead {number}", "")
    dead = site.vhost.queue("dead 7")
    queue = site.queue("source", {"x-dead-letter-exchange": "amq.fanout", "x-message-ttl": 5})
    site.publish("source", *[b"x"] * 23)
    site.now += 10
    site.broker.engine.run_deadlines()
    assert (dead.ready, queue.ready) == (5, 18)
    for _ in range(4):
        site.after(10)
    assert (dead.ready, queue.ready) == (23, 0)
