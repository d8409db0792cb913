"""Messages that leave a queue all at once: the positions that a restart must not restore, and the release in pieces."""

from __future__ import annotations

from itertools import pairwise

import pytest

from escrowmq.core.queues.withdrawal import PIECE
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.references import Range
from escrowmq.core.records.settling import decode_settle
from tests.unit.core.site import Site


def published(site: Site, *, durable: bool = True, first: int = 0, count: int = 10) -> None:
    for i in range(first, first + count):
        site.publish("q", b"%d" % i, durable=durable, priority=i % 3)


@pytest.mark.parametrize("limit", [0, 800, 1 << 20])
@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 2}])
class TestRanges:
    def test_messages_without_gaps_are_one_range(self, limit: int, arguments: dict[str, object]) -> None:
        site = Site(resident_limit=limit)
        queue = site.queue(arguments=arguments)
        published(site)
        assert queue.order.withdraw().durable_ranges() == [Range(1, 10)]
        assert queue.ready == 0

    def test_unacknowledged_messages_are_left_out(self, limit: int, arguments: dict[str, object]) -> None:
        site = Site(resident_limit=limit)
        queue = site.queue(arguments=arguments)
        published(site)
        held = {entry.position for entry in queue.take(4)}
        ranges = queue.order.withdraw().durable_ranges()
        settled = {first + i for first, length in ranges for i in range(length)}
        assert settled == set(range(1, 11)) - held

    def test_transient_messages_are_left_out(self, limit: int, arguments: dict[str, object]) -> None:
        site = Site(resident_limit=limit)
        queue = site.queue(arguments=arguments)
        published(site, count=3)
        published(site, durable=False, first=3, count=3)
        published(site, first=6, count=4)
        assert queue.order.withdraw().durable_ranges() == [Range(1, 3), Range(7, 4)]

    def test_a_restart_restores_no_purged_message(self, limit: int, arguments: dict[str, object]) -> None:
        site = Site(resident_limit=limit)
        queue = site.queue(arguments=arguments)
        published(site)
        published(site, durable=False, first=10)
        assert site.broker.directory.purge(queue) == 20
        published(site, first=20, count=1)
        site.sync()
        assert site.restart().contents() == [b"20"]


@pytest.mark.parametrize("limit", [0, 1 << 20])
@pytest.mark.parametrize("delete", [False, True])
class TestPieces:
    def test_the_content_is_released_in_pieces(self, limit: int, delete: bool) -> None:
        site = Site(resident_limit=limit)
        queue = site.queue()
        count = 2 * PIECE + 10
        published(site, count=count)
        directory, engine = site.broker.directory, site.broker.engine
        assert (directory.delete_queue(queue) if delete else directory.purge(queue)) == count
        left = [site.live()]
        while engine.turn.unfinished:
            engine.turn.end()
            left.append(site.live())
        assert left[0] == count - PIECE
        assert left[-1] == 0
        assert all(before - after <= PIECE for before, after in pairwise(left))

    def test_messages_that_arrive_meanwhile_stay(self, limit: int, delete: bool) -> None:
        site = Site(resident_limit=limit)
        queue = site.queue()
        published(site, count=2 * PIECE)
        if delete:
            site.broker.directory.delete_queue(queue)
            queue = site.queue()
        else:
            site.broker.directory.purge(queue)
        site.publish("q", b"new")
        while site.broker.engine.turn.unfinished:
            site.broker.engine.turn.end()
        assert site.live() == 1
        assert site.contents() == [b"new"]


def test_a_purge_is_one_record() -> None:
    site = Site(resident_limit=0)
    queue = site.queue()
    published(site, count=2 * PIECE)
    site.broker.directory.purge(queue)
    (record,) = site.records(Kind.SETTLE)
    assert decode_settle(record).ranges == [Range(1, 2 * PIECE)]


@pytest.mark.rule("FAIR-1")
def test_the_runs_of_a_deleted_stream_are_freed_in_pieces() -> None:
    site = Site()
    stream = site.queue(arguments={"x-queue-type": "stream"})
    for i in range(PIECE + 10):
        site.publish("q", b"%d" % i, durable=True)
    gone = stream.order.withdraw()
    assert len(stream.order) == 0
    sizes = []
    while gone.release(site.journal):
        sizes.append(len(gone._objects))
    assert sizes == [PIECE + 10, PIECE + 10, 10]
