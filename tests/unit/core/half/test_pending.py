"""The order of the hidden queue: any message may leave next."""

from __future__ import annotations

import pytest

from escrowmq.core.half.pending import PendingOrder
from escrowmq.core.messages.entry import Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.messages.pager import LogPager
from escrowmq.core.queues.backlog import Backlog
from escrowmq.core.records.references import Range, Reference
from tests.unit.core.site import Site


def order() -> PendingOrder:
    return PendingOrder(LogPager(Site().journal))


def test_any_message_can_leave() -> None:
    tested = order()
    for position in (1, 2, 3):
        tested.append(Run(Envelope("", ""), position, 0, 100 * position), [b""])
    tested.remove_each([2])
    assert tested.find(2) is None
    assert tested.find(3) == Reference(3, 1, 300, 0)
    assert len(tested) == 2
    tested.remove_each([3])
    tested.remove_each([1])
    assert list(tested.references()) == []


@pytest.mark.parametrize("gone", [1023, 1024, 1025, 2047])
def test_restored_references_are_divided_and_messages_leave_from_the_middle(gone: int) -> None:
    tested = order()
    tested.restore(Backlog.of(Reference(1000, 3000, 64, 5)), {}, 0)
    assert len(tested) == 3000
    tested.remove_each([gone])
    assert tested.find(gone) is None
    assert tested.find(gone + 1) == Reference(gone + 1, 1, 64, 5 + gone + 1 - 1000)
    assert sum(reference.length for reference in tested.references()) == 2999


def test_everything_can_be_withdrawn() -> None:
    tested = order()
    tested.restore(Backlog.of(Reference(1, 2000, 64, 0)), {}, 0)
    assert tested.withdraw().durable_ranges() == [Range(1, 2000)]
    assert len(tested) == 0


def test_consumers_get_nothing() -> None:
    tested = order()
    tested.append(Run(Envelope("", ""), 1, 0, 100), [b""])
    assert tested.take(10) == []
    assert tested.peek() is None
    assert not tested.in_memory() + tested.loaded(0, 10)
    assert not [*tested.detach(1, 1), *tested.levels()]
    assert not tested.keeps(tested.level(Envelope("", "")), 0)
    assert tested.known_deliveries() == {}


def test_restored_references_that_cross_the_bounds_of_backlogs_are_divided_among_their_neighbours() -> None:
    tested = order()
    references = [Reference(1, 1020, 64, 0), Reference(1022, 5, 3000, 0), Reference(1030, 1, 4000, 7)]
    tested.restore(Backlog.of(*references), {}, 0)
    assert len(tested) == 1026
    assert list(tested.references()) == [
        Reference(1, 1020, 64, 0),
        Reference(1022, 2, 3000, 0),
        Reference(1024, 3, 3000, 2),
        Reference(1030, 1, 4000, 7),
    ]
