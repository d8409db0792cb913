"""A read that fails consumes nothing (DUR-4): the queue is unavailable for a while, and keeps every message."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.entry import Entry
from escrowmq.core.messages.pager import LogPager
from escrowmq.core.queues.availability import RETRY_MS
from escrowmq.core.queues.queue import Queue
from escrowmq.core.recovery.relocation import Relocation
from escrowmq.journal.errors import JournalUnreadable
from tests.unit.core.site import Site, dead_lettering
from tests.unit.core.termini.links import TestedLink, attached_again, outgoing
from tests.unit.core.xa_site import OK, X, XaSite

pytestmark = pytest.mark.rule("DUR-4")

SIZE = 1400  # the sector in the middle of a message has nothing else
BODIES = [b"%02d" % i * (SIZE // 2) for i in range(20)]
ORDERS = pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 3}, {"x-queue-type": "quorum"}])


def paged(arguments: dict[str, object] | None = None, site: Site | None = None) -> tuple[Site, Queue]:
    """Return a queue whose messages are only in the log, except for the first one."""
    site = site or Site(resident_limit=1)
    queue = site.queue("q", arguments)
    for body in BODIES:
        site.publish("q", body)
        site.turn()
    return site, queue


def forget_what_was_read(site: Site) -> Site:
    """Start again, with only the head of each queue in memory."""
    site = site.restart(resident_limit=1)
    forget_chunks(site)
    return site


def forget_chunks(site: Site) -> None:
    pager = site.broker.engine.pager
    assert isinstance(pager, LogPager)
    pager._chunks.clear()
    pager._chunk = b""


def damage(site: Site, number: int) -> None:
    """Make the sectors with message `number` unreadable."""
    for name in site.storage.names():
        at = site.storage.read(name, 0, site.storage.size(name)).find(BODIES[number])
        if at >= 0:
            site.storage.faults.unreadable.setdefault(name, set()).add((at + SIZE // 2) // 512)


def heal(site: Site) -> None:
    site.storage.faults.unreadable.clear()
    site.after(RETRY_MS + 1)


def got(site: Site, queue: Queue) -> Entry:
    entry = site.broker.engine.get(queue, auto_settle=True)
    assert entry is not None
    return entry


def stuck() -> tuple[Site, Queue]:
    """Return a queue whose first message was taken, and whose second one cannot be read."""
    site = forget_what_was_read(paged()[0])
    queue = site.vhost.queue("q")
    damage(site, 1)
    got(site, queue)
    refused(site, queue)
    site.turn()
    return site, queue


def refused(site: Site, queue: Queue) -> BrokerError:
    with pytest.raises(BrokerError) as caught:
        site.broker.engine.get(queue, auto_settle=True)
    assert caught.value.condition is Condition.UNAVAILABLE
    return caught.value


@ORDERS
@pytest.mark.parametrize("number", [1, 9, 19])
def test_basic_get_is_refused_and_loses_nothing(arguments: dict[str, object], number: int) -> None:
    site = forget_what_was_read(paged(arguments)[0])
    queue = site.vhost.queue("q")
    damage(site, number)
    received = [got(site, queue).content for _ in range(number)]
    assert "'q'" in refused(site, queue).text
    assert queue.ready == len(BODIES) - number
    heal(site)
    received += [got(site, queue).content for _ in range(number, len(BODIES))]
    assert received == BODIES


@ORDERS
def test_a_restart_after_a_refused_get_finds_everything(arguments: dict[str, object]) -> None:
    site = forget_what_was_read(paged(arguments)[0])
    queue = site.vhost.queue("q")
    damage(site, 3)
    for _ in range(3):
        got(site, queue)
    refused(site, queue)
    site.turn()
    site.storage.faults.unreadable.clear()
    assert site.restart().contents() == BODIES[3:]


@ORDERS
def test_a_snapshot_while_the_queue_is_unavailable_keeps_its_messages(arguments: dict[str, object]) -> None:
    site = forget_what_was_read(paged(arguments)[0])
    queue = site.vhost.queue("q")
    damage(site, 1)
    got(site, queue)
    refused(site, queue)
    site.snapshot()
    site.storage.faults.unreadable.clear()
    assert site.restart().contents() == BODIES[1:]


@ORDERS
def test_consumers_wait_and_then_get_everything_in_order(arguments: dict[str, object]) -> None:
    site = forget_what_was_read(paged(arguments)[0])
    queue = site.vhost.queue("q")
    damage(site, 7)
    _, first = site.consume(queue, credit=3)
    _, second = site.consume(queue, credit=100)
    site.turn()
    assert sorted(first.contents + second.contents) == BODIES[:7]
    heal(site)
    assert sorted(first.contents + second.contents) == BODIES
    assert second.contents == sorted(second.contents)


def test_a_queue_is_unavailable_until_its_messages_can_be_read() -> None:
    site = forget_what_was_read(paged()[0])
    queue = site.vhost.queue("q")
    told: list[tuple[Queue, bool]] = []
    unavailable = site.broker.engine.unavailable
    unavailable.changed = lambda queue, reason: told.append((queue, bool(reason)))
    damage(site, 1)
    got(site, queue)
    refused(site, queue)
    for _ in range(3):
        site.after(RETRY_MS + 1)
    assert list(unavailable.reasons) == [queue]
    with pytest.raises(BrokerError):
        site.consume(queue)
    heal(site)
    assert not unavailable.reasons
    assert told == [(queue, True), (queue, False)]
    assert len(site.consume(queue)[1].got) == 0


@pytest.mark.parametrize("how", ["purge", "delete"])
def test_an_unavailable_queue_can_be_emptied(how: str) -> None:
    site, queue = stuck()
    if how == "purge":
        assert site.broker.directory.purge(queue) == len(BODIES) - 1
    else:
        queue.delete()
    site.after(RETRY_MS + 1)
    assert not site.broker.engine.unavailable.reasons
    assert site.live() == 0


def test_messages_that_cannot_be_read_do_not_expire() -> None:
    site = paged({"x-message-ttl": 60_000})[0]
    site = forget_what_was_read(site)
    queue = site.vhost.queue("q")
    damage(site, 4)
    site.after(100_000)
    for _ in range(20):
        site.after(1)
    assert queue.ready == len(BODIES) - 4
    heal(site)
    for _ in range(20):
        site.after(1)
    assert queue.ready == 0


def test_dead_lettering_continues_where_it_stopped() -> None:
    site = Site(resident_limit=1)
    queue, dead = dead_lettering(site, message_ttl=60_000)
    paged({**queue.arguments}, site)
    site = forget_what_was_read(site)
    queue, dead = site.vhost.queue("q"), site.vhost.queue("dead")
    damage(site, 4)
    site.after(100_000)
    for _ in range(20):
        site.after(1)
    assert (queue.ready, dead.ready) == (len(BODIES) - 4, 4)
    heal(site)
    for _ in range(20):
        site.after(1)
    assert (queue.ready, dead.ready) == (0, len(BODIES))
    assert site.contents("dead") == BODIES


def test_a_full_queue_keeps_messages_that_it_cannot_drop() -> None:
    site = forget_what_was_read(paged()[0])
    queue = site.vhost.queue("q")
    damage(site, 2)
    queue.options = replace(queue.options, max_length=5)
    queue.limited = queue._drop = True
    site.publish("q", b"more")
    site.turn()
    assert queue.ready == len(BODIES) + 1 - 2
    heal(site)
    assert queue.ready == 5


def test_a_stream_is_read_on_where_it_stopped() -> None:
    site = forget_what_was_read(paged({"x-queue-type": "stream"})[0])
    queue = site.vhost.queue("q")
    _, sink = site.consume(queue, credit=100)
    site.turn()
    assert not sink.got  # a new reader begins with the next message
    site = forget_what_was_read(site)
    queue = site.vhost.queue("q")
    damage(site, 3)
    consumer, sink = site.consume(queue, credit=100)
    consumer.cursor = 1
    site.turn()
    assert sink.contents == BODIES[:3]
    heal(site)
    assert sink.contents == BODIES


def damaged_start(site: Site, number: int) -> tuple[Site, Queue]:
    """Start from a snapshot while message `number` cannot be read."""
    site.snapshot()
    damage(site, number)
    site = site.restart(resident_limit=1)
    return site, site.vhost.queue("q")


LIMITED: dict[str, object] = {"x-max-length-bytes": 100_000}


@pytest.mark.parametrize(
    "arguments", [LIMITED, {**LIMITED, "x-max-priority": 3}, {**LIMITED, "x-queue-type": "quorum"}]
)
def test_a_byte_limited_queue_is_unavailable_at_the_start(arguments: dict[str, object]) -> None:
    site, queue = damaged_start(paged(arguments)[0], 7)
    assert list(site.broker.engine.unavailable.reasons) == [queue]
    assert queue.ready == len(BODIES)
    assert 0 < queue.bytes < len(BODIES) * SIZE, "the bytes of those that could be read"
    refused(site, queue)
    site.publish("q", b"more")
    heal(site)
    assert not queue.fault
    assert queue.bytes == len(BODIES) * SIZE + len(b"more")
    assert [got(site, queue).content for _ in range(len(BODIES) + 1)] == [*BODIES, b"more"]
    assert queue.bytes == 0


def test_a_byte_limited_stream_is_unavailable_at_the_start() -> None:
    arguments: dict[str, object] = {"x-queue-type": "stream", "x-max-length-bytes": len(BODIES) * SIZE}
    site, queue = damaged_start(paged(arguments)[0], 7)
    with pytest.raises(BrokerError):
        site.consume(queue)
    heal(site)
    assert queue.bytes == len(BODIES) * SIZE
    site.publish("q", BODIES[0])
    site.turn()
    assert queue.bytes == len(BODIES) * SIZE, "the oldest has made room"


def test_a_stream_without_a_limit_in_bytes_is_available_up_to_the_damage() -> None:
    site, queue = damaged_start(paged({"x-queue-type": "stream"})[0], 7)
    assert not queue.fault
    consumer, sink = site.consume(queue, credit=100)
    consumer.cursor = 1
    site.turn()
    assert 0 < len(sink.got) <= 7
    assert sink.contents == BODIES[: len(sink.got)]
    heal(site)
    assert sink.contents == BODIES


def test_purging_a_queue_that_is_not_measured_ends_its_fault() -> None:
    site, queue = damaged_start(paged(LIMITED)[0], 7)
    site.broker.directory.purge(queue)
    site.publish("q", b"more")
    site.after(RETRY_MS + 1)
    assert not queue.fault, "the damage belongs to no message"
    assert (queue.ready, queue.bytes) == (1, len(b"more"))


def unreadable_envelopes(site: Site) -> tuple[Site, Queue]:
    """Start from a snapshot while the envelopes of a few messages cannot be read."""
    site.snapshot()
    for name in site.storage.names():
        at = site.storage.read(name, 0, site.storage.size(name)).find(BODIES[7])
        if at >= 0:
            site.storage.faults.unreadable[name] = {(at - SIZE // 100) // 512}
    site = site.restart(resident_limit=1)
    return site, site.vhost.queue("q")


def prioritized() -> tuple[Site, list[bytes]]:
    """Return a priority queue, and the bodies in the order in which it delivers them."""
    site = Site(resident_limit=1)
    site.queue("q", {"x-max-priority": 3})
    for i, body in enumerate(BODIES):
        site.publish("q", body, priority=i % 4)
        site.turn()
    return site, [body for p in (3, 2, 1, 0) for body in BODIES[p::4]]


@pytest.mark.rule("ORD-6")
def test_a_priority_queue_is_unavailable_at_the_start_while_its_priorities_cannot_be_read() -> None:
    site, order = prioritized()
    first, second, _ = (got(site, site.vhost.queue("q")) for _ in range(3))
    assert [first.content, second.content] == order[:2]
    site.turn()
    site, queue = unreadable_envelopes(site)
    assert list(site.broker.engine.unavailable.reasons) == [queue]
    assert queue.ready == len(BODIES) - 3
    refused(site, queue)
    site.publish("q", b"urgent", priority=3)
    site.publish("q", b"late", priority=0)
    site.turn()
    refused(site, queue)
    site.snapshot()
    site = site.restart(resident_limit=1)
    queue = site.vhost.queue("q")
    refused(site, queue)
    site.publish("q", b"last", priority=0)
    heal(site)
    left = [got(site, queue) for _ in range(len(BODIES))]
    assert [entry.content for entry in left] == [*order[3:5], b"urgent", *order[5:], b"late", b"last"]
    assert queue.ready == 0


@pytest.mark.parametrize("how", ["purge", "delete"])
def test_an_unsorted_priority_queue_can_be_emptied(how: str) -> None:
    site, queue = unreadable_envelopes(prioritized()[0])
    if how == "purge":
        assert site.broker.directory.purge(queue) == len(BODIES)
    else:
        queue.delete()
    site.after(RETRY_MS + 1)
    assert not site.broker.engine.unavailable.reasons
    assert site.live() == 0


def test_compaction_leaves_unreadable_messages() -> None:
    site = paged()[0]
    site.snapshot()
    site = forget_what_was_read(site)
    damage(site, 6)
    work = Relocation(site.broker, 1, site.journal.synced_lsn)
    with pytest.raises(JournalUnreadable):
        deque(iter(work.step, False))
    site.snapshot()
    site.storage.faults.unreadable.clear()
    assert site.contents() == BODIES
    assert site.restart().contents() == BODIES


def test_compaction_leaves_locked_deliveries_that_cannot_be_read() -> None:
    site = Site()
    site.queue()
    site.publish("q", *BODIES)
    link = TestedLink(site, outgoing())
    link.consume(site.vhost.queue("q"))
    site.turn()
    site = forget_what_was_read(site)
    assert site.broker.termini.by_key
    site.storage.faults.read_fails = 1.0
    work = Relocation(site.broker, 1, site.journal.synced_lsn)
    with pytest.raises(JournalUnreadable):
        deque(iter(work.step, False))
    site.storage.faults.read_fails = 0.0
    again = attached_again(site, outgoing())
    taken, _ = again.loan.take_up(range(1, len(BODIES) + 1))
    assert [each.entry.content for each in taken] == BODIES


@pytest.mark.rule("DTX-8")
def test_a_prepared_branch_stays_prepared_while_its_messages_cannot_be_read() -> None:
    site = XaSite()
    site.queue("stream", {"x-queue-type": "stream"})
    branch = site.start()
    branch.enlist(site.publication("stream", BODIES[0]))
    site.end()
    assert site.coordinator.prepare(X).status is OK
    site.turn()
    site = site.restart()
    site.after(1)  # a stream stores messages under the time of the commit, so they are written again
    damage(site, 0)
    forget_chunks(site)
    with pytest.raises(BrokerError) as caught:
        site.coordinator.commit(X, one_phase=False)
    assert caught.value.condition is Condition.UNAVAILABLE
    assert site.branches.recover() == [X]
    site.storage.faults.unreadable.clear()
    assert site.coordinator.commit(X, one_phase=False).status is OK
    site.turn()
    assert len(site.vhost.queue("stream").order) == 1
