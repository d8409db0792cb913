"""Dead letters leave one queue and enter others, in records of bounded length."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from escrowmq.core.budget import TURN
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues import dead_letters, deaths, lifetime
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.records.kinds import Kind
from tests.unit.core.site import Site, dead_lettering, taken


class Named:
    """A format whose content is the name of a header."""

    keyed = False

    def annotated(self, content: bytes, annotations: Mapping[str, bytes]) -> bytes:
        raise AssertionError("nobody annotates its messages")

    def single_out(self, envelope: Envelope, content: bytes) -> tuple[Envelope, bytes]:
        raise AssertionError("its messages share the routing key of the envelope")

    def headers(self, _envelope: Envelope, content: bytes) -> dict[str, int]:
        return {content.decode(): 1}


@pytest.fixture
def site() -> Site:
    return Site()


class TestLeaving:
    def test_a_rejected_message_is_dead_lettered(self, site: Site) -> None:
        queue, _ = dead_lettering(site)
        site.publish("q", b"a", b"b")
        consumer, entries = taken(site, queue)
        site.broker.engine.settle(consumer, entries, Disposition.REJECTED)
        site.turn()
        assert site.contents("dead") == [b"a", b"b"]
        for running in (site, site.restart()):
            assert (running.contents(), running.contents("dead")) == ([], [b"a", b"b"])
        assert site.live() == 2

    def test_leaving_one_queue_and_entering_another_are_one_record(self, site: Site) -> None:
        queue, _ = dead_lettering(site)
        site.publish("q", b"a")
        consumer, entries = taken(site, queue)
        site.broker.engine.settle(consumer, entries, Disposition.REJECTED)
        site.sync()
        assert len(site.records(Kind.COMMIT)) == 1
        assert site.records(Kind.SETTLE) == []

    def test_messages_that_expire_in_a_cycle_are_dropped(self, site: Site) -> None:
        """Two queues dead-letter to each other: order is kept, and a message is dropped at the end of a cycle without a
        reject.
        """
        site.queue("a", {"x-message-ttl": 10, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "b"})
        site.queue("b", {"x-message-ttl": 10, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "a"})
        site.publish("a", b"1", b"2")
        site.after(11)
        assert (site.contents("a"), site.contents("b")) == ([], [b"1", b"2"])
        site.after(11)
        assert (site.contents("a"), site.contents("b")) == ([], [])
        assert site.live() == 0

    def test_a_queue_that_dead_letters_to_itself(self, site: Site) -> None:
        queue = site.queue("q", {"x-dead-letter-exchange": "", "x-max-length": 1})
        site.publish("q", b"1", b"2", b"3")
        site.turn()
        assert site.contents() == [b"3"]
        consumer, entries = taken(site, queue)
        site.broker.engine.settle(consumer, entries, Disposition.REJECTED)
        site.turn()
        assert site.contents() == [b"3"], "a reject is a decision of the client"

    def test_a_missing_dead_letter_exchange_drops_the_message(self, site: Site) -> None:
        queue = site.queue("q", {"x-dead-letter-exchange": "nowhere"})
        site.publish("q", b"a")
        consumer, entries = taken(site, queue)
        site.broker.engine.settle(consumer, entries, Disposition.REJECTED)
        site.turn()
        assert site.live() == 0
        assert site.restart().contents() == []

    def test_headers_in_the_content_of_another_protocol_are_routed(self, site: Site) -> None:
        site.broker.directory.declare_exchange(site.vhost, "h", "headers", durable=True)
        site.queue("dead")
        site.broker.directory.bind_queue(site.vhost, "h", "dead", "", {"x-match": "all", "a": 1})
        site.queue("q", {"x-dead-letter-exchange": "h", "x-message-ttl": 1})
        site.broker.formats[7] = Named()
        site.publish("q", b"a", protocol=7)
        site.after(5)
        assert site.contents("dead") == [b"a"]

    @pytest.mark.parametrize("how", ["settled", "expired"])
    def test_many_dead_letters_at_once_are_divided_into_records(
        self, site: Site, how: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Any number of messages can be rejected at once, or have expired while the broker was down. The length of a
        record is limited, and a longer one would stop the broker, after each restart again.
        """
        monkeypatch.setattr(deaths, "BYTES", 10_000)
        monkeypatch.setattr(lifetime, "STEP_BYTES", 30_000)
        queue, _ = dead_lettering(site, **({"message_ttl": 10} if how == "expired" else {}))
        contents = [b"%03d" % i * 500 for i in range(100)]
        site.publish("q", *contents)
        site.turn()
        if how == "settled":
            consumer, entries = taken(site, queue)
            site.broker.engine.settle(consumer, entries, Disposition.REJECTED)
            site.turn()
        else:
            site.after(100)
            assert 0 < queue.ready < 100, "the rest waits for another turn"
            while queue.ready:
                site.after(1)
        assert max(map(len, site.records(Kind.COMMIT))) < 13_000
        for running in (site, site.restart()):
            assert (running.contents(), running.contents("dead")) == ([], contents)

    @pytest.mark.parametrize(("bound", "value"), [("BYTES", 10_000), ("COUNT", 7)])
    def test_headers_and_the_number_of_messages_count_for_the_length_of_a_record(
        self, site: Site, bound: str, value: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(deaths, bound, value)
        queue, dead = dead_lettering(site)
        for i in range(30):
            site.publish("q", b"%d" % i, header=b"%03d" % i * 500)
        consumer, entries = taken(site, queue)
        site.broker.engine.settle(consumer, entries, Disposition.REJECTED)
        assert max(map(len, site.records(Kind.COMMIT))) < 13_000
        assert dead.ready == 30

    def test_a_full_queue_does_not_refuse_a_dead_letter(self, site: Site) -> None:
        """No publisher could be told; RabbitMQ drops such a message."""
        site.queue("dead", {"x-max-length": 1, "x-overflow": "reject-publish"})
        queue = site.queue("q", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
        site.publish("q", b"a", b"b", b"c")
        consumer, entries = taken(site, queue)
        site.broker.engine.settle(consumer, entries, Disposition.REJECTED)
        site.turn()
        assert site.contents("dead") == site.restart().contents("dead") == [b"a", b"b", b"c"]
        assert site.publish("dead", b"d").refused == (0,)

    def test_a_dead_letter_to_a_replicated_queue_becomes_durable(self, site: Site) -> None:
        site.queue("dead", {"x-queue-type": "quorum"})
        site.queue("q", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-message-ttl": 1})
        site.publish("q", b"a", durable=False)
        site.after(5)
        assert site.restart().contents("dead") == [b"a"]


@pytest.mark.rule("DUR-5")
def test_dead_letters_for_very_many_queues_are_divided_into_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "PLACES", 20)
    site = Site()
    queue = site.queue("q", {"x-dead-letter-exchange": "amq.fanout"})
    for i in range(10):
        site.queue(f"dead {i}")
        site.broker.directory.bind_queue(site.vhost, "amq.fanout", f"dead {i}", "")
    for i in range(12):  # of differing envelopes, so that each is placed alone
        site.publish("q", b"%d" % i, priority=i % 2)
    consumer, entries = taken(site, queue)
    site.broker.engine.settle(consumer, entries, Disposition.REJECTED)
    site.turn()
    again = site.restart()
    assert again.contents("dead 3") == again.contents("dead 9") == [b"%d" % i for i in range(12)]
    commits = again.replayed
    assert max(len(payload) for _, kind, payload in commits if kind == Kind.COMMIT) < 1000


@pytest.mark.rule("FAIR-1")
def test_dead_letters_cost_work_for_each_of_their_queues() -> None:
    site = Site()
    for number in range(200):
        site.queue(f"q{number}")
        site.vhost.bind_queue("amq.fanout", f"q{number}", "")
    queue = site.queue("source", {"x-dead-letter-exchange": "amq.fanout"})
    site.publish("source", b"x", b"y")
    consumer, entries = taken(site, queue)
    engine = site.broker.engine
    engine.requests.renew()
    engine.settle(consumer, entries, Disposition.REJECTED)
    assert engine.requests.left <= TURN - 2 * 200 // 8
