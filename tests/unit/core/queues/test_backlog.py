"""Backlogs, compared with a list of messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.queues.backlog import Backlog
from escrowmq.core.records.references import TRANSIENT, Range, Reference, ranges_of

Message = tuple[int, int, int]
"""Position, LSN of the block, number in the block."""

# Gap before the run, its length, LSN, first number in the block.
runs = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6), st.integers(1, 4), st.integers(0, 5)), max_size=12)


def build(plan: list[tuple[int, int, int, int]]) -> Backlog:
    backlog = Backlog()
    position = 1
    for gap, count, lsn, index in plan:
        position += gap
        backlog.append(position, count, lsn, index)
        position += count
    return backlog


def messages(backlog: Backlog) -> list[Message]:
    return [(r.first + i, r.lsn, r.start + i) for r in backlog for i in range(r.length)]


def check(backlog: Backlog, expected: list[Message]) -> None:
    assert messages(backlog) == expected
    assert len(backlog) == backlog.messages == len(expected)


@given(runs, st.integers(0, 5), st.data())
def test_selecting_references(plan: list[tuple[int, int, int, int]], taken: int, data: st.DataObject) -> None:
    backlog = build(plan)
    for _ in range(min(taken, len(plan))):
        backlog.take(100)
    references = list(backlog)
    chosen = data.draw(st.lists(st.booleans(), min_size=len(references), max_size=len(references)))
    expected = [reference for reference, is_chosen in zip(references, chosen, strict=True) if is_chosen]
    check(backlog.select(bytes(chosen)), messages(Backlog.of(*expected)))
    assert list(backlog) == references


@given(runs, st.lists(st.integers(1, 5)))
def test_taking_returns_the_first_messages(plan: list[tuple[int, int, int, int]], steps: list[int]) -> None:
    backlog = build(plan)
    expected = messages(backlog)
    for most in steps:
        if not expected:
            break
        taken = backlog.take(most)
        assert 1 <= taken.length <= most
        assert [(taken.first + i, taken.lsn, taken.start + i) for i in range(taken.length)] == expected[: taken.length]
        expected = expected[taken.length :]
        check(backlog, expected)


@given(runs, st.sets(st.integers(0, 50)), st.integers(0, 3))
def test_removed_positions_are_absent(plan: list[tuple[int, int, int, int]], gone: set[int], taken: int) -> None:
    backlog = build(plan)
    for _ in range(min(taken, len(backlog))):
        backlog.take(1)
    expected = [message for message in messages(backlog) if message[0] not in gone]
    backlog.remove(ranges_of(gone))
    check(backlog, expected)


def test_a_range_that_covers_everything_removes_everything() -> None:
    backlog = build([(0, 3, 1, 0), (2, 3, 2, 0)])
    backlog.remove([Range(0, 100)])
    check(backlog, [])
    backlog.remove([])
    check(backlog, [])


@given(runs, st.dictionaries(st.integers(0, 50), st.tuples(st.integers(5, 6), st.integers(0, 60)), max_size=20))
def test_moved_messages_have_their_new_addresses(
    plan: list[tuple[int, int, int, int]], moved: dict[int, tuple[int, int]]
) -> None:
    backlog = build(plan)
    expected = [(p, *moved.get(p, (lsn, index))) for p, lsn, index in messages(backlog)]
    backlog.move(moved)
    check(backlog, expected)


@given(runs, st.lists(st.integers(0, 50), unique=True), st.integers(0, 9))
def test_neighbours_moved_together_become_one_reference(
    plan: list[tuple[int, int, int, int]], positions: list[int], start: int
) -> None:
    """As in a compaction, which writes its copies one after the other."""
    backlog = build(plan)
    moved = {position: (9, start + i) for i, position in enumerate(sorted(positions))}
    expected = [(p, *moved.get(p, (lsn, index))) for p, lsn, index in messages(backlog)]
    backlog.move(moved)
    check(backlog, expected)


@given(runs.filter(bool), st.integers(0, 80))
def test_a_message_is_found_by_position(plan: list[tuple[int, int, int, int]], position: int) -> None:
    backlog = build(plan)
    found = backlog.find(position)
    assert found is not None
    before = [i for i in range(backlog.begin, backlog.end) if backlog.at(i).first <= position]
    assert found == (before[-1] if before else backlog.begin)


def test_an_empty_backlog() -> None:
    backlog = Backlog()
    assert not len(backlog)
    assert backlog.find(1) is None
    with pytest.raises(IndexError):
        backlog.peek()
    with pytest.raises(IndexError):
        backlog.take(1)
    check(backlog, [])


def test_taken_references_are_freed() -> None:
    backlog = Backlog()
    for position in range(10_000):
        backlog.append(position, 1, 1, position)
    for position in range(9_000):
        assert backlog.take(5) == Reference(position, 1, 1, position)
    assert len(backlog.firsts) < 6_000
    check(backlog, [(position, 1, position) for position in range(9_000, 10_000)])
    assert backlog.find(9_500) == backlog.begin + 500


@given(runs, st.integers(0, 3), st.integers(0, 12), st.integers(0, 12), st.integers(1, 5), st.integers(0, 5))
def test_the_references_in_a_part_of_the_log_are_found(
    plan: list[tuple[int, int, int, int]], taken: int, begin: int, count: int, low: int, size: int
) -> None:
    backlog = build(plan)
    for _ in range(min(taken, len(backlog))):
        backlog.take(1)
    begin = min(backlog.begin + begin, backlog.end)
    end = min(begin + count, backlog.end)
    expected = [i for i in range(begin, end) if low <= backlog.at(i).lsn < low + size]
    assert backlog.lying_in(begin, end, low, low + size) == expected


@given(runs, st.integers(0, 3), st.data())
def test_references_are_replaced_by_others_for_the_same_messages(
    plan: list[tuple[int, int, int, int]], taken: int, data: st.DataObject
) -> None:
    """New addresses may divide references down to single messages."""
    backlog = build(plan)
    for _ in range(min(taken, len(backlog))):
        backlog.take(1)
    changes = []
    new: dict[int, tuple[int, int]] = {}
    at = backlog.begin
    while at < backlog.end:
        i = data.draw(st.integers(at, backlog.end - 1), "reference")
        j = data.draw(st.integers(i + 1, backlog.end), "up to")
        split = data.draw(st.booleans(), "one by one")
        others = []
        for old in map(backlog.at, range(i, j)):
            parts = [Reference(old.first + k, 1, 9, 100 + k) for k in range(old.length)]
            others += parts if split else [Reference(old.first, old.length, 9, 100)]
            new.update((part.first, (part.lsn, part.start)) for part in parts)
        changes.append((i, j, others))
        at = j + data.draw(st.integers(0, 3), "gap")
    expected = [(p, *new.get(p, (lsn, index))) for p, lsn, index in messages(backlog)]
    if changes:
        backlog.substitute(changes)
    check(backlog, expected)


def test_clearing_and_replacing() -> None:
    backlog = build([(0, 3, 1, 0)])
    backlog.take(1)
    backlog.replace(build([(5, 2, 3, 1)]))
    check(backlog, [(6, 3, 1), (7, 3, 2)])
    backlog.clear()
    check(backlog, [])
    backlog.append(9, 1, 1, 1)
    check(backlog, [(9, 1, 1)])


def test_withdrawn_messages_are_absent() -> None:
    backlog = Backlog.of(Reference(1, 3, 1, 0), Reference(7, 2, 2, 0))
    backlog.take(1)
    taken = backlog.withdraw()
    assert taken.bounds() == (2, 9)
    check(taken, [(2, 1, 1), (3, 1, 2), (7, 2, 0), (8, 2, 1)])
    check(backlog, [])
    backlog.append(9, 1, 1, 1)
    check(backlog, [(9, 1, 1)])


def test_a_transient_reference_does_not_survive_a_restart() -> None:
    backlog = Backlog.of(Reference(1, 3, 1, 5), Reference(4, 3, 1, TRANSIENT - 1))
    assert backlog.lasts()
    backlog.append(7, 1, 2, TRANSIENT)
    assert not backlog.lasts()
    backlog.take(3)
    backlog.take(3)
    backlog.take(1)
    assert backlog.lasts()


@given(runs, st.integers(0, 5), st.data())
def test_taking_out_positions_anywhere(plan: list[tuple[int, int, int, int]], taken: int, data: st.DataObject) -> None:
    backlog = build(plan)
    expected = messages(backlog)
    if taken and expected:
        del expected[: backlog.take(taken).length]
    chosen = data.draw(st.sets(st.sampled_from([position for position, _, _ in expected]))) if expected else set()
    backlog.take_out(sorted(chosen))
    check(backlog, [message for message in expected if message[0] not in chosen])
