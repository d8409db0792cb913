"""The room of a consumer, and the events that wake it."""

from __future__ import annotations

import pytest

from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.credit import UNLIMITED, Credit, Window
from escrowmq.core.queues.queue import Queue
from tests.unit.core.site import Sink, Site


@pytest.fixture(scope="module")
def queue() -> Queue:
    return Site().queue()


def consumer(queue: Queue, credit: int, *, sink: Sink | None = None, window: Window | None = None) -> Consumer:
    return Consumer(queue, sink or Sink(), credit=Credit(credit), window=window)


class TestRoom:
    def test_there_is_no_room_without_credit(self, queue: Queue) -> None:
        assert Consumer(queue, Sink()).room() == 0
        assert not Consumer(queue, Sink()).ready()

    def test_unlimited_credit_is_unlimited_room(self, queue: Queue) -> None:
        assert consumer(queue, UNLIMITED).room() == UNLIMITED

    def test_room_is_spent_and_restored(self, queue: Queue) -> None:
        one = consumer(queue, 5)
        one.spend(3)
        assert one.room() == 2
        one.settled(2)
        assert one.room() == 4

    def test_room_is_the_smaller_of_credit_and_window(self, queue: Queue) -> None:
        window = Window(4)
        one, two = (consumer(queue, 3, window=window) for _ in range(2))
        one.spend(3)
        assert (one.room(), two.room()) == (0, 1)
        two.spend(1)
        assert two.room() == 0
        one.settled(3)
        assert (one.room(), two.room()) == (3, 2)

    def test_the_getter_of_a_queue_needs_no_room(self, queue: Queue) -> None:
        assert queue.getter.room() == 0
        assert not queue.getter.ready()
        queue.getter.settled(3)
        assert queue.getter.room() == 0


class TestDetach:
    def test_a_detached_consumer_keeps_no_receiver_and_is_never_served(self, queue: Queue) -> None:
        sink = Sink()
        one = consumer(queue, 1, sink=sink)
        assert one.detach() is sink
        assert one.receiver is None
        assert not one.ready()
        assert one.detach() is None


class TestReady:
    def test_a_full_receiver_is_told_which_consumer_waits(self, queue: Queue) -> None:
        sink = Sink()
        sink.writable = False
        one = consumer(queue, 1, sink=sink)
        assert not one.ready()
        assert sink.waiting == [one]

    def test_a_consumer_without_credit_waits_for_no_receiver(self, queue: Queue) -> None:
        sink = Sink()
        sink.writable = False
        window = Window(1)
        assert not consumer(queue, 0, sink=sink, window=window).ready()
        assert not sink.waiting
        assert not window.waiting

    def test_a_consumer_without_a_share_of_the_window_waits_for_the_window(self, queue: Queue) -> None:
        window = Window(1)
        one, two = (consumer(queue, 3, window=window) for _ in range(2))
        assert one.ready()
        one.spend(1)
        assert not two.ready()
        assert list(window.waiting) == [two]


def test_a_cancelled_consumer_is_not_woken() -> None:
    site = Site()
    queue = site.queue()
    one, _ = site.consume(queue)
    site.turn()
    site.broker.engine.unsubscribe(one)
    site.turn()
    one.wake()
    assert queue not in site.broker.engine.dirty
    assert not one.listed
