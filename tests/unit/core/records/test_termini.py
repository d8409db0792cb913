"""Records of termini are read back as they were written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.records.references import Range
from escrowmq.core.records.termini import (
    NumberedRange,
    decode_acquired,
    decode_arrived,
    decode_forgotten,
    decode_given_back,
    encode_acquired,
    encode_arrived,
    encode_forgotten,
    encode_given_back,
    numbered_ranges,
)

tags = st.lists(st.binary(max_size=32), max_size=5)


@given(st.integers(0, (1 << 64) - 1), st.sampled_from(Disposition), tags)
def test_arrived(terminus: int, outcome: Disposition, some: list[bytes]) -> None:
    fingerprints = [len(tag).to_bytes(8, "big") for tag in some]
    assert decode_arrived(encode_arrived(terminus, outcome, some, fingerprints)) == (
        terminus,
        outcome,
        some,
        fingerprints,
    )


@given(st.integers(0, (1 << 64) - 1), st.sampled_from(Disposition), tags)
def test_arrived_without_fingerprints(terminus: int, outcome: Disposition, some: list[bytes]) -> None:
    assert decode_arrived(encode_arrived(terminus, outcome, some, None)) == (terminus, outcome, some, None)


@given(st.integers(0, (1 << 64) - 1), tags)
def test_forgotten(terminus: int, some: list[bytes]) -> None:
    assert decode_forgotten(encode_forgotten(terminus, some)) == (terminus, some)


def test_acquired() -> None:
    ranges = [NumberedRange(7, 40, 2), NumberedRange(9, 3, 1)]
    assert decode_acquired(encode_acquired(5, 3, ranges)) == (5, 3, ranges)


def test_given_back() -> None:
    assert decode_given_back(encode_given_back(5, 3, [(40, 2), (50, 1)])) == (5, 3, [Range(40, 2), Range(50, 1)])


@pytest.mark.parametrize(
    ("deliveries", "expected"),
    [
        ([], []),
        ([(1, 5)], [(1, 5, 1)]),
        ([(1, 5), (2, 6), (3, 7)], [(1, 5, 3)]),
        ([(1, 5), (2, 7), (3, 8)], [(1, 5, 1), (2, 7, 2)]),
        ([(1, 5), (3, 6)], [(1, 5, 1), (3, 6, 1)]),
    ],
)
def test_numbers_and_positions_grow_together_in_a_range(
    deliveries: list[tuple[int, int]], expected: list[tuple[int, int, int]]
) -> None:
    assert numbered_ranges(deliveries) == expected
