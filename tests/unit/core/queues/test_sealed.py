"""Sealed runs: made ready in pieces, then admitted as if they had been appended one by one."""

from __future__ import annotations

import pytest

from escrowmq.core.messages.entry import Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.queue import Queue
from escrowmq.core.queues.sealed import PIECE, SealedRuns, unsynced_references
from tests.unit.core.site import Site


def sealed(site: Site, queue: Queue, runs: int, length: int) -> SealedRuns:
    """Return transient runs that have been given positions in `queue`."""
    made = SealedRuns()
    for i in range(runs):
        made.add(Run(Envelope("", "q", priority=i % 3), 0, site.now), [b"%d.%d" % (i, j) for j in range(length)])
    made.place(queue.next_position, 0, site.now)
    queue.enqueue_sealed(made, 0)
    site.broker.engine.seal(queue)
    return made


def admit(site: Site, queue: Queue, made: SealedRuns) -> list[int]:
    costs = list(made.make_ready(queue, site.broker.engine.pager))
    made.ready = True
    site.broker.engine.synced(site.journal.synced_lsn)
    return costs


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 5}, {"x-queue-type": "stream"}])
@pytest.mark.parametrize("limit", [1 << 20, 2000])
def test_they_equal_runs_that_were_appended_one_by_one(arguments: dict[str, object], limit: int) -> None:
    plain, site = Site(resident_limit=limit), Site(resident_limit=limit)
    one, other = plain.queue("q", arguments), site.queue("q", arguments)
    for made in (plain, site):
        made.publish("q", b"before", durable=False)
    for i in range(40):
        one.enqueue(Run(Envelope("", "q", priority=i % 3), 0, plain.now), [b"%d.%d" % (i, j) for j in range(3)])
    admit(site, other, sealed(site, other, 40, 3))
    for made in (plain, site):
        made.publish("q", b"after", durable=False)
    if one.is_stream:
        assert list(other.order.references()) == list(one.order.references())
    else:
        assert site.ready(other) == plain.ready(one)
    assert other.logged == one.logged
    assert other.bytes == one.bytes


@pytest.mark.parametrize(("runs", "length"), [(4 * PIECE, 1), (1, 10 * PIECE), (10, PIECE)])
def test_a_piece_is_bounded_for_many_runs_and_for_long_ones(site: Site, runs: int, length: int) -> None:
    queue = site.queue("q")
    costs = admit(site, queue, sealed(site, queue, runs, length))
    assert max(costs) <= 2 * PIECE + 4
    assert len(costs) >= runs * length // PIECE
    assert queue.ready == runs * length


def test_they_go_behind_messages_that_were_paged_out_meanwhile(site: Site) -> None:
    queue = site.queue("q")
    made = sealed(site, queue, 20, 2)
    list(made.make_ready(queue, site.broker.engine.pager))
    queue.limit_memory(0)
    made.ready = True
    queue.order.append(Run(Envelope("", "q"), 0, site.now), [b"paged"])
    site.broker.engine.synced(site.journal.synced_lsn)
    assert len(queue.order.backlogs()[0]) == 41
    assert queue.logged


def test_their_memory_is_freed_after_their_admission(site: Site) -> None:
    queue = site.queue("q")
    made = sealed(site, queue, 20, 2)
    admit(site, queue, made)
    site.turn()
    assert not made.runs
    assert not made.contents
    assert not any(level.runs for level in made.levels.values())


def test_a_snapshot_finds_durable_ones_at_every_moment(site: Site) -> None:
    queue = site.queue("q")
    made = SealedRuns()
    made.add(Run(Envelope("", "q", durable=True), 0, site.now, 10), [b"x"] * 3)
    made.add(Run(Envelope("", "q"), 0, site.now), [b"y"])
    made.add(Run(Envelope("", "q", durable=True), 0, site.now, 50), [b"z"])
    made.place(queue.next_position, 1000, site.now)
    queue.enqueue_sealed(made, 0)
    before = unsynced_references(queue)
    assert [tuple(reference) for reference in before] == [(1, 3, 1010, 0), (5, 1, 1050, 0)]
    list(made.make_ready(queue, site.broker.engine.pager))
    assert unsynced_references(queue) == before


@pytest.fixture
def site() -> Site:
    return Site()
