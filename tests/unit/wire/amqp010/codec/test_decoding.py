"""Reading values: every type whole, cut off and malformed; bounded depth and number of items."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.amqp010.codec import types
from escrowmq.wire.amqp010.codec.decoding import (
    MAX_DEPTH,
    MAX_EMPTY_ITEMS,
    read_array,
    read_byte_ranges,
    read_list,
    read_map,
    read_ranges,
    read_struct32,
)
from escrowmq.wire.amqp010.codec.errors import CodecError
from escrowmq.wire.amqp010.codec.spec import XaResult

VALUES: list[tuple[bytes, Any]] = [
    (b"\x00a", types.FixedBinary(b"a")),
    (b"\x01\xff", types.Int8(-1)),
    (b"\x02\xff", types.UInt8(255)),
    (b"\x04\xe9", types.Char("é")),
    (b"\x08\x00", False),
    (b"\x08\x01", True),
    (b"\x10ab", types.FixedBinary(b"ab")),
    (b"\x11\xff\xfe", types.Int16(-2)),
    (b"\x12\xff\xfe", types.UInt16(0xFFFE)),
    (b"\x20abcd", types.FixedBinary(b"abcd")),
    (b"\x21\xff\xff\xff\xfe", types.Int32(-2)),
    (b"\x22\xff\xff\xff\xfe", types.UInt32(0xFFFFFFFE)),
    (b"\x23\x3f\x80\x00\x00", types.Float(1.0)),
    (b"\x27\x00\x01\xf6\x00", types.CharUtf32("\U0001f600")),
    (b"\x30abcdefgh", types.FixedBinary(b"abcdefgh")),
    (b"\x31" + b"\xff" * 8, -1),
    (b"\x32" + b"\xff" * 8, types.UInt64((1 << 64) - 1)),
    (b"\x33\x3f\xf0" + bytes(6), 1.0),
    (b"\x38" + bytes(7) + b"\x09", types.Datetime(9)),
    (b"\x40" + b"a" * 16, types.FixedBinary(b"a" * 16)),
    (b"\x48" + b"u" * 16, types.Uuid(b"u" * 16)),
    (b"\x50" + b"a" * 32, types.FixedBinary(b"a" * 32)),
    (b"\x60" + b"a" * 64, types.FixedBinary(b"a" * 64)),
    (b"\x70" + b"a" * 128, types.FixedBinary(b"a" * 128)),
    (b"\x80\x02ab", b"ab"),
    (b"\x84\x01\xe9", "é"),
    (b"\x85\x02\xc3\xa9", "é"),
    (b"\x86\x02\x00\xe9", "é"),
    (b"\x90\x00\x02ab", b"ab"),
    (b"\x94\x00\x01\xe9", "é"),
    (b"\x95\x00\x02\xc3\xa9", "é"),
    (b"\x96\x00\x02\x00\xe9", "é"),
    (b"\xa0\x00\x00\x00\x02ab", b"ab"),
    (b"\xa8\x00\x00\x00\x08\x00\x00\x00\x01\x01k\x02\x07", {"k": types.UInt8(7)}),
    (b"\xa9\x00\x00\x00\x06\x00\x00\x00\x01\x02\x07", [types.UInt8(7)]),
    (b"\xaa\x00\x00\x00\x07\x02\x00\x00\x00\x02\x07\x08", types.Array([7, 8], code=0x02)),
    (b"\xab\x00\x00\x00\x06\x06\x01\x01\x00\x00\x05", XaResult(5)),
    (b"\xab\x00\x00\x00\x03\xff\xffx", types.UnknownStruct(0xFFFF, b"x")),
    (b"\xc0abcde", types.FixedBinary(b"abcde")),
    (b"\xc8\x02\xff\xff\xff\x85", Decimal("-1.23")),
    (b"\xd0abcdefghi", types.FixedBinary(b"abcdefghi")),
    (b"\xd8\x01" + bytes(7) + b"\x0f", Decimal("1.5")),
    (b"\xf0", None),
    (b"\xf1", True),
]
IDS = [f"{octets[0]:#04x}" for octets, _ in VALUES]


def as_list(octets: bytes) -> bytes:
    """Return a list of one item."""
    return (len(octets) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x01" + octets


@pytest.mark.parametrize(("octets", "value"), VALUES, ids=IDS)
def test_every_type_has_its_python_type(octets: bytes, value: object) -> None:
    data = as_list(octets)
    items, end = read_list(data + b"behind", 0, len(data))
    assert end == len(data)
    assert items == [value]
    assert type(items[0]) is type(value)


@pytest.mark.parametrize("octets", [octets for octets, _ in VALUES], ids=IDS)
def test_a_value_that_is_cut_off_is_refused(octets: bytes) -> None:
    for size in range(len(octets)):
        data = as_list(octets[:size])
        with pytest.raises(CodecError):
            read_list(data, 0, len(data))


@pytest.mark.parametrize("octets", [octets for octets, _ in VALUES], ids=IDS)
def test_octets_behind_a_value_are_refused(octets: bytes) -> None:
    data = as_list(octets + b"\x00")
    with pytest.raises(CodecError):
        read_list(data, 0, len(data))


@pytest.mark.parametrize(
    "octets",
    [
        b"\x03",
        b"\x85\x01\xff",
        b"\x86\x01a",
        b"\x27\x00\x00\xd8\x00",
        b"\x27\x00\x11\x00\x00",
        b"\xab\x00\x00\x00\x01\x06",
    ],
)
def test_a_malformed_value_is_refused(octets: bytes) -> None:
    data = as_list(octets)
    with pytest.raises(CodecError):
        read_list(data, 0, len(data))


@pytest.mark.parametrize("read", [read_map, read_list, read_array])
def test_a_compound_value_without_octets_is_empty(read: Callable[..., tuple[Any, int]]) -> None:
    value, end = read(bytes(4), 0, 4)
    assert (len(value), end) == (0, 4)


def test_the_last_of_equal_keys_counts() -> None:
    data = b"\x00\x00\x00\x0c\x00\x00\x00\x02\x01k\x02\x07\x01k\x02\x08"
    assert read_map(data, 0, len(data)) == ({"k": 8}, len(data))


@pytest.mark.parametrize("depth", [MAX_DEPTH, MAX_DEPTH + 1])
def test_nesting_is_limited(depth: int) -> None:
    data = as_list(b"\xf0")
    for _ in range(depth - 1):
        data = as_list(b"\xa9" + data)
    if depth <= MAX_DEPTH:
        read_list(data, 0, len(data))
    else:
        with pytest.raises(CodecError, match="nested"):
            read_list(data, 0, len(data))


@pytest.mark.parametrize("count", [MAX_EMPTY_ITEMS, MAX_EMPTY_ITEMS + 1, 0xFFFFFFFF])
def test_an_array_of_items_without_octets_is_limited(count: int) -> None:
    data = b"\x00\x00\x00\x05\xf0" + count.to_bytes(4, "big")
    if count == MAX_EMPTY_ITEMS:
        assert read_array(data, 0, 9) == (types.Array([None] * count, code=0xF0), 9)
    else:
        with pytest.raises(CodecError, match="cannot have"):
            read_array(data, 0, 9)


@pytest.mark.parametrize("code", [0x02, 0x22, 0x85, 0xA8])
def test_an_array_of_more_items_than_octets_is_refused(code: int) -> None:
    data = b"\x00\x00\x00\x06" + bytes((code,)) + b"\xff\xff\xff\xff\x00"
    with pytest.raises(CodecError):
        read_array(data, 0, len(data))


def test_a_map_of_more_entries_than_octets_is_refused() -> None:
    data = b"\x00\x00\x00\x08\xff\xff\xff\xff\x01k\x02\x07"
    with pytest.raises(CodecError, match="cannot be"):
        read_map(data, 0, len(data))


def test_ranges_are_pairs() -> None:
    data = b"\x00\x10" + bytes(7) + b"\x02\xff\xff\xff\xff\x00\x00\x00\x01"
    assert read_ranges(data, 0, len(data)) == (((0, 2), (0xFFFFFFFF, 1)), len(data))
    wide = b"\x00\x10" + bytes(15) + b"\x05"
    assert read_byte_ranges(wide, 0, len(wide)) == (((0, 5),), len(wide))


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x08" + bytes(7), b"\x00\x07" + bytes(7)])
def test_ranges_of_another_size_are_refused(data: bytes) -> None:
    with pytest.raises(CodecError):
        read_ranges(data, 0, len(data))


@given(
    data=st.binary(max_size=200), read=st.sampled_from((read_map, read_list, read_array, read_struct32, read_ranges))
)
def test_any_octets_are_accepted_or_refused(read: Callable[..., tuple[Any, int]], data: bytes) -> None:
    try:
        _, end = read(data, 0, len(data))
    except CodecError:
        return
    assert end <= len(data)


@given(data=st.binary(max_size=100))
def test_any_octets_of_a_list_are_accepted_or_refused(data: bytes) -> None:
    framed = len(data).to_bytes(4, "big") + data
    with contextlib.suppress(CodecError):
        assert read_list(framed, 0, len(framed))[1] == len(framed)
