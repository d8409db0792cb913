"""A publish to very many queues is recorded and becomes visible in pieces."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from escrowmq.core.budget import TURN
from escrowmq.core.engine import Receipt
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues import placing
from escrowmq.core.queues.placing import WIDE
from escrowmq.core.queues.queue import Queue
from tests.unit.core.site import Sink, Site

QUEUES = 1500
TO_ALL = Envelope("amq.fanout", "", b"", durable=True)


class Fanout:
    """A broker with many queues, and a publish to all of them."""

    def __init__(self, count: int = QUEUES) -> None:
        self.site = Site()
        self.engine = self.site.broker.engine
        self.queues: list[Queue] = [self.site.queue(f"q{number:04}") for number in range(count)]

    def publish(self, body: bytes) -> Receipt:
        return self.engine.publish(TO_ALL, [body], self.queues, divided=True)

    @property
    def visible(self) -> int:
        return sum([queue.ready > 0 for queue in self.queues])

    def finish(self) -> None:
        while self.engine.turn.unfinished:
            self.engine.turn.end()


@pytest.fixture
def fanout() -> Fanout:
    return Fanout()


@pytest.mark.rule("FAIR-1")
def test_each_turn_makes_a_bounded_number_visible(fanout: Fanout) -> None:
    receipt = fanout.publish(b"x")
    seen = [0, fanout.visible]
    (placing,) = receipt.placings
    while not placing.done:
        fanout.engine.turn.end()
        seen.append(fanout.visible)
    assert seen[-1] == QUEUES
    assert max(after - before for before, after in itertools.pairwise(seen)) <= TURN
    assert len(seen) > 3


@pytest.mark.rule("FAIR-1")
def test_no_record_has_very_many_queues(fanout: Fanout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing, "RECORDED", 400)
    recorded: list[int] = []
    record = fanout.engine.record

    def noted(envelope: Envelope, contents: list[bytes], queues: Sequence[Queue]) -> int:
        recorded.append(len(queues))
        return record(envelope, contents, queues)

    monkeypatch.setattr(fanout.engine, "record", noted)
    (gradual,) = fanout.publish(b"x").placings
    fanout.finish()
    assert recorded == [400, 400, 400, 300]
    assert gradual.done
    assert gradual.lsn == fanout.site.journal.end_lsn
    assert fanout.visible == QUEUES
    fanout.site.sync()
    assert all(queue.ready == 1 for queue in fanout.site.restart().vhost.queues.values())


@pytest.mark.rule("DUR-1")
def test_a_crash_between_two_records_leaves_the_messages_of_the_first(
    fanout: Fanout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "RECORDED", 700)
    fanout.engine.requests.left = 0
    (gradual,) = fanout.publish(b"x").placings
    while not gradual.lsn:
        fanout.engine.turn.end()
    fanout.site.sync()
    again = fanout.site.restart()
    assert sum(queue.ready for queue in again.vhost.queues.values()) == 700
    assert not gradual.done, "the publisher has no confirm"


def test_a_publish_to_fewer_queues_is_visible_at_once() -> None:
    fanout = Fanout(WIDE)
    assert not fanout.publish(b"x").placings
    assert fanout.visible == WIDE


def test_a_publish_that_may_not_be_divided_is_visible_at_once(fanout: Fanout) -> None:
    assert not fanout.engine.publish(TO_ALL, [b"x"], fanout.queues).placings
    assert fanout.visible == QUEUES


@pytest.mark.rule("FAIR-1")
def test_nothing_is_recorded_before_all_is_prepared_and_queues_that_are_deleted_meanwhile_are_left_out(
    fanout: Fanout,
) -> None:
    fanout.site.sync()
    before = fanout.site.journal.end_lsn
    fanout.engine.requests.left = 0
    (gradual,) = fanout.publish(b"x").placings
    assert (fanout.site.journal.end_lsn, gradual.lsn, fanout.visible) == (before, 0, 0)
    fanout.site.publish("q0001", b"earlier")
    fanout.site.broker.directory.delete_queue(fanout.queues.pop(0))
    fanout.finish()
    assert gradual.done
    assert gradual.lsn == fanout.site.journal.end_lsn
    assert fanout.site.contents("q0001") == [b"earlier", b"x"]
    assert fanout.visible == QUEUES - 1
    fanout.site.sync()
    assert all(queue.ready for queue in fanout.site.restart().vhost.queues.values())


@pytest.mark.rule("ORD-1")
def test_later_messages_follow_those_of_the_publish(fanout: Fanout) -> None:
    fanout.publish(b"first")
    fanout.site.publish("q1499", b"second")
    fanout.publish(b"third")
    fanout.finish()
    assert fanout.site.contents("q1499") == [b"first", b"second", b"third"]
    assert fanout.site.contents("q0700") == [b"first", b"third"]


def test_a_client_that_asks_finds_the_message_in_each_queue_at_once(fanout: Fanout) -> None:
    fanout.publish(b"x")
    last = fanout.queues[-1]
    assert not last.ready
    last.refresh()
    assert fanout.site.contents(last.name) == [b"x"]
    entry = fanout.engine.get(fanout.queues[-2], auto_settle=True)
    assert entry is not None
    assert entry.content == b"x"
    assert fanout.site.broker.directory.purge(fanout.queues[-3]) == 1
    assert fanout.site.broker.directory.delete_queue(fanout.queues[-4]) == 1
    fanout.finish()
    assert fanout.visible == QUEUES - 3


def test_consumers_get_each_message_once(fanout: Fanout) -> None:
    sink = Sink()
    for queue in fanout.queues:
        fanout.site.consume(queue, sink, auto_settle=True)
    fanout.publish(b"x")
    fanout.finish()
    assert len({consumer.queue for consumer, _ in sink.got}) == len(sink.got) == QUEUES


@pytest.mark.rule("DUR-1")
def test_a_restart_restores_the_message_in_all_queues_although_few_were_visible(fanout: Fanout) -> None:
    fanout.publish(b"x")
    assert 0 < fanout.visible < QUEUES
    fanout.site.sync()
    again = fanout.site.restart()
    assert all(queue.ready == 1 for queue in again.vhost.queues.values())


def test_a_snapshot_in_between_has_the_message_in_all_queues(fanout: Fanout) -> None:
    fanout.publish(b"x")
    fanout.site.snapshot()
    again = fanout.site.restart()
    assert all(queue.ready == 1 for queue in again.vhost.queues.values())


def test_the_content_of_a_queue_that_is_deleted_in_between_is_released(fanout: Fanout) -> None:
    fanout.publish(b"x")
    for queue in fanout.queues:
        fanout.site.broker.directory.delete_queue(queue)
    fanout.finish()
    fanout.site.sync()
    assert fanout.site.live() == 0


def test_messages_behind_a_commit_become_visible_with_it(fanout: Fanout) -> None:
    last = fanout.queues[-1]
    branch = fanout.site.begin()
    fanout.site.broker.transactions.enlist(branch, fanout.site.publication(last.name, b"first"))
    fanout.site.broker.transactions.commit(branch)
    fanout.publish(b"second")
    fanout.finish()
    assert not last.ready
    fanout.site.sync()
    assert fanout.site.contents(last.name) == [b"first", b"second"]
