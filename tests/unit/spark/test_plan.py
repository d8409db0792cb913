"""Dividing ranges into pieces neither loses nor repeats a message."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.client.escrow import Settle
from escrowmq.spark.plan import Part, Span, cut

spans = st.lists(
    st.builds(
        lambda name, first, count: Span(name, "classic", first, first + count),
        st.text(),
        st.integers(1, 1 << 40),
        st.integers(0, 1000),
    ),
    max_size=5,
)


@given(spans, st.integers(1, 300), st.none() | st.integers(1, 40))
def test_pieces_add_up_to_the_ranges(some: list[Span], most: int, wanted: int | None) -> None:
    pieces = cut(some, most, wanted)
    numbers = [(piece.queue, n) for piece in pieces for n in range(piece.first, piece.end)]
    assert numbers == [(span.queue, n) for span in some for n in range(span.first, span.end)]
    assert all(0 < piece.end - piece.first <= most for piece in pieces)
    if wanted is not None:
        assert len(pieces) >= min(wanted, len(numbers))


@pytest.mark.parametrize(
    ("most", "wanted", "edges"),
    [(100, None, [1, 11]), (4, None, [1, 3, 6, 8, 11]), (100, 2, [1, 6, 11]), (100, 50, list(range(1, 12)))],
)
def test_pieces_have_equal_sizes(most: int, wanted: int | None, edges: list[int]) -> None:
    pieces = cut([Span("q", "classic", 1, 11)], most, wanted)
    assert [piece.first for piece in pieces] == edges[:-1]


@pytest.mark.parametrize(("count", "pieces"), [(100, 1), (101, 2), (250, 4), (500, 8), (800, 8), (801, 16)])
def test_the_pieces_of_a_range_are_a_power_of_two(count: int, pieces: int) -> None:
    assert len(cut([Span("q", "classic", 1, 1 + count)], 100, None)) == pieces


def test_only_the_first_piece_may_begin_with_a_gap() -> None:
    pieces = cut([Span("q", "stream", 0, 10, exact=False)], 5, None)
    assert [piece.exact for piece in pieces] == [False, True]


def test_a_part_can_be_pickled() -> None:
    part = Part(Span("q", "classic", 1, 3), (Settle("q", "g", 3),))
    there = pickle.loads(pickle.dumps(part))
    assert (there.span, there.settlements) == (part.span, part.settlements)
