"""Messages for very many queues become visible everywhere at once, although their queues take them in one by one."""

from __future__ import annotations

import pytest

from escrowmq.core.branches.decision import Decision
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.queue import Queue
from escrowmq.core.queues.showing import TOGETHER
from escrowmq.core.records.kinds import Kind
from tests.unit.core.site import Site, taken

QUEUES = 3 * TOGETHER
TO_ALL = Envelope("amq.fanout", "", b"", durable=True)


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def queues(site: Site) -> list[Queue]:
    return [site.queue(f"q{number:04}") for number in range(QUEUES)]


def committed(site: Site, queues: list[Queue], body: bytes = b"x") -> None:
    decision = Decision(site.broker.engine, 1)
    decision.place(TO_ALL, [body], queues)
    decision.apply(sealed=True)


def taken_in(queues: list[Queue]) -> int:
    return sum([len(queue.order) for queue in queues])


@pytest.mark.rule("FAIR-1")
def test_the_messages_of_a_commit_are_taken_in_by_their_queues_in_pieces(site: Site, queues: list[Queue]) -> None:
    committed(site, queues)
    assert taken_in(queues) == 0
    site.broker.engine.requests.left = 100
    site.sync()
    assert taken_in(queues) == 100
    while site.broker.engine.turn.unfinished:
        site.broker.engine.turn.end()
    assert taken_in(queues) == QUEUES


@pytest.mark.rule("TX-2", "TX-5")
def test_whoever_asks_finds_them_everywhere_after_the_sync_and_nowhere_before(site: Site, queues: list[Queue]) -> None:
    engine = site.broker.engine
    committed(site, queues)
    assert not any(queue.ready for queue in queues)
    assert engine.get(queues[-1], auto_settle=True) is None
    engine.requests.left = 1
    site.sync()
    got = engine.get(queues[-1], auto_settle=True)
    assert got is not None
    assert got.content == b"x"
    assert all(queue.ready == 1 for queue in queues[:-1])


def test_a_queue_that_delivers_takes_them_in_first(site: Site, queues: list[Queue]) -> None:
    committed(site, queues)
    site.broker.engine.requests.left = 1
    site.sync()
    _, sink = site.consume(queues[-1])
    queues[-1].dispatch()
    assert sink.contents == [b"x"]


@pytest.mark.rule("ORD-1")
def test_later_messages_follow_behind_them(site: Site, queues: list[Queue]) -> None:
    committed(site, queues)
    site.publish(queues[-1].name, b"y")
    site.broker.engine.requests.left = 1
    site.sync()
    site.publish(queues[-1].name, b"z")
    while site.broker.engine.turn.unfinished:
        site.broker.engine.turn.end()
    site.sync()
    for running in (site, site.restart()):
        assert running.contents(queues[-1].name) == [b"x", b"y", b"z"]


@pytest.mark.rule("FAIR-1")
def test_a_dead_letter_for_very_many_queues_is_one_record_and_is_taken_in_by_them_in_pieces(
    site: Site, queues: list[Queue]
) -> None:
    for queue in queues:
        site.broker.directory.bind_queue(site.vhost, "amq.fanout", queue.name, "")
    source = site.queue("source", {"x-dead-letter-exchange": "amq.fanout"})
    site.publish("source", b"dead")
    consumer, entries = taken(site, source)
    site.broker.engine.requests.left = 100
    site.broker.engine.settle(consumer, entries, Disposition.REJECTED)
    assert 0 < taken_in(queues) < QUEUES
    assert all(queue.ready == 1 for queue in queues)
    site.sync()
    assert len(site.records(Kind.COMMIT)) == 1
    again = site.restart()
    assert [again.contents(queue.name) for queue in queues] == [[b"dead"]] * QUEUES
    assert again.contents("source") == []


def test_a_deleted_queue_is_passed_over(site: Site, queues: list[Queue]) -> None:
    committed(site, queues)
    site.broker.engine.requests.left = 1
    site.sync()
    site.broker.directory.delete_queue(queues[-1])
    while site.broker.engine.turn.unfinished:
        site.broker.engine.turn.end()
    assert taken_in(queues[:-1]) == QUEUES - 1
