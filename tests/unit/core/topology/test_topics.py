"""Topics: declared with their streams, grown, deleted, and found again after a restart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from escrowmq.core.budget import DECLARED, TURN
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.queue import Session
from escrowmq.core.topology.declaration import Declaration
from escrowmq.core.topology.partitions import NewStream
from escrowmq.core.topology.topics import Topic
from tests.unit.core.site import Site


class Json:
    """A format with the headers as JSON in the envelope."""

    keyed = False

    def annotated(self, content: bytes, annotations: Mapping[str, bytes]) -> bytes:
        raise AssertionError("nobody annotates its messages")

    def headers(self, envelope: Envelope, content: bytes) -> Mapping[str, Any]:
        return json.loads(envelope.header or b"{}")  # type: ignore[no-any-return]

    def single_out(self, envelope: Envelope, content: bytes) -> tuple[Envelope, bytes]:
        return envelope, content


@pytest.fixture
def site() -> Site:
    return started(Site())


def started(site: Site) -> Site:
    site.broker.formats[0] = Json()
    return site


def declare(site: Site, partitions: int = 3, message_type: str = "normal", **arguments: object) -> Topic:
    return site.broker.topics.declare(
        site.vhost,
        "t",
        partitions,
        message_type,
        arguments={f"x-{k.replace('_', '-')}": v for k, v in arguments.items()},
    )


def found(site: Site) -> Topic:
    topic = site.broker.topics.find(site.vhost, "t")
    assert topic is not None
    return topic


def send(site: Site, content: bytes, headers: Mapping[str, object] | None = None) -> None:
    site.publish("", content, exchange="t", header=json.dumps(headers).encode() if headers else b"")


def bodies(topic: Topic) -> list[list[bytes]]:
    return [[entry.content for entry in stream.read(1, 100)] for stream in topic.streams]


def test_a_topic_has_a_stream_for_each_partition(site: Site) -> None:
    topic = declare(site)
    assert [stream.name for stream in topic.streams] == ["t-0", "t-1", "t-2"]
    assert all(stream.is_stream and stream.durable for stream in topic.streams)
    assert (topic.name, topic.vhost, topic.message_type) == ("t", "/", "normal")
    assert site.broker.topics.all(site.vhost) == [topic]


def test_messages_go_to_the_partition_that_they_name(site: Site) -> None:
    topic = declare(site)
    for i in (2, 0, 2):
        send(site, b"m%d" % i, {"x-partition": i})
    assert bodies(topic) == [[b"m0"], [], [b"m2"]]
    assert [entry.content for entry in topic.streams[2].read(2, 9)] == [b"m2"]


def test_messages_are_not_durable_only_by_their_own_wish(site: Site) -> None:
    declare(site)
    site.publish("", b"m", exchange="t", durable=False)
    site.turn()
    assert [b"m"] in bodies(found(started(site.restart())))


@pytest.mark.rule("DLY-1")
def test_a_delayed_message_takes_its_position_when_it_is_due(site: Site) -> None:
    topic = declare(site)
    send(site, b"late", {"x-delay": 1000, "x-partition": 1})
    send(site, b"early", {"x-partition": 1})
    site.after(999)
    assert bodies(topic) == [[], [b"early"], []]
    site.after(1)
    assert [entry.content for entry in topic.streams[1].read(2, 1)] == [b"late"]


def test_a_topic_survives_a_restart_and_a_snapshot(site: Site) -> None:
    declare(site, 3, "fifo", max_length_bytes=10_000)
    send(site, b"m", {"x-partition": 1})
    site.turn()
    for _ in range(2):
        site = started(site.restart())
        topic = found(site)
        assert topic.message_type == "fifo"
        assert bodies(topic) == [[], [b"m"], []]
        assert [stream.options.max_length_bytes for stream in topic.streams] == [10_000] * 3
        site.snapshot()


def test_a_topic_grows_and_never_shrinks(site: Site) -> None:
    declare(site, 2)
    assert len(declare(site, 4).streams) == 4
    assert len(declare(site, 1).streams) == 4
    site.sync()
    assert [stream.name for stream in found(site.restart()).streams] == ["t-0", "t-1", "t-2", "t-3"]


def test_the_type_of_a_topic_cannot_be_changed(site: Site) -> None:
    declare(site, 2)
    with pytest.raises(BrokerError, match="topic 't' in vhost '/' has type normal, which cannot be changed; delete it"):
        declare(site, 4, "transaction")
    assert len(found(site).streams) == 2


def test_declaring_it_again_without_a_number_does_not_make_it_grow(site: Site) -> None:
    declare(site, 2)
    site.broker.directory.declare_exchange(
        site.vhost, "t", "x-partitioned", durable=True, arguments={"x-message-type": "normal"}
    )
    assert len(found(site).streams) == 2


def test_a_crash_leaves_a_topic_whole_or_not_at_all(site: Site) -> None:
    declare(site, 3)
    assert site.restart().vhost.exchanges.get("t") is None
    site.sync()
    assert len(found(site.restart()).streams) == 3


def test_deleting_a_topic_deletes_its_streams(site: Site) -> None:
    declare(site)
    send(site, b"m")
    site.broker.topics.delete(site.vhost, "t")
    site.broker.topics.delete(site.vhost, "t")
    site.turn()
    for each in (site, site.restart()):
        assert each.vhost.queues == {}
        assert each.broker.topics.find(each.vhost, "t") is None
    assert site.live() == 0


def test_a_stream_cannot_be_deleted_or_unbound_alone(site: Site) -> None:
    topic = declare(site)
    with pytest.raises(BrokerError, match="delete the topic"):
        site.broker.directory.delete_queue(topic.streams[1])
    with pytest.raises(BrokerError, match="cannot be unbound"):
        site.broker.directory.unbind_queue(site.vhost, "t", "t-1", "1")
    assert len(topic.streams) == 3


def test_a_virtual_host_is_deleted_with_its_topics(site: Site) -> None:
    declare(site)
    site.broker.directory.delete_vhost("/")
    site.sync()
    assert site.restart().broker.topics.all(site.restart().vhost) == []


@pytest.mark.parametrize("what", ["another message type", "another exchange", "a queue in the way", "too many queues"])
def test_a_topic_that_cannot_be_declared_leaves_nothing(site: Site, what: str) -> None:
    if what == "another message type":
        declare(site, 1, "fifo")
    elif what == "another exchange":
        site.broker.directory.declare_exchange(site.vhost, "t", "direct", durable=True)
    elif what == "a queue in the way":
        site.queue("t-1")
    else:
        site.broker.access.defaults = replace(site.broker.access.defaults, queues_of_vhost=2)
    queues = list(site.vhost.queues)
    with pytest.raises(BrokerError) as caught:
        declare(site)
    assert caught.value.condition is Condition.PRECONDITION_FAILED
    assert list(site.vhost.queues) == queues


def test_a_wrong_argument_for_the_streams_leaves_nothing(site: Site) -> None:
    with pytest.raises(BrokerError, match="x-max-age"):
        declare(site, max_age="odd")
    assert "t" not in site.vhost.exchanges


@pytest.mark.rule("FAIR-3")
def test_no_topic_is_made_and_none_grows_while_memory_is_scarce(site: Site) -> None:
    declare(site, 2)
    site.broker.engine.scarcity = "short of memory"
    declare(site, 2)
    with pytest.raises(BrokerError, match="short of memory"):
        declare(site, 3)
    with pytest.raises(BrokerError, match="short of memory"):
        site.broker.topics.declare(site.vhost, "other")
    assert list(site.vhost.queues) == ["t-0", "t-1"]


def test_a_client_can_declare_a_stream_again(site: Site) -> None:
    topic = declare(site)
    declaration = Declaration(durable=True, arguments={"x-queue-type": "stream"})
    assert site.broker.directory.declare_queue(site.vhost, "t-1", declaration, Session("c")) is topic.streams[1]


class TestStreamsById:
    """A stream's id leads to its topic, without a walk over all topics for each lookup."""

    def test_a_stream_is_found_until_its_topic_is_deleted(self, site: Site) -> None:
        topics, budget = site.broker.topics, site.broker.engine.requests
        first = declare(site, 2)
        assert topics.of_stream(site.vhost, first.streams[1].ident, budget) == (first, 1)
        grown = declare(site, 3)
        assert topics.of_stream(site.vhost, grown.streams[2].ident, budget) == (grown, 2)
        ident = first.streams[1].ident
        topics.delete(site.vhost, "t")
        assert topics.of_stream(site.vhost, ident, budget) is None
        again = declare(site, 2)
        assert topics.of_stream(site.vhost, ident, budget) is None
        assert topics.of_stream(site.vhost, again.streams[0].ident, budget) == (again, 0)

    def test_queues_streams_of_other_virtual_hosts_and_unknown_ids_are_not_found(self, site: Site) -> None:
        topics, budget = site.broker.topics, site.broker.engine.requests
        ident = declare(site).streams[0].ident
        site.broker.directory.add_vhost("other")
        other = site.broker.directory.vhost("other")
        queue = site.broker.directory.declare_queue(site.vhost, "q", Declaration(durable=True), Session("s"))
        assert topics.of_stream(other, ident, budget) is None
        assert topics.of_stream(site.vhost, queue.ident, budget) is None
        assert topics.of_stream(site.vhost, 1 << 40, budget) is None

    def test_lookups_cost_a_walk_only_after_declarations(self, site: Site) -> None:
        topics, budget = site.broker.topics, site.broker.engine.requests
        topic = declare(site)
        topics.of_stream(site.vhost, topic.streams[0].ident, budget)
        left = budget.left
        for ident in (topic.streams[1].ident, 1 << 40, 0):
            topics.of_stream(site.vhost, ident, budget)
        assert budget.left == left


