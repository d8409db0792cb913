"""Locked deliveries are taken by number, in any order."""

from __future__ import annotations

import random

from escrowmq.core.queues.backlog import Backlog
from escrowmq.core.records.references import Reference
from escrowmq.core.records.termini import NumberedRange
from escrowmq.core.termini.locks import LockedPiece, Locks, locked_pieces, locked_ranges
from tests.unit.core.site import Site


def test_any_numbers_can_be_taken() -> None:
    queue = Site().queue()
    source = random.Random(3)
    for _ in range(200):
        locks = Locks()
        expected: dict[int, tuple[int, int, int]] = {}
        number, position = 1, 1
        for _ in range(source.randint(1, 6)):
            number += source.randint(0, 2)
            position = position + source.randint(0, 2) if source.random() < 0.8 else source.randint(1, 5)
            length = source.randint(1, 5)
            locks.add(LockedPiece(queue, number, Reference(position, length, 100, 7), 1))
            expected.update({number + i: (position + i, 100, 7 + i) for i in range(length)})
            number, position = number + length, position + length
        while expected:
            wanted = sorted(source.sample(range(number + 2), source.randint(1, number)))
            found = {
                piece.number + i: (piece.reference.first + i, piece.reference.lsn, piece.reference.start + i)
                for piece in locks.select(wanted)
                for i in range(piece.reference.length)
            }
            assert found == {n: expected.pop(n) for n in wanted if n in expected}
            locks.take(wanted)
            assert locks.count == len(expected)
            for n in range(number + 1):
                place = locks.find(n)
                assert (None if place is None else place[1]) == (expected[n][0] if n in expected else None)
        assert queue.locked == []


def test_everything_can_be_taken() -> None:
    queue = Site().queue()
    locks = Locks()
    pieces = [LockedPiece(queue, 1, Reference(9, 2, 100, 0), 0), LockedPiece(queue, 3, Reference(1, 1, 100, 2), 1)]
    for piece in pieces:
        locks.add(piece)
    assert (locks.count, queue.unsettled, len(queue.locked)) == (3, 3, 2)  # the positions do not grow with the numbers
    assert list(locks.pieces()) == pieces
    assert locks.take_all() == pieces
    assert (locks.count, queue.locked, locks.select([])) == (0, [], [])


def test_neighbours_become_one_range() -> None:
    queue = Site().queue()
    locks = Locks()
    for number, first in ((1, 5), (2, 6), (4, 7)):
        locks.add(LockedPiece(queue, number, Reference(first, 1, 100 * first, 0), 0))
    ((_, *columns),) = locks.columns()
    numbers, firsts, counts = columns
    assert locked_ranges((numbers, firsts, counts)) == [(1, 5, 2), (4, 7, 1)]


def test_only_messages_that_are_still_there_are_locked() -> None:
    queue = Site().queue()
    references = Backlog.of(Reference(5, 3, 100, 0), Reference(9, 2, 200, 4))
    found = list(locked_pieces(queue, NumberedRange(20, 4, 6), references, {6: 2}))
    assert found == [
        (queue, 21, Reference(5, 1, 100, 0), 0),
        (queue, 22, Reference(6, 1, 100, 1), 2),
        (queue, 23, Reference(7, 1, 100, 2), 0),
        (queue, 25, Reference(9, 1, 200, 4), 0),
    ]
