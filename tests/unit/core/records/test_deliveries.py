"""DELIVERIES records are decoded as they were encoded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.records.deliveries import Delivered, Part, decode_deliveries, encode_deliveries
from escrowmq.core.records.references import Range

NUMBER = st.integers(0, 2**32 - 1)


RANGES = st.lists(st.builds(Range, st.integers(0, 2**64 - 1), NUMBER), max_size=4)


PARTS = st.lists(st.builds(Part, st.text(max_size=20), st.integers(0, 3), RANGES), max_size=4)


@given(st.builds(Delivered, NUMBER, st.integers(0, 2**63), PARTS))
def test_deliveries_are_decoded_as_they_were_encoded(found: Delivered) -> None:
    assert decode_deliveries(encode_deliveries(found)) == found
