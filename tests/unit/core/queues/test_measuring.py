"""Messages are measured in pieces, in whatever order others leave and return, and although some cannot be read."""

from __future__ import annotations

import random

import pytest

from escrowmq.core.messages.entry import Entry
from escrowmq.core.queues.availability import RETRY_MS
from escrowmq.core.queues.measuring import measuring_stream
from escrowmq.core.queues.queue import Queue
from escrowmq.core.queues.stream import StreamQueue
from escrowmq.core.topology.arguments.queue import QueueOptions
from tests.unit.core.site import Site

BYTES = QueueOptions(max_length_bytes=1 << 30)


def adopt(site: Site, queue: Queue, options: QueueOptions = BYTES) -> None:
    site.broker.engine.requests.renew()
    queue.adopt(options)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 4}])
def test_the_sum_is_right_whatever_happens_meanwhile(seed: int, arguments: dict[str, object]) -> None:
    rng = random.Random(seed)
    site = Site(resident_limit=rng.choice((500, 1 << 20)))
    queue = site.queue("q", arguments)
    held: list[Entry] = []
    for _ in range(150):
        site.publish("q", b"x" * rng.randrange(50), priority=rng.randrange(5))
    site.turn()
    for step in range(60):
        if step == 10:
            adopt(site, queue)
        match rng.randrange(4):
            case 0:
                site.publish("q", b"x" * rng.randrange(50), priority=rng.randrange(5))
            case 1:
                held += queue.take(rng.randrange(1, 10))
            case 2 if held:
                rng.shuffle(held)
                queue.put_back(sorted(held[:5], key=lambda entry: entry.position))
                del held[:5]
            case _:
                site.broker.engine.turn.end()
    site.turn()
    assert queue.unmeasured_below == 0
    assert queue.bytes == sum(map(len, site.contents()))


def test_the_limit_may_end_and_begin_again_meanwhile() -> None:
    site = Site()
    queue = site.queue()
    for _ in range(200):
        site.publish("q", b"xy")
    adopt(site, queue)
    adopt(site, queue, QueueOptions())
    site.publish("q", b"xy")
    adopt(site, queue)
    adopt(site, queue, QueueOptions())
    adopt(site, queue)
    site.turn()
    assert (queue.bytes, queue.unmeasured_below) == (402, 0)


def test_a_deleted_queue_is_measured_no_further() -> None:
    site = Site()
    queue = site.queue()
    for _ in range(200):
        site.publish("q", b"xy")
    adopt(site, queue)
    site.broker.directory.delete_queue(queue)
    site.turn()
    assert not site.broker.engine.left_over


def test_large_messages_are_measured_few_at_a_time() -> None:
    site = Site(segment_bytes=1 << 22)
    queue = site.queue()
    for _ in range(40):
        site.publish("q", b"x" * (1 << 18))
    adopt(site, queue)
    widths = []
    while queue.unmeasured_below:
        before = queue.unmeasured_below
        site.broker.engine.turn.end()
        widths.append(before - queue.unmeasured_below)
    assert max(widths) <= 16
    assert queue.bytes == 40 << 18


@pytest.mark.rule("DUR-4")
@pytest.mark.parametrize("kind", ["classic", "stream"])
def test_messages_that_cannot_be_read_are_measured_later(kind: str) -> None:
    site = Site()
    site.queue("q", {"x-queue-type": kind})
    for _ in range(50):
        site.publish("q", b"x" * 1000)
        site.sync()
    again = site.restart(resident_limit=100)
    queue = again.vhost.queue("q")
    again.storage.faults.read_fails = 1.0
    adopt(again, queue, QueueOptions(queue_type="stream" if kind == "stream" else "classic", max_length_bytes=1 << 30))
    again.turn()
    assert queue.fault
    again.storage.faults.read_fails = 0.0
    again.after(RETRY_MS + 1)
    assert (queue.fault, queue.bytes) == ("", 50_000)


def test_a_stream_that_loses_messages_meanwhile_is_measured_as_far_as_they_are_there() -> None:
    site = Site()
    site.queue("s", {"x-queue-type": "stream"})
    for _ in range(250):
        site.publish("s", b"xy")
    site.sync()
    again = site.restart()
    stream = again.vhost.queue("s")
    assert isinstance(stream, StreamQueue)
    steps = measuring_stream(stream, again.broker.engine, lambda: None)
    next(steps)
    adopt(again, stream, QueueOptions(queue_type="stream", max_length_bytes=100))
    for _ in steps:
        again.broker.engine.turn.end()
    again.turn()
    assert (stream.ready, stream.bytes) == (50, 100)
