"""Values of AMQP 0-10 for Hypothesis, by wire type."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from escrowmq.wire.amqp010.codec import types
from escrowmq.wire.amqp010.codec.spec import Xid
from escrowmq.wire.amqp010.codec.structs import STRUCTS, Compound


def numbers(bits: int, *, signed: bool = False) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) if signed else st.integers(0, (1 << bits) - 1)


def texts(most: int) -> st.SearchStrategy[str]:
    """Strings whose UTF-8 has at most `most` octets."""
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=most // 4)


DECIMALS = st.builds(
    lambda sign, number, scale: Decimal((sign, tuple(map(int, str(number))), -scale)),
    st.sampled_from((0, 1)),
    st.integers(1, (1 << 63) - 1),
    st.integers(0, 255),
)
XIDS = st.builds(Xid, numbers(32), st.binary(max_size=64), st.binary(max_size=64))
LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    numbers(64, signed=True),
    numbers(8, signed=True).map(types.Int8),
    numbers(16, signed=True).map(types.Int16),
    numbers(32, signed=True).map(types.Int32),
    numbers(8).map(types.UInt8),
    numbers(16).map(types.UInt16),
    numbers(32).map(types.UInt32),
    numbers(64).map(types.UInt64),
    numbers(64).map(types.Datetime),
    st.floats(allow_nan=False),
    st.floats(width=32, allow_nan=False).map(types.Float),
    st.characters(max_codepoint=255).map(types.Char),
    st.characters(exclude_categories=["Cs"]).map(types.CharUtf32),
    texts(100),
    st.binary(max_size=40),
    st.binary(min_size=16, max_size=16).map(types.Uuid),
    st.sampled_from((1, 2, 4, 5, 8, 9, 16, 32, 64, 128)).map(lambda size: types.FixedBinary(b"x" * size)),
    DECIMALS,
    XIDS,
    st.builds(types.UnknownStruct, st.integers(0, 0xFFFF).filter(lambda code: code not in STRUCTS), st.binary()),
)
ARRAYS: st.SearchStrategy[types.Array] = st.one_of(
    st.lists(texts(40), max_size=5).map(lambda items: types.Array(items, code=0x95)),
    st.lists(numbers(8), max_size=9).map(lambda items: types.Array(items, code=0x02)),
    st.lists(XIDS, max_size=3).map(lambda items: types.Array(items, code=0xAB)),
    st.lists(st.binary(max_size=9), max_size=3).map(lambda items: types.Array(items, code=0xA0)),
    st.integers(0, 64).map(lambda count: types.Array([None] * count, code=0xF0)),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    LEAVES | ARRAYS,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(texts(40), children, max_size=4),
    max_leaves=12,
)
MAPS = st.dictionaries(texts(40), VALUES, max_size=5)
PAIRS = st.lists(st.tuples(numbers(32), numbers(32)), max_size=5).map(tuple)

OF_WIRE_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "bit": st.booleans(),
    "uint8": numbers(8),
    "uint16": numbers(16),
    "uint32": numbers(32),
    "uint64": numbers(64),
    "sequence-no": numbers(32),
    "datetime": numbers(64),
    "str8": texts(255),
    "str16": texts(400),
    "vbin8": st.binary(max_size=255),
    "vbin16": st.binary(max_size=300),
    "vbin32": st.binary(max_size=300),
    "uuid": st.binary(min_size=16, max_size=16),
    "map": MAPS,
    "array": ARRAYS,
    "struct32": XIDS,
    "sequence-set": PAIRS,
    "dtx.xid": XIDS,
}


def compounds(kind: type[Compound]) -> st.SearchStrategy[Any]:
    """Return objects of `kind`, in which each field may be absent."""
    from escrowmq.wire.amqp010.codec.spec import ReplyTo

    fields = {}
    for name, wire_type in kind.FIELDS:
        strategy = compounds(ReplyTo) if wire_type == "message.reply-to" else OF_WIRE_TYPE[wire_type]
        fields[name] = strategy if wire_type == "bit" else st.none() | strategy
    return st.builds(kind, **fields)
