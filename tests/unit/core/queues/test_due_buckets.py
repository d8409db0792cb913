"""Due-time buckets, compared with a sorted list."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escrowmq.core.budget import Budget
from escrowmq.core.messages.entry import Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.backlog import Backlog
from escrowmq.core.queues.due_buckets import AHEAD_MS, WIDTH_MS, DueBuckets
from tests.unit.core.site import Site

START = 10 * WIDTH_MS


def due(envelope: Envelope, content: bytes, time: int) -> int:
    """Read the delay in seconds from the content."""
    del envelope
    return time + 1000 * int(content)


def buckets(site: Site) -> DueBuckets:
    return DueBuckets(site.broker.engine.pager, due)


def all_due(order: DueBuckets, now: int, most: int = 3) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    while not order.prepare(now, Budget()):
        pass
    while entries := order.take_due(now, most, lambda _: True):
        found += [(entry.position, entry.content) for entry in entries]
    return found


Plan = list[tuple[list[int], int]]
plans = st.lists(st.tuples(st.lists(st.integers(0, 300), min_size=1, max_size=6), st.integers(0, 90_000)), max_size=12)


@settings(deadline=None)
@given(plans, st.integers(1, 5), st.sampled_from([0, 4, 8]))
def test_messages_leave_when_they_are_due_in_order_of_time_and_position(plan: Plan, most: int, restart: int) -> None:
    site = Site()
    order = buckets(site)
    now, position = START, 1
    waiting: list[tuple[int, int, bytes]] = []
    for i, (delays, pause) in enumerate(plan):
        contents = [b"%d" % delay for delay in delays]
        order.append(Run(Envelope("", "q"), position, now), contents)
        waiting += [(now + 1000 * delay, position + j, contents[j]) for j, delay in enumerate(delays)]
        position += len(contents)
        if restart and i == restart:
            found = Backlog.of(*sorted(order.references()))
            order = buckets(site)
            order.restore(found, {}, 0)
        now += pause
        waiting.sort()
        expected = [(where, content) for time, where, content in waiting if time <= now]
        waiting = [message for message in waiting if message[0] > now]
        assert all_due(order, now, most) == expected
        assert len(order) == len(waiting) == sum(len(backlog) for backlog in order.backlogs())
        event = order.next_event()
        assert (event is None) == (not waiting)
        if event is not None:
            assert now < event <= waiting[0][0] or event <= waiting[0][0] - AHEAD_MS
    now += 400_000
    assert all_due(order, now, most) == [(where, content) for _, where, content in sorted(waiting)]
    assert order.backlogs() == [order._unsorted], "empty buckets are forgotten"
    assert order.next_event() is None


def test_a_bucket_is_opened_in_pieces_shortly_before_it_is_due() -> None:
    site = Site()
    order = buckets(site)
    for i in range(400):
        order.append(Run(Envelope("", "q"), 1 + i, START), [b"%d" % (300 + i % 7)])
    assert order.next_event() == START + 300_000 - AHEAD_MS
    budget = Budget()
    assert not order.prepare(START + 300_000 - AHEAD_MS, budget)
    assert budget.left <= 0
    assert len(order._soon) < 400
    assert len(all_due(order, START + 310_000)) == 400


def test_messages_that_are_due_much_later_cost_no_work() -> None:
    site = Site()
    order = buckets(site)
    for i in range(400):
        order.append(Run(Envelope("", "q"), 1 + i, START), [b"%d" % (300 + 61 * i)])
    budget = Budget()
    before = budget.left
    assert order.prepare(START, budget)
    assert budget.left == before
    assert not order._soon


def test_everything_can_be_withdrawn() -> None:
    site = Site()
    order = buckets(site)
    order.append(Run(Envelope("", "q"), 1, START), [b"1", b"100", b"1"])
    all_due(order, START)
    gone = order.withdraw()
    assert (1 in gone, 2 in gone, 3 in gone) == (True, True, True)
    assert (len(order), order.next_event()) == (0, None)
    order.append(Run(Envelope("", "q"), 4, START), [b"1"])
    assert all_due(order, START + 1000) == [(4, b"1")]


def test_no_consumer_gets_anything() -> None:
    site = Site()
    order = buckets(site)
    order.append(Run(Envelope("", "q"), 1, START), [b"1"])
    assert order.take(5) == []
    assert order.peek() is None
    assert order.detach(5, 5) == []
    assert list(order.levels()) == []


def recalled(order: DueBuckets, position: int, due_ms: int) -> bytes | None:
    """Take a message out, and return its content; None if it was not there."""
    found = order.find(position, due_ms)
    order.take_out(position, due_ms)
    return None if found is None else found.content


@pytest.mark.parametrize("stage", ["unsorted", "waiting", "open"])
def test_a_message_is_taken_out_wherever_it_waits(stage: str) -> None:
    site = Site()
    order = buckets(site)
    order.append(Run(Envelope("", "q"), 1, START), [b"70", b"70", b"71"])
    if stage == "unsorted":
        restored = buckets(site)
        restored.restore(Backlog.of(*sorted(order.references())), {}, 0)
        order = restored
    elif stage == "open":
        assert order.prepare(START + 60_000, Budget())
    assert recalled(order, 2, START + 70_000) == b"70"
    assert recalled(order, 2, START + 70_000) is None
    assert recalled(order, 4, START + 70_000) is None
    assert len(order) == 2
    assert all_due(order, START + 80_000) == [(1, b"70"), (3, b"71")]


@pytest.mark.parametrize("opened", [False, True])
def test_a_bucket_from_which_everything_was_taken_out_is_forgotten(opened: bool) -> None:
    order = buckets(Site())
    order.append(Run(Envelope("", "q"), 1, START), [b"70", b"71"])
    if opened:
        assert order.prepare(START + 60_000, Budget())
    for position, due_ms in ((1, START + 70_000), (2, START + 71_000)):
        assert recalled(order, position, due_ms) is not None
    assert len(order) == 0
    assert all_due(order, START + 80_000) == []
    assert order.peek() is None
    assert order.next_event() is None


@pytest.mark.parametrize("stage", ["closed", "open", "restored"])
def test_the_first_messages_can_be_looked_at_wherever_they_wait(stage: str) -> None:
    site = Site()
    order = buckets(site)
    order.append(Run(Envelope("", "q"), 1, START), [b"200", b"70", b"70", b"2", b"1"])
    if stage == "restored":
        order, found = buckets(site), Backlog.of(*sorted(order.references()))
        order.restore(found, {}, 0)
    elif stage == "open":
        assert order.prepare(START + 60_000 - AHEAD_MS, Budget())
    first = [(due - START, entry.position) for due, entry in order.first(4)]
    if stage == "restored":  # the messages are not sorted into minutes yet
        assert first == [(2000, 4), (70_000, 2), (70_000, 3), (200_000, 1)]
    else:
        assert first == [(1000, 5), (2000, 4), (70_000, 2), (70_000, 3)]
    assert [entry.position for _, entry in order.first(9)] == [5, 4, 2, 3, 1]
    assert len(order) == 5


def test_the_time_of_the_next_message_is_known_to_the_minute_before_its_bucket_is_opened() -> None:
    order = buckets(Site())
    assert order.next_due() is None
    order.append(Run(Envelope("", "q"), 1, START), [b"125"])
    assert order.next_due() == START + 120_000
    assert order.prepare(START + 120_000 - AHEAD_MS, Budget())
    assert order.next_due() == START + 125_000
