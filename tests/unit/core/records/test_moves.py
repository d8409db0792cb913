"""Records of moves are decoded as they were encoded."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.records.moves import Move, decode_moves, decode_readdressed, encode_moves, encode_readdressed

u32 = st.integers(0, 2**32 - 1)


u64 = st.integers(0, 2**64 - 1)


moves = st.integers(0, 5).flatmap(
    lambda n: st.builds(
        Move,
        u32,
        st.lists(u64, min_size=n, max_size=n).map(lambda values: array("Q", values)),
        st.lists(u32, min_size=n, max_size=n).map(lambda values: array("I", values)),
    )
)


@given(st.lists(moves, max_size=4))
def test_moves_are_decoded_as_they_were_encoded(moves: list[Move]) -> None:
    head = encode_moves(moves)
    assert decode_moves(memoryview(head + b"block")) == (moves, len(head))


@given(st.lists(moves, max_size=4), u64)
def test_new_addresses_are_decoded_as_they_were_encoded(moves: list[Move], lsn: int) -> None:
    assert decode_readdressed(memoryview(encode_readdressed(moves, lsn))) == (moves, lsn)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.sampled_from(["$bytes", "$text", "$table"]), inner, max_size=2)
    ),
    max_leaves=8,
)
