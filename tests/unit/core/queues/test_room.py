"""The room in a queue with limits."""

from __future__ import annotations

import pytest

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
    assert [entry.content for entry in taken_over_limit(queue, site.broker.engine)] == [b"1", b"2"]
    assert not taken_over_limit(queue, site.broker.engine)
    assert queue.bytes == 2
