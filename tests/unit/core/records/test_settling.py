"""SETTLE records are decoded as they were encoded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.references import Range
from escrowmq.core.records.settling import decode_settle, encode_settle

u32 = st.integers(0, 2**32 - 1)


u64 = st.integers(0, 2**64 - 1)


@given(u32, st.sampled_from(Outcome), st.lists(st.builds(Range, u64, u32), max_size=5))
def test_settlements_are_decoded_as_they_were_encoded(queue: int, outcome: Outcome, ranges: list[Range]) -> None:
    assert decode_settle(memoryview(encode_settle(queue, outcome, ranges))) == (queue, outcome, ranges)
