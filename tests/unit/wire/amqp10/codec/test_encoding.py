"""Values of every type: their smallest encodings, round trips, and an independent encoder."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest
from hypothesis import given

from escrowmq.wire.amqp10.codec.encoding import MAX_DEPTH, CodecError, decode, encode
from escrowmq.wire.amqp10.codec.types import (
    Array,
    Byte,
    Char,
    Described,
    Float,
    Int,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Uuid,
    Value,
)
from tests.unit.wire.amqp10.codec.proton import VALUES
from tests.unit.wire.amqp10.codec.strategies import values


def types(value: Value) -> Any:
    """The types of a value and of all values in it; equality alone does not see them."""
    if isinstance(value, Described):
        return Described, types(value.descriptor), types(value.value)
    if isinstance(value, dict):
        return dict, [(types(key), types(item)) for key, item in value.items()]
    if isinstance(value, list):
        return type(value), [types(item) for item in value]
    return type(value)


@given(values)
def test_a_value_survives_encoding_with_its_types(value: Value) -> None:
    data = encode(value)
    decoded, at = decode(data)
    assert at == len(data)
    assert decoded == value
    assert types(decoded) == types(value)


@pytest.mark.parametrize(("value", "octets"), VALUES)
def test_proton_and_we_mean_the_same_by_a_value(value: Value, octets: str) -> None:
    data = bytes.fromhex(octets)
    decoded, at = decode(data)
    assert (decoded, at) == (value, len(data))
    assert types(decoded) == types(value)
    assert len(encode(value)) <= len(data)
    assert decode(encode(value))[0] == value


@pytest.mark.parametrize(
    ("value", "octets"),
    [
        (UInt(0), "43"),
        (UInt(255), "52ff"),
        (UInt(256), "7000000100"),
        (ULong(0), "44"),
        (127, "557f"),
        (128, "810000000000000080"),
        (Int(-128), "5480"),
        ([], "45"),
        ({}, "c10100"),
        (b"a" * 255, "a0ff" + "61" * 255),
        (b"a" * 256, "b000000100" + "61" * 256),
        (Array([True, False]), "e00402560100"),
        (Array([Symbol("a")]), "e00401a30161"),
        (Array([], 0xA3), "e00200a3"),
        ((1, 2), "c0050255015502"),
        (bytearray(b"x"), "a00178"),
    ],
)
def test_values_have_their_smallest_encoding(value: Value, octets: str) -> None:
    assert encode(value).hex() == octets


def test_an_array_whose_items_differ_in_size_uses_the_wide_form() -> None:
    value = Array(["a", "b" * 300])
    assert encode(value)[9] == 0xB1
    assert decode(encode(value))[0] == value


@pytest.mark.parametrize(
    "value",
    [
        UByte(256),
        UShort(-1),
        UInt(2**32),
        ULong(-1),
        Byte(128),
        2**63,
        Timestamp(2**63),
        Float(1e300),
        Char("ab"),
        Char(""),
        "\ud800",
        Symbol("ä"),
        Uuid(b"short"),
        3j,
        Array([1, "a"]),
        Array([Described(ULong(1), 1), Described(ULong(2), 1)]),
        Array([None] * 65),
    ],
)
def test_values_without_an_encoding_are_refused(value: Value) -> None:
    with pytest.raises(CodecError):
        encode(value)


def test_depth_is_limited() -> None:
    value: Value = []
    for _ in range(MAX_DEPTH - 1):
        value = [value]
    assert decode(encode(value))[0] == value
    with pytest.raises(CodecError, match="nested deeper"):
        encode([[value]])


@pytest.mark.parametrize("odd", [None, (b"12345", None), (b"1234", 0), (Symbol("1234"), None)])
def test_a_large_map_is_encoded_like_a_small_one(odd: tuple[Value, Value] | None) -> None:
    items: list[tuple[Value, Value]] = [(b"%03d" % number, None) for number in range(300)]
    items += [] if odd is None else [odd]
    body = b"".join(encode(key) + encode(value) for key, value in items)
    assert encode(dict(items)) == b"\xd1" + pack(">II", len(body) + 4, 2 * len(items)) + body
