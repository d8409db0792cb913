"""Many small structures are read from one buffer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.pipeline.columns import U32, distinct, integers, numbered, ragged, take, texts


@given(st.lists(st.binary(max_size=6), max_size=30))
def test_interned_texts_are_distinct_and_restore_the_values(values: list[bytes]) -> None:
    lengths = integers([len(value) for value in values])
    data = np.frombuffer(b"".join(values) + b"padding", np.uint8)
    numbers, known = texts(data, np.cumsum(lengths) - lengths, lengths)
    assert [known[number] for number in numbers] == values
    assert len(set(known)) == len(known)


@given(st.lists(st.integers(0, 5), max_size=20))
def test_ragged_names_the_list_and_index_of_each_item(counts: list[int]) -> None:
    owner, inner = ragged(integers(counts))
    assert list(zip(owner.tolist(), inner.tolist(), strict=True)) == [
        (i, n) for i, count in enumerate(counts) for n in range(count)
    ]


def test_unaligned_structures_are_read_and_offsets_outside_are_refused() -> None:
    data = np.frombuffer(b"\xff\x01\0\0\0\x02\0\0\0", np.uint8)
    assert take(data, integers([5, 1]), U32).tolist() == [2, 1]
    assert take(data, integers([]), U32).tolist() == []
    for beyond in (6, -1):
        with pytest.raises(IndexError, match="extends beyond"):
            take(data, integers([beyond]), U32)


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_distinct_values_are_ascending(values: list[int]) -> None:
    assert distinct(np.array(values, np.int64)).tolist() == sorted(set(values))


@given(st.lists(st.integers(0, 50)), st.sampled_from([51, 100_000]))
def test_numbered_values_are_ascending_and_restore_the_values(values: list[int], end: int) -> None:
    found, number = numbered(integers(values), end)
    assert found.tolist() == sorted(set(values))
    assert found[number].tolist() == values
