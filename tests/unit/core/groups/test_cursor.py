"""Cursors: what cannot be read, and the memory of leases that were replaced."""

from __future__ import annotations

from itertools import pairwise
from typing import NoReturn

import pytest

from escrowmq.core.budget import DEADLINE, TURN
from escrowmq.core.conditions import BrokerError
from escrowmq.core.groups import cursor
from escrowmq.core.messages.entry import Entry
from escrowmq.core.queues.availability import RETRY_MS
from escrowmq.core.queues.stream import StreamLog
from escrowmq.core.records.unreadable import LogUnreadable
from tests.unit.core.groups.consuming import INVISIBLE, Consuming


def unreadable(*_: object) -> NoReturn:
    raise LogUnreadable("damaged")


@pytest.mark.rule("DUR-4")
@pytest.mark.parametrize("fifo", [False, True])
def test_a_log_that_cannot_be_read_consumes_nothing(fifo: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    c = Consuming(fifo=fifo)
    c.publish("a", "b")
    with monkeypatch.context() as patched:
        patched.setattr(StreamLog, "read", unreadable)
        for _ in range(2):
            with pytest.raises(BrokerError, match="damaged"):
                c.lease()
    c.site.after(RETRY_MS)
    first = c.lease()
    assert [lease.attempts for lease in first] == [1, 1]
    c.site.after(INVISIBLE)
    with monkeypatch.context() as patched:
        patched.setattr(StreamLog, "read", unreadable)
        with pytest.raises(BrokerError, match="damaged"):
            c.lease()
    c.site.after(RETRY_MS)
    assert c.bodies() == "ab"


@pytest.mark.rule("DUR-4")
@pytest.mark.parametrize("broken", [0, 1])
def test_a_stream_that_cannot_be_read_leaves_the_messages_of_others_to_the_member(
    broken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    c = Consuming(partitions=2)
    c.publish("a")
    c.publish("b", partition=1)
    log = c.streams[broken].log
    read = type(log).read

    def one_unreadable(self: StreamLog, position: int, most: int) -> list[Entry]:
        if self is log:
            raise LogUnreadable("damaged")
        return read(self, position, most)

    monkeypatch.setattr(type(log), "read", one_unreadable)
    assert [lease.entry.content for lease in c.lease()] == [b"ba"[broken : broken + 1]]
    with pytest.raises(BrokerError, match="damaged"):
        c.lease()


def dying(*, fifo: bool) -> Consuming:
    """Return a group whose messages have one attempt, and go to the topic `dead`."""
    c = Consuming(fifo=fifo, max_attempts=1, dead_letter_topic="dead")
    c.site.broker.topics.declare(c.site.vhost, "dead", 1)
    return c


def dead_letters(c: Consuming) -> list[bytes]:
    topic = c.site.broker.topics.find(c.site.vhost, "dead")
    assert topic is not None
    stream = topic.streams[0]
    return [entry.content for position in range(1, stream.end) for entry in stream.read(position, 1)]


@pytest.mark.rule("GRP-4", "DUR-4")
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("fifo", [False, True])
def test_a_message_that_cannot_be_read_after_its_last_attempt_is_dead_lettered_later(
    fifo: bool, restarted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    c = dying(fifo=fifo)
    c.publish("a", "b", key="k")
    assert c.bodies(1) == "a"
    with monkeypatch.context() as patched:
        patched.setattr(StreamLog, "read", unreadable)
        c.site.after(INVISIBLE)
    assert dead_letters(c) == []
    c = c.restart() if restarted else c
    c.site.after(RETRY_MS)
    assert [lease.attempts for lease in c.lease()] == [1]
    assert dead_letters(c) == [b"a"]


@pytest.mark.rule("GRP-4", "DUR-4")
def test_a_revoked_message_that_waits_to_be_dead_lettered_is_not_leased_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream is available again, and the message before it is dead-lettered, before that is tried again."""
    c = dying(fifo=True)
    c.publish("a", "b", key="k")
    c.publish("c", key="other")
    first, _ = c.lease(2)
    with monkeypatch.context() as patched:
        patched.setattr(StreamLog, "read", unreadable)
        with pytest.raises(BrokerError, match="damaged"):
            c.lease()
        c.site.after(100)
        c.group.give_back(first.handle, RETRY_MS - 50)
        c.site.turn()
        c.site.after(INVISIBLE)
    c.site.after(RETRY_MS - INVISIBLE - 50)
    assert dead_letters(c) == [b"a"]
    assert c.bodies() == "c"
    c.site.after(50)
    assert dead_letters(c) == [b"a", b"b"]


def test_leases_that_were_settled_or_replaced_do_not_pile_up() -> None:
    c = Consuming()
    c.publish("a")
    (lease,) = c.lease()
    handle = lease.handle
    for _ in range(1000):
        handle, _ = c.group.change(handle, INVISIBLE)
    assert len(c.group.cursor(c.stream)._due) < 200
    assert not c.group.settle([handle]).stale


@pytest.mark.rule("GRP-3")
@pytest.mark.parametrize("by", ["giving back", "running out"])
def test_a_restarted_broker_revokes_the_leases_behind_a_failed_message(by: str) -> None:
    c = Consuming(fifo=True)
    c.publish("a", "b", key="k")
    a, b = c.lease()
    handle, _ = c.group.change(b.handle, 10 * INVISIBLE)
    c.site.turn()
    c = c.restart()
    if by == "giving back":
        c.group.give_back(a.handle)
    else:
        c.site.after(INVISIBLE)
    assert c.group.settle([handle]).stale == [handle]


def test_a_restarted_broker_finds_what_was_out_also_at_the_limit() -> None:
    c = Consuming(fifo=True)
    c.publish("a", "b", key="k")
    c.lease()
    c.site.turn()
    c = c.restart()
    c.group.limits.outstanding = 2
    c.publish("c", key="k")
    c.site.after(INVISIBLE)
    assert c.bodies() == "ab"


@pytest.mark.rule("GRP-2", "FAIR-1")
def test_many_leases_that_run_out_together_end_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursor, "PIECE", 7)
    consuming = Consuming()
    consuming.publish(*[f"{i}" for i in range(50)])
    while consuming.lease(7):
        pass
    engine, order = consuming.site.broker.engine, consuming.group.cursor(consuming.stream)
    assert len(order.out) == 50
    engine.now += INVISIBLE
    ended: list[int] = []
    while len(ended) < 8:
        engine.run_deadlines()
        engine.turn.end()
        ended.append(sum(out.generation == 0 for out in order.out.values()))
        due = engine.next_deadline()
        assert due is None or due == engine.now + 1, "the rest ends in a later turn, without waiting"
        engine.now += 1
    assert ended == [7, 14, 21, 28, 35, 42, 49, 50]
    again = [lease.entry.content for _ in range(8) for lease in consuming.lease(7)]
    assert again == [b"%d" % i for i in range(50)]


@pytest.mark.rule("FAIR-1")
def test_leases_of_many_partitions_that_run_out_together_end_in_several_turns() -> None:
    consuming = Consuming(partitions=300)
    for partition in range(300):
        consuming.publish("x", "y", partition=partition)
    assert len(consuming.lease(1000)) == 600
    engine = consuming.site.broker.engine
    engine.now += INVISIBLE
    ended = [0]
    while ended[-1] < 600:
        engine.run_deadlines()
        engine.turn.end()
        ended.append(sum(out.generation == 0 for each in consuming.group.cursors.values() for out in each.out.values()))
    assert max(after - before for before, after in pairwise(ended)) <= 2 * (TURN // (DEADLINE + 2) + 1)


@pytest.mark.rule("FAIR-1")
def test_leases_end_after_all_that_was_out_before_a_restart_was_found_in_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consuming = Consuming(fifo=True)
    consuming.publish(*[f"{i}" for i in range(50)])
    assert len(consuming.lease(50)) == 50
    consuming.site.turn()
    monkeypatch.setattr(cursor, "PIECE", 7)
    consuming = consuming.restart()
    engine, order = consuming.site.broker.engine, consuming.group.cursor(consuming.stream)
    engine.now += INVISIBLE
    positions = [order.next]
    while not any(out.generation == 0 for out in order.out.values()):
        engine.run_deadlines()
        engine.turn.end()
        engine.now += 1
        positions.append(order.next)
    assert max(after - before for before, after in pairwise(positions)) == 7
    consuming.site.turn()
    consuming.site.after(50)
    assert [lease.entry.content for lease in consuming.lease(50)] == [b"%d" % i for i in range(50)]


@pytest.mark.rule("GRP-3", "FAIR-1")
def test_a_message_that_is_given_back_after_a_restart_finds_what_was_out_in_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    c = Consuming(fifo=True)
    for i in range(50):
        c.publish(f"{i}", key=f"k{i % 2}")
    leases = sorted(c.lease(50), key=lambda lease: lease.entry.position)
    last = [c.group.change(lease.handle, 10 * INVISIBLE)[0] for lease in leases[-4:]]
    c.site.turn()
    monkeypatch.setattr(cursor, "PIECE", 7)
    c = c.restart()
    order = c.group.cursor(c.stream)
    c.group.give_back(leases[0].handle, INVISIBLE)
    assert order.next <= 1 + 7
    assert c.group.settle(last[:1]).stale == last[:1], "it may belong to the lane of the message that was given back"
    turns = 0
    while order.next <= 50:
        before = order.next
        c.site.after(1)
        turns += 1
        assert order.next - before <= 7
    assert turns >= 6
    stale = c.group.settle(last).stale
    assert len(stale) == 2, "those of the same lane were revoked, the others are valid again"


@pytest.mark.rule("FAIR-1")
def test_the_leases_of_a_deleted_topic_are_freed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursor, "PIECE", 7)
    monkeypatch.setattr(cursor, "FREED", 10)
    c = Consuming()
    c.publish(*[f"{i}" for i in range(50)])
    while c.lease(7):
        pass
    out, engine = c.group.cursor(c.stream).out, c.site.broker.engine
    assert len(out) == 50
    engine.requests.left = 0
    c.site.broker.topics.delete(c.site.vhost, "t")
    sizes = [len(out)]
    while engine.left_over:
        engine.turn.end()
        sizes.append(len(out))
    assert (sizes[0], sizes[-1]) == (50, 0)
    assert max(before - after for before, after in pairwise(sizes)) == 10
