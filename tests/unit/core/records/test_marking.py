"""MARKED records are decoded as they were encoded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.messages.marks import Marks
from escrowmq.core.records.marking import decode_marked, encode_marked

U32 = st.integers(0, 2**32 - 1)
TEXTS = st.text(max_size=10)
MARKS = st.builds(
    Marks,
    U32,
    st.dictionaries(TEXTS, st.binary(max_size=10), max_size=3),
    st.frozensets(TEXTS, max_size=3),
)


@given(U32, st.dictionaries(st.integers(0, 2**64 - 1), MARKS, max_size=4))
def test_marks_are_decoded_as_they_were_encoded(queue: int, marks: dict[int, Marks]) -> None:
    assert decode_marked(encode_marked(queue, marks.items())) == (queue, marks)
