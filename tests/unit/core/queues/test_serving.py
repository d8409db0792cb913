"""The consumers of a queue are served in turn, each within its credit."""

from __future__ import annotations

import pytest

from escrowmq.core.budget import SENT_BYTES, TURN
from escrowmq.core.messages.entry import Entry
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.credit import Window
from escrowmq.core.queues.discipline import TAKEN_BYTES
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.topology.arguments.consumer import ConsumerOptions, StreamOffset
from tests.unit.core.site import Sink, Site


@pytest.fixture
def site() -> Site:
    return Site()


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % i for i in range(first, first + count)]


def test_consumers_take_turns(site: Site) -> None:
    queue = site.queue()
    sinks = [site.consume(queue, credit=10)[1] for _ in range(3)]
    for i in range(7):
        site.publish("q", b"%d" % i)
        site.turn()
    assert [sink.contents for sink in sinks] == [[b"0", b"3", b"6"], [b"1", b"4"], [b"2", b"5"]]


def test_consumers_share_a_burst(site: Site) -> None:
    queue = site.queue()
    sinks = [site.consume(queue, credit=4)[1] for _ in range(3)]
    site.publish("q", *numbered(20))
    site.turn()
    assert [len(sink.got) for sink in sinks] == [4, 4, 4]
    assert queue.ready == 8
    assert queue.unsettled == 12
    for sink in sinks:
        assert sink.contents == sorted(sink.contents, key=int)


def test_consumers_together_get_no_more_than_the_shared_window(site: Site) -> None:
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


def test_the_higher_priority_is_served_until_it_has_no_room(site: Site) -> None:
    queue = site.queue()
    _, low = site.consume(queue, credit=10)
    _, high = site.consume(queue, credit=2, options=ConsumerOptions(priority=5))
    site.publish("q", *numbered(5))
    site.turn()
    assert high.contents == numbered(2)
    assert low.contents == numbered(3, 2)


def test_a_single_active_consumer_gets_everything(site: Site) -> None:
    queue = site.queue(arguments={"x-single-active-consumer": True})
    first, one = site.consume(queue, credit=2)
    _, two = site.consume(queue, credit=2)
    site.publish("q", *numbered(4))
    site.turn()
    assert (one.contents, two.contents) == (numbered(2), [])
    site.broker.engine.unsubscribe(first)
    site.turn()
    assert two.contents == numbered(2, 2)


def test_a_full_receiver_gets_no_messages(site: Site) -> None:
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


def test_messages_for_an_auto_settling_consumer_are_settled_on_delivery(site: Site) -> None:
    queue = site.queue()
    sinks = [site.consume(queue, auto_settle=True)[1] for _ in range(2)]
    site.publish("q", *numbered(5000))
    site.turn()
    assert sorted(int(content) for sink in sinks for content in sink.contents) == list(range(5000))
    assert (queue.unsettled, site.live()) == (0, 0)
    assert site.restart().contents() == []


def test_more_consumers_than_messages_in_a_chunk_are_served(site: Site) -> None:
    queue = site.queue()
    sink = Sink()
    for _ in range(1100):
        site.consume(queue, sink, auto_settle=True)
    site.publish("q", *numbered(3000))
    site.turn()
    assert len(sink.got) == 3000


def test_paged_content_is_released_when_it_is_settled() -> None:
    site = Site(resident_limit=400)
    queue = site.queue(durable=False)
    for i in range(50):
        site.publish("q", b"%d" % i, durable=False)
    assert site.live() > 0
    _, sink = site.consume(queue, auto_settle=True)
    site.turn()
    assert sink.contents == numbered(50)
    assert site.live() == 0


@pytest.mark.rule("FAIR-1")
@pytest.mark.parametrize("limit", [1 << 16, 1 << 26], ids=["in the log", "in memory"])
@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 3}, {"x-queue-type": "stream"}], ids=str)
@pytest.mark.parametrize("returned", [False, True])
def test_large_messages_are_delivered_a_mebibyte_at_a_time(
    monkeypatch: pytest.MonkeyPatch, limit: int, arguments: dict[str, object], returned: bool
) -> None:
    site = Site(resident_limit=limit)
    queue = site.queue(arguments=arguments)
    contents = [bytes([i]) * (100 if i < 30 else 100_000) for i in range(120)]
    for content in contents:
        site.publish("q", content, priority=content[0] % 2)
    if returned and not queue.is_stream:
        consumer, sink = site.consume(queue)
        site.turn()
        site.broker.engine.unsubscribe(consumer)
        site.broker.engine.requeue(consumer, [entry for _, entry in sink.got])
        site.turn()
    sizes: list[int] = []
    deliver = Sink.deliver

    def weighed(sink: Sink, consumer: Consumer, entries: list[Entry]) -> None:
        sizes.append(sum(len(entry.content) for entry in entries))
        deliver(sink, consumer, entries)

    monkeypatch.setattr(Sink, "deliver", weighed)
    _, sink = site.consume(queue, options=ConsumerOptions(stream_offset=StreamOffset("first", 0)))
    site.broker.engine.turn.end()
    assert 0 < sum(sizes) <= TURN * SENT_BYTES + TAKEN_BYTES
    site.turn()
    assert max(sizes) < 2 * TAKEN_BYTES
    assert sorted(sink.contents) == contents
    levels = (1, 0) if "x-max-priority" in arguments else (None,)
    assert sink.contents == [each for level in levels for each in contents if level in {None, each[0] % 2}]
