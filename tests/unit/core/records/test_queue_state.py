"""Records about the state of a queue are decoded as they were encoded."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.records.queue_state import (
    QueueState,
    decode_delivered,
    decode_queue_state,
    decode_returned,
    encode_delivered,
    encode_queue_state,
    encode_returned,
)

u32 = st.integers(0, 2**32 - 1)


u64 = st.integers(0, 2**64 - 1)


@given(u32, u64, u64, st.lists(st.tuples(u64, u64, u32, u32)), st.lists(st.tuples(u64, u32)))
def test_queue_states_are_decoded_as_they_were_encoded(
    queue: int, position: int, below: int, rows: list[tuple[int, int, int, int]], deliveries: list[tuple[int, int]]
) -> None:
    firsts, lsns, counts, indexes = ([row[i] for row in rows] for i in range(4))
    state = QueueState(
        queue,
        position,
        below,
        array("Q", firsts),
        array("Q", lsns),
        array("I", counts),
        array("I", indexes),
        deliveries,
    )
    assert decode_queue_state(memoryview(b"".join(encode_queue_state(state)))) == state


@given(u32, st.lists(st.tuples(u64, u32)), u64)
def test_delivery_counts_are_decoded_as_they_were_encoded(
    queue: int, counts: list[tuple[int, int]], below: int
) -> None:
    assert decode_returned(memoryview(encode_returned(queue, counts))) == (queue, counts)
    assert decode_delivered(memoryview(encode_delivered(queue, below))) == (queue, below)
