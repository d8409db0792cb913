"""Hypothesis strategies for values of AMQP 1.0."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from escrowmq.wire.amqp10.codec.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Uuid,
)


def integers(kind: type[int], bits: int, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.integers(low, high).map(kind)


symbols = st.text(st.characters(max_codepoint=127), max_size=300).map(Symbol)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)

scalars: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    integers(UByte, 8, False),
    integers(UShort, 16, False),
    integers(UInt, 32, False),
    integers(ULong, 64, False),
    integers(Byte, 8, True),
    integers(Short, 16, True),
    integers(Int, 32, True),
    integers(int, 64, True),
    integers(Timestamp, 64, True),
    st.floats(allow_nan=False),
    st.floats(allow_nan=False, width=32).map(Float),
    st.characters(exclude_categories=["Cs"]).map(Char),
    texts,
    symbols,
    st.binary(max_size=300),
    st.binary(min_size=16, max_size=16).map(Uuid),
    st.binary(min_size=4, max_size=4).map(Decimal32),
    st.binary(min_size=8, max_size=8).map(Decimal64),
    st.binary(min_size=16, max_size=16).map(Decimal128),
)


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(texts, inner, max_size=4),
        st.builds(Described, st.one_of(integers(ULong, 64, False), symbols), inner),
        st.lists(symbols, max_size=5).map(lambda items: Array(items, 0xA3)),
        st.lists(integers(ULong, 64, False), min_size=1, max_size=5).map(Array),
        st.lists(st.lists(st.booleans(), max_size=3), min_size=1, max_size=3).map(Array),
        st.lists(st.lists(st.binary(max_size=9), min_size=1, max_size=3).map(Array), min_size=1, max_size=3).map(Array),
    )


values = st.recursive(scalars, _containers, max_leaves=12)
