"""Records of reservations are decoded as they were encoded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.records.references import Reference
from escrowmq.core.records.reservations import (
    Held,
    HeldRange,
    Released,
    decode_held,
    decode_released,
    encode_held,
    encode_released,
    joined,
)

u32, u64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
names = st.text(st.characters(codec=None, exclude_categories=()), max_size=40)
ranges = st.lists(st.builds(HeldRange, u64, u32, u32), max_size=5)
copies = st.lists(st.builds(Reference, u64, u32, u64, u32), max_size=5)


@given(st.builds(Held, u32, names, u64, u64, ranges, copies))
def test_reserved_messages_are_decoded_as_they_were_encoded(held: Held) -> None:
    assert decode_held(b"".join(encode_held(held))) == held


@given(st.builds(Released, u32, names, u64, u64))
def test_releases_are_decoded_as_they_were_encoded(released: Released) -> None:
    assert decode_released(memoryview(encode_released(*released))) == released


def test_neighbours_are_joined_if_they_were_delivered_equally_often() -> None:
    given_ = [HeldRange(1, 2, 0), HeldRange(3, 1, 0), HeldRange(4, 1, 1), HeldRange(1, 1, 1), HeldRange(2, 1, 1)]
    assert joined(given_) == [HeldRange(1, 3, 0), HeldRange(4, 1, 1), HeldRange(1, 2, 1)]
