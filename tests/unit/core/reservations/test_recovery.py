"""Recovery restores reservations from their records."""

from __future__ import annotations

import pytest

from escrowmq.core.queues.backlog import Backlog
from escrowmq.core.records.references import Reference
from escrowmq.core.records.reservations import Held, HeldRange, Released
from escrowmq.core.reservations.recovery import FoundReservations
from tests.unit.core.site import Site


def test_ranges_are_numbered_in_their_order() -> None:
    found, queue = FoundReservations(), Site().queue()
    assert found.held(Held(1, "g", 1, 1, [HeldRange(5, 2, 0), HeldRange(1, 2, 1)], [])) == 7
    assert found.held(Held(1, "g", 1, 5, [HeldRange(8, 1, 0)], [])) == 9
    references = Backlog.of(Reference(1, 6, 100, 0), Reference(8, 2, 200, 3))
    found.complete(references)
    found.restore(queue, references, 0)
    reservation = queue.reservations["g"]
    assert list(references) == [Reference(3, 2, 100, 2), Reference(9, 1, 200, 4)]
    assert list(reservation.rows()[1]) == [(5, 2, 100, 4, 0), (1, 2, 100, 0, 1), (8, 1, 200, 3, 0)]
    assert (reservation.settled, reservation.first, reservation.end) == (1, 1, 6)


def test_settled_and_released_numbers_are_not_restored() -> None:
    found, queue = FoundReservations(), Site().queue()
    found.held(Held(1, "g", 1, 1, [HeldRange(1, 4, 2)], []))
    assert found.released(Released(1, "g", 3, 3)) == {}
    assert found.released(Released(1, "g", 3, 5)) == {3: 3, 4: 3}
    references = Backlog.of(Reference(3, 2, 100, 0))
    found.restore(queue, references, 0)
    reservation = queue.reservations["g"]
    assert (reservation.settled, reservation.first, reservation.end) == (3, 5, 5)
    assert len(references) == 2


def test_a_snapshot_contains_the_next_number() -> None:
    found, queue = FoundReservations(), Site().queue()
    assert found.held(Held(1, "g", 7, 9, [], [])) == 0
    found.restore(queue, Backlog(), 0)
    assert (queue.reservations["g"].settled, queue.reservations["g"].first, queue.reservations["g"].end) == (7, 9, 9)


def test_copies_are_content_of_the_queue() -> None:
    found, references = FoundReservations(), Backlog.of(Reference(2, 1, 100, 0))
    found.held(Held(1, "g", 1, 1, [HeldRange(1, 1, 0)], [Reference(1, 1, 500, 0)]))
    found.complete(references)
    assert list(references) == [Reference(1, 1, 500, 0), Reference(2, 1, 100, 0)]


def test_a_reservation_of_missing_messages_is_an_error_of_the_log() -> None:
    found = FoundReservations()
    found.held(Held(1, "g", 1, 1, [HeldRange(1, 2, 0)], []))
    with pytest.raises(AssertionError, match="its records say that it goes to 3"):
        found.restore(Site().queue(), Backlog.of(Reference(1, 1, 100, 0)), 0)
