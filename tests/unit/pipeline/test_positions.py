"""Positions of events are found by runs as they are one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.pipeline.columns import integers
from escrowmq.pipeline.events import EVENT, Happened
from escrowmq.pipeline.positions import POSITION_BITS, Positions

PASSIVE = {Happened.HANDED_OUT, Happened.COUNTED, Happened.MARKED_IN_SNAPSHOT, Happened.NEXT}
EVENTS = st.lists(
    st.tuples(st.sampled_from(list(Happened)), st.integers(1, 3), st.integers(0, 20), st.integers(0, 5)), max_size=12
)
OTHERS = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 25)), unique=True, max_size=6)


@given(EVENTS, OTHERS, st.sets(st.sampled_from(list(Happened))))
def test_the_messages_of_positions_are_those_that_a_search_for_each_finds(
    events: list[tuple[Happened, int, int, int]], others: list[tuple[int, int]], kinds: set[Happened]
) -> None:
    rows = np.zeros(len(events), EVENT)
    for row, (what, queue, first, count) in zip(rows, events, strict=True):
        row["what"], row["queue"], row["first"], row["count"], row["lsn"] = what, queue, first, count, queue * 7
    positions = Positions(rows, integers([q for q, _ in others]), integers([p for _, p in others]))
    known = sorted(
        {*others, *((q, first + i) for what, q, first, n in events for i in range(n) if what not in PASSIVE)}
    )
    mask = (1 << POSITION_BITS) - 1
    found = [(int(positions.queues[key >> POSITION_BITS]), key & mask) for key in positions.known.tolist()]
    assert found == known
    assert [known[i] for i in positions.others.tolist()] == others
    place, said, inner = positions.of(*kinds)
    assert list(zip(place.tolist(), said.at.tolist(), inner.tolist(), strict=True)) == [
        (known.index((q, first + i)), n, i)
        for n, (what, q, first, count) in enumerate(events)
        for i in range(count)
        if what in kinds and (q, first + i) in known
    ]
    assert len(said) == len(place)
    assert said["lsn"].tolist() == [events[at][1] * 7 for at in said.at.tolist()]
    assert said[np.flatnonzero(inner == 0)].at.tolist() == said.at[inner == 0].tolist()
