"""Blocks of publishes: slices of whole units, and times where the bodies begin."""

from __future__ import annotations

from struct import unpack_from

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.perf.block import WRITE_BYTES, PublishBlock


def block(sizes: list[int], heads: list[int] | None = None) -> PublishBlock:
    """Return units of a head of `n`s and a body of zeros."""
    heads = heads or [5] * len(sizes)
    return PublishBlock([b"n" * head + bytes(size) for head, size in zip(heads, sizes, strict=True)], heads)


def stamps(publishes: PublishBlock, heads: list[int]) -> list[int]:
    return [unpack_from(">Q", publishes.slice(i, 1), head)[0] for i, head in enumerate(heads)]


def test_slices_are_whole_publishes() -> None:
    publishes = block([8, 9, 10])
    assert [len(publishes.slice(number, 1)) for number in range(3)] == [13, 14, 15]
    assert publishes.slice(0, 3) == publishes.view


def test_publishes_that_fill_a_write_are_sent_together() -> None:
    assert block([995] * 1000).write_count == WRITE_BYTES // 1000
    assert block([2 * WRITE_BYTES]).write_count == 1


@given(
    heads=st.lists(st.integers(0, 9), min_size=9, max_size=9) | st.just([7] * 9),
    first=st.integers(0, 8),
    time=st.integers(1, 2**63),
    data=st.data(),
)
def test_a_time_is_written_only_into_the_chosen_bodies(
    heads: list[int], first: int, time: int, data: st.DataObject
) -> None:
    publishes = block([30] * 9, heads)
    before = bytes(publishes.view)
    number = data.draw(st.integers(1, 9 - first))
    publishes.stamp(first, number, time)
    assert stamps(publishes, heads) == [time if first <= i < first + number else 0 for i in range(9)]
    publishes.stamp_each(first, [0] * number)
    assert bytes(publishes.view) == before


def test_each_body_can_have_its_own_time() -> None:
    publishes = block([8] * 4)
    publishes.stamp_each(1, [5, 6])
    assert stamps(publishes, [5] * 4) == [0, 5, 6, 0]