@pytest.mark.rule("FAIR-1")
class TestManyPartitions:
    def made(self, site: Site, partitions: int, **arguments: object) -> tuple[list[NewStream], list[int]]:
        """Return the streams that were made, and how many more there were in each turn."""
        before, steps = site.broker.directory.counters()["next_queue"], list[int]()
        work = site.broker.topics.new_streams(site.vhost, "t", partitions, "normal", arguments)
        site.broker.engine.requests.renew()
        while True:
            try:
                next(work)
            except StopIteration as ended:
                return ended.value, steps
            now = site.broker.directory.counters()["next_queue"]
            steps.append(now - before)
            before = now
            site.broker.engine.requests.renew()

    def test_its_streams_are_made_a_bounded_number_in_a_turn_and_declared_together(self, site: Site) -> None:
        streams, steps = self.made(site, 300)
        assert len(steps) > 1
        assert max(steps) <= TURN // DECLARED + 1
        assert not site.vhost.queues
        topic = site.broker.topics.declare(site.vhost, "t", 300, streams=streams)
        assert topic.streams == [stream.queue for stream in streams]
        site.publish("k", b"x", exchange="t")
        site.sync()
        again = started(site.restart())
        assert [stream.name for stream in found(again).streams] == [stream.name for stream in topic.streams]
        assert sum(stream.ready for stream in found(again).streams) == 1

    def test_a_stream_is_found_by_its_id_although_the_id_was_assigned_before_another_was_looked_up(
        self, site: Site
    ) -> None:
        streams, _ = self.made(site, 3)
        topics, budget = site.broker.topics, site.broker.engine.requests
        assert topics.of_stream(site.vhost, streams[1].queue.ident, budget) is None
        topic = topics.declare(site.vhost, "t", 3, streams=streams)
        assert topics.of_stream(site.vhost, streams[1].queue.ident, budget) == (topic, 1)

    def test_those_that_do_not_fit_any_more_are_forgotten(self, site: Site) -> None:
        streams, _ = self.made(site, 3, **{"x-max-age": "1h"})
        deadlines = site.broker.engine.next_deadline()
        assert deadlines is not None
        declare(site, 2)
        topic = site.broker.topics.declare(site.vhost, "t", 3, streams=streams)
        assert len(topic.streams) == 3
        assert not {stream.queue for stream in streams} & set(topic.streams)
        assert all(stream.queue.deleted for stream in streams)

    def test_those_of_a_refused_declaration_or_a_lost_client_are_forgotten(self, site: Site) -> None:
        streams, _ = self.made(site, 3, **{"x-max-age": "1h"})
        with pytest.raises(BrokerError, match="must be durable"):
            site.broker.directory.declare_exchange(site.vhost, "t", "x-partitioned", streams=streams)
        assert all(stream.queue.deleted for stream in streams)
        site.broker.engine.requests.left = 0
        work = site.broker.topics.new_streams(site.vhost, "t", 3, "normal", {"x-max-age": "1h"})
        next(work)
        work.close()
        site.after(5000)
        assert site.broker.engine.next_deadline() is None

    def test_none_are_made_for_a_declaration_that_will_be_refused(self, site: Site) -> None:
        assert self.made(site, 5000)[0] == []
        site.queue("t-1")
        assert self.made(site, 3)[0] == []
        site.broker.engine.scarcity = "low on disk"
        assert self.made(site, 1)[0] == []
