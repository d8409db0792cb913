"""The room in a queue with limits."""

from __future__ import annotations

import pytest

from escrowmq.core.messages.entry import Entry
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues import portions
from escrowmq.core.queues.dead_letters import DeadLetters
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.queues.queue import Queue
from escrowmq.core.queues.room import has_room, taken_over_limit
from tests.unit.core.site import Site


@pytest.mark.parametrize(
    ("promised", "count", "size", "expected"),
    [
        (None, 2, 10, True),
        (None, 3, 10, False),
        (None, 1, 91, False),
        ((1, 10), 1, 10, True),
        ((2, 10), 1, 10, False),
        ((0, 85), 1, 10, False),
    ],
)
def test_messages_and_promises_take_room(
    promised: tuple[int, int] | None, count: int, size: int, expected: bool
) -> None:
    site = Site()
    queue = site.queue("q", {"x-max-length": 4, "x-max-length-bytes": 100, "x-overflow": "reject-publish"})
    site.publish("q", b"12345", b"12345")
    assert has_room(queue, promised, count, size) is expected


def test_messages_of_a_commit_take_room_before_they_are_visible() -> None:
    site = Site()
    queue = site.queue("q", {"x-max-length": 4, "x-overflow": "reject-publish"})
    branch = site.begin()
    site.broker.transactions.enlist(branch, site.publication("q", b"1", b"2"))
    site.broker.transactions.commit(branch)
    assert not queue.ready
    assert has_room(queue, None, 2, 2)
    assert not has_room(queue, None, 3, 3)
    branch = site.begin()
    site.broker.transactions.enlist(branch, site.publication("q", b"3"))
    work = site.broker.transactions.commit_in_pieces(branch)
    assert not list(work.gather())
    work.write()
    assert not has_room(queue, None, 2, 2)


def test_the_oldest_messages_over_the_limit_are_taken() -> None:
    site = Site()
    queue = site.queue("q", {"x-max-length": 2})
    site.publish("q", b"1", b"2", b"3", b"4")
    taken, all_of_them = taken_over_limit(queue, site.broker.engine)
    assert ([entry.content for entry in taken], all_of_them) == ([b"1", b"2"], True)
    assert taken_over_limit(queue, site.broker.engine) == ([], True)
    assert queue.bytes == 2


def wide(site: Site, count: int) -> Queue:
    """Return a queue for two messages, and have its dead letters go to `count` queues."""
    for number in range(count):
        site.queue(f"dead {number}")
        site.broker.directory.bind_queue(site.vhost, "amq.fanout", f"dead {number}", "")
    return site.queue("q", {"x-max-length": 2, "x-dead-letter-exchange": "amq.fanout"})


@pytest.mark.rule("FAIR-1")
def test_few_messages_are_dropped_together_while_dead_letters_go_to_many_queues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(portions, "TOGETHER", 80)
    dropped: list[int] = []
    send = DeadLetters.send

    def counting(self: DeadLetters, queue: Queue, entries: list[Entry], outcome: Outcome) -> None:
        dropped.append(len(entries))
        send(self, queue, entries, outcome)

    monkeypatch.setattr(DeadLetters, "send", counting)
    site = Site()
    engine = site.broker.engine
    queue = wide(site, 20)
    engine.budget.turn = 100
    site.publish("q", *[b"%d" % i for i in range(25)])
    engine.turn.end()
    assert (dropped, queue.ready) == ([4, 4], 17)  # the budget of a turn: 80 places at a time
    assert engine.turn.unfinished
    site.turn()
    assert dropped == [4, 4, 4, 4, 4, 3]
    assert site.contents() == [b"23", b"24"]
    assert site.contents("dead 7") == site.contents("dead 19") == [b"%d" % i for i in range(23)]


@pytest.mark.rule("FAIR-1")
def test_a_crash_between_two_pieces_of_dropped_messages_loses_and_repeats_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(portions, "TOGETHER", 80)
    site = Site()
    wide(site, 20)
    site.broker.engine.budget.turn = 50  # for one piece
    site.publish("q", *[b"%d" % i for i in range(25)])
    site.broker.engine.turn.end()
    site.sync()
    again = site.restart()
    assert again.contents("dead 3") == [b"%d" % i for i in range(4)]
    assert again.contents() == [b"%d" % i for i in range(4, 25)]
    again.publish("q", b"25")
    again.turn()
    assert again.contents("dead 3") == again.contents("dead 11") == [b"%d" % i for i in range(24)]
    assert again.contents() == [b"24", b"25"]


@pytest.mark.rule("FAIR-1")
def test_each_dropped_message_counts_with_the_queues_of_its_own_route(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions, "TOGETHER", 10)
    site = Site()
    for number in range(10):
        site.queue(f"dead {number}")
        site.vhost.bind_queue("amq.direct", f"dead {number}", "wide")
    site.vhost.bind_queue("amq.direct", "dead 0", "narrow")
    queue = site.queue("q", {"x-max-length": 0, "x-dead-letter-exchange": "amq.direct"})
    for key in ("narrow", "narrow", "wide", "narrow"):
        site.broker.engine.publish(Envelope("", key, durable=True), [key.encode()], (queue,))
    found = []
    while queue.ready:
        taken, _ = taken_over_limit(queue, site.broker.engine)
        found.append([entry.content for entry in taken])
    assert found == [[b"narrow", b"narrow"], [b"wide"], [b"narrow"]]
