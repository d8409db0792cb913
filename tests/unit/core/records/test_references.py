"""Ranges of positions."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.records.references import merged, ranges_of


class TestRanges:
    @given(st.lists(st.integers(0, 60), unique=True))
    def test_positions_become_ranges_without_gaps(self, positions: list[int]) -> None:
        ranges = ranges_of(positions)
        assert [p for r in ranges for p in range(r.first, r.first + r.length)] == sorted(positions)
        assert all(a.first + a.length < b.first for a, b in itertools.pairwise(ranges))

    @given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 10))))
    def test_ranges_that_touch_or_overlap_are_merged(self, given_: list[tuple[int, int]]) -> None:
        ranges = merged(given_)
        wanted = {p for first, count in given_ for p in range(first, first + count)}
        assert [p for r in ranges for p in range(r.first, r.first + r.length)] == sorted(wanted)
        assert all(a.first + a.length < b.first for a, b in itertools.pairwise(ranges))
