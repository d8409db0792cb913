"""A publish to very many queues is recorded and becomes visible in pieces."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pytest

from escrowmq.core.branches.decision import Recorded
from escrowmq.core.budget import TURN
from escrowmq.core.engine import Receipt
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues import placing
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.placing import WIDE
from escrowmq.core.queues.queue import Queue
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.termini import encode_arrived
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
        return sum([len(queue.order) > 0 for queue in self.queues])

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

    def noted(envelope: Envelope, contents: list[bytes], queues: Sequence[Queue], work: Recorded | None = None) -> int:
        recorded.append(len(queues))
        return record(envelope, contents, queues, work)

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
    assert not len(last.order)
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


# -- queues that refuse messages

FULL = {"x-max-length": 1, "x-overflow": "reject-publish"}


def limited(arguments: Mapping[str, object] = FULL, count: int = QUEUES) -> Fanout:
    """Return many queues that refuse a second message, of which every third has one."""
    fanout = Fanout(0)
    fanout.queues += [fanout.site.queue(f"q{number:04}", arguments) for number in range(count)]
    for number in range(0, count, 3):
        fanout.site.publish(f"q{number:04}", b"full")
    fanout.engine.requests.renew()
    return fanout


@pytest.mark.rule("FAIR-1")
def test_queues_that_refuse_messages_are_asked_and_filled_in_pieces() -> None:
    fanout = limited()
    receipt = fanout.publish(b"x")
    (placing,) = receipt.placings
    seen = [fanout.visible]
    while not placing.done:
        fanout.engine.turn.end()
        seen.append(fanout.visible)
    assert max(after - before for before, after in itertools.pairwise(seen)) <= TURN
    assert len(seen) > 2
    assert placing.refused == (0,)
    assert [fanout.site.contents(f"q000{number}") for number in range(3)] == [[b"full"], [b"x"], [b"x"]]


def test_each_message_of_a_run_finds_the_room_that_those_before_it_have_left() -> None:
    fanout = limited({**FULL, "x-max-length": 2})
    (placing,) = fanout.engine.publish(TO_ALL, [b"a", b"b", b"c"], fanout.queues, divided=True).placings
    fanout.finish()
    assert placing.refused == (1, 2)
    assert [fanout.site.contents(f"q000{number}") for number in range(2)] == [[b"full", b"a"], [b"a", b"b"]]


def test_a_queue_that_fills_up_while_the_publish_is_prepared_refuses_its_message() -> None:
    fanout = limited()
    fanout.engine.requests.left = 0
    (placing,) = fanout.publish(b"x").placings
    fanout.site.publish("q0001", b"other")
    fanout.finish()
    assert placing.refused == (0,)
    assert fanout.site.contents("q0001") == [b"other"]


def test_a_full_queue_dead_letters_what_it_refuses() -> None:
    fanout = limited(
        {
            **FULL,
            "x-overflow": "reject-publish-dlx",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dead",
        }
    )
    dead = fanout.site.queue("dead")
    (placing,) = fanout.publish(b"x").placings
    fanout.finish()
    assert dead.ready == QUEUES // 3
    fanout.site.sync()
    assert placing.lsn <= fanout.site.journal.synced_lsn
    assert fanout.site.restart().vhost.queue("dead").ready == QUEUES // 3


# -- messages that are recorded with something else


class Noted:
    """A change beside a publish, which notes when it takes effect."""

    def __init__(self, *, wanted: bool = True) -> None:
        self.wanted = wanted
        self.bytes = 0
        self.applied: list[int] = []

    def work(self, begin: int, end: int) -> Noted:
        assert (begin, end) == (0, 1)
        return self

    def operations(self) -> list[tuple[Kind, Sequence[bytes]]]:
        return [(Kind.ARRIVED, [encode_arrived(1, Disposition.ACCEPTED, [b"tag"], None)])]

    def apply(self, end: int, synced: int) -> None:
        assert end > synced
        self.applied.append(end)


@pytest.mark.rule("FAIR-1", "SET-8")
def test_messages_with_tags_have_one_record_and_become_visible_in_pieces_behind_its_sync(
    fanout: Fanout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "RECORDED", 400)
    noted = Noted()
    fanout.site.sync()
    before = len(fanout.site.records(Kind.COMMIT, Kind.PUBLISH))
    receipt = fanout.engine.publish(TO_ALL, [b"x"], fanout.queues, divided=True, beside=noted)
    fanout.finish()
    assert all(gradual.done for gradual in receipt.placings)
    assert noted.applied == [fanout.site.journal.end_lsn]
    assert fanout.visible == 0
    seen = [0]
    fanout.site.sync()
    while fanout.visible < QUEUES:
        seen.append(fanout.visible)
        fanout.engine.turn.end()
    assert max(after - before for before, after in itertools.pairwise([*seen, QUEUES])) <= TURN
    assert len(fanout.site.records(Kind.COMMIT, Kind.PUBLISH)) == before + 1


def test_a_publish_that_is_not_wanted_any_more_has_no_effect(fanout: Fanout) -> None:
    noted = Noted()
    fanout.engine.requests.left = 0
    (gradual,) = fanout.engine.publish(TO_ALL, [b"x"], fanout.queues, divided=True, beside=noted).placings
    noted.wanted = False
    fanout.finish()
    assert gradual.done
    assert (fanout.visible, noted.applied) == (0, [])
    assert not fanout.site.records(Kind.COMMIT, Kind.PUBLISH)
