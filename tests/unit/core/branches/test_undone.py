"""The deliveries of an undone branch return in order, a few at a time, and are freed on the way."""

from __future__ import annotations

import pytest

from escrowmq.core.branches.branch import Keep, Settlement
from escrowmq.core.branches.undone import Undone
from escrowmq.core.messages.entry import Entry
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.queue import Queue
from tests.unit.core.site import Site, taken


class Keeper:
    def keep(self, *_: object) -> None:
        """Take nothing back."""


def settled(sizes: list[int]) -> tuple[list[Settlement], list[Entry], Queue]:
    """Return settlements with these numbers of deliveries, all of their deliveries in order, and their queue."""
    site = Site()
    queue = site.queue()
    site.publish("q", *[b"x"] * sum(sizes))
    consumer, entries = taken(site, queue)
    made, first = list[Settlement](), 0
    for size in sizes:
        some = entries[first : first + size]
        undo = Keep(Keeper(), [*range(first, first + size)])
        made.append(Settlement(consumer, some, list(Disposition)[len(made) % 2], undo))
        first += size
    return made, entries, queue


@pytest.mark.rule("FAIR-1")
@pytest.mark.parametrize("most", [1, 3, 100])
def test_deliveries_are_taken_in_order_and_let_go_of(most: int) -> None:
    settlements, entries, queue = settled([1] * 7 + [10, 2])
    undone = Undone(settlements)
    found: list[Entry] = []
    while undone:
        assert [entry for _, some in undone.copies() for entry in some] == entries[len(found) :]
        assert [entry for _, entry in undone.part(1, 2)] == entries[len(found) + 1 :][:2]
        some = [entry for consumer, some in undone.take_some(most) for entry in some if consumer.queue is queue]
        assert 0 < len(some) <= most
        found += some
        left = sum(len(each.undo.tags) for each in settlements if each.undo is not None)
        assert left == sum(len(each.entries) for each in settlements) == len(entries) - len(found)
    assert found == entries
    assert settlements == []
