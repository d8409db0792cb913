"""Transfers that are not completed: any order of completions, compared with a plain dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.queues.consumer import Consumer
from escrowmq.wire.amqp010.inflight import CreditWindow, InFlight
from tests.unit.core.site import Site

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 2), st.integers(1, 4), st.booleans()),
        st.tuples(st.just("complete"), st.integers(0, 40), st.integers(0, 20), st.just(False)),
    ),
    max_size=30,
)


@given(STEPS)
def test_everything_is_completed_once(steps: list[tuple[str, int, int, bool]]) -> None:
    queue = Site().queue()
    windows = [CreditWindow(Consumer(queue, None, str(i))) for i in range(3)]
    found, model, number = InFlight(), dict[int, tuple[CreditWindow, int]](), 0
    for step, first, count, sized in steps:
        if step == "add":
            sizes = [number + i for i in range(count)] if sized else None
            found.add(number, windows[first], count, sizes)
            model |= {number + i: (windows[first], number + i if sized else 0) for i in range(count)}
            number += count + first  # other commands have numbers, too
            continue
        done = [model.pop(i) for i in range(first, first + count + 1) if i in model]
        completed = found.complete(first, first + count)
        for window in windows:
            mine = [size for one, size in done if one is window]
            theirs = [one for one in completed if one.window is window]
            assert sum(one.transfers for one in theirs) == len(mine)
            assert sum(one.size for one in theirs) == sum(mine)
    assert sum(one.transfers for one in found.complete(0, number)) == len(model)
    assert (len(found), found.bytes) == (0, 0)


def test_consecutive_transfers_to_one_consumer_are_one_run() -> None:
    window = CreditWindow(Consumer(Site().queue(), None))
    found = InFlight()
    for number in range(0, 1000, 10):
        found.add(number, window, 10, None)
    assert len(found) == 1
    found.clear()
    assert found.complete(0, 1000) == []
