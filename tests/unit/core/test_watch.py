"""A watch has each object that has changed since it was asked, once, and little memory if nobody asks."""

from __future__ import annotations

import pytest

from escrowmq.core.queues.queue import Queue
from escrowmq.core.watch import ChangeWatch, note_in
from escrowmq.wire.amqp091 import spec
from tests.harness.noted import NotedChanges
from tests.unit.wire.amqp091.clients import pair


def test_objects_are_noted_once_and_in_order() -> None:
    watch: ChangeWatch[str] = ChangeWatch()
    for changed in "abab":
        watch.note(changed)
    assert watch.take() == ["a", "b"]
    assert watch.take() == []


def test_a_change_is_noted_in_every_watch() -> None:
    watches: list[ChangeWatch[str]] = [ChangeWatch(), ChangeWatch()]
    note_in(watches, "a")
    assert [watch.take() for watch in watches] == [["a"], ["a"]]


def test_a_watch_that_has_too_many_objects_gives_up_until_it_is_asked() -> None:
    watch: ChangeWatch[int] = ChangeWatch(most=3)
    for number in range(5):
        watch.note(number)
    assert watch.take() is None
    watch.note(7)
    assert watch.take() == [7]


def test_a_queue_is_noted_at_its_first_change_after_a_look() -> None:
    server, client = pair()
    client.declare(1, "q")
    queue = server.broker.directory.vhost("/").queues["q"]
    watch: ChangeWatch[Queue] = ChangeWatch()
    server.broker.engine.watches.append(watch)
    client.publish(1, "q", b"1")
    watch.take()
    assert queue.watched, "the check of the harness has looked at it"
    client.publish(1, "q", b"2")
    assert watch.take() == [queue]


def test_a_change_that_is_not_noted_is_found_by_the_check_that_all_simulated_histories_make() -> None:
    server, client = pair()
    client.declare(1, "q")
    noted = NotedChanges(server.broker)
    queue = server.broker.directory.vhost("/").queues["q"]
    noted.check()
    queue.counters.fetched += 1
    with pytest.raises(AssertionError, match="without a note"):
        noted.check()


def test_a_deleted_queue_is_noted() -> None:
    server, client = pair()
    client.declare(1, "q")
    queue = server.broker.directory.vhost("/").queues["q"]
    watch: ChangeWatch[Queue] = ChangeWatch()
    server.broker.engine.watches.append(watch)
    queue.watched = True
    client.call(1, spec.QueueDelete("q"), spec.QueueDeleteOk)
    assert watch.take() == [queue]
