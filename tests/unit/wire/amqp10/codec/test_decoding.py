"""Any octets are a value or an error, in bounded time, depth and memory."""

from __future__ import annotations

import contextlib
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.amqp10.codec.decoding import MAX_DEPTH, decode, skip
from escrowmq.wire.amqp10.codec.encoding import encode
from escrowmq.wire.amqp10.codec.errors import CodecError
from escrowmq.wire.amqp10.codec.types import Byte, Int, UByte, ULong, UShort, Value
from tests.unit.wire.amqp10.codec.strategies import values

likely = st.lists(
    st.one_of(
        st.sampled_from(
            [bytes((code,)) for code in (0, 0x40, 0x45, 0x52, 0x53, 0xA0, 0xA1, 0xC0, 0xC1, 0xD0, 0xE0, 0xF0)]
        ),
        st.binary(max_size=3),
        st.sampled_from([b"\x00\x00\x00\x05", b"\xff\xff\xff\xff", b"\x00\x53\x14"]),
    ),
    max_size=30,
).map(b"".join)


@given(st.one_of(st.binary(max_size=200), likely))
def test_any_octets_are_a_value_or_an_error(data: bytes) -> None:
    try:
        _, at = decode(data)
    except CodecError:
        return
    assert 0 < at <= len(data)
    assert skip(data, 0, len(data)) == at


@given(values, st.binary(max_size=5))
def test_each_part_of_a_value_is_an_error_and_octets_behind_it_are_left(value: Value, behind: bytes) -> None:
    data = encode(value)
    assert decode(data + behind) == (value, len(data))
    assert skip(data + behind, 0, len(data)) == len(data)
    for end in range(0, len(data), max(1, len(data) // 50)):
        with pytest.raises(CodecError):
            decode(data[:end])
        with pytest.raises(CodecError):
            decode(data, 0, end)
        with pytest.raises(CodecError):
            skip(data, 0, end)


@pytest.mark.parametrize(
    "octets",
    [
        "",
        "01",
        "5602",
        "7300110000",
        "730000d800",
        "a101ff",
        "a30180",
        "c00101",
        "c003014040",
        "c10401404040",
        "c1050245405040",
        "c104024540",
        "c000",
        "d00000000300",
        "e00401",
        "e0030200",
        "f000000005ffffffff40",
        "e0024140",
        "00",
        "0053",
    ],
)
def test_malformed_values_are_an_error(octets: str) -> None:
    data = bytes.fromhex(octets)
    with pytest.raises(CodecError):
        decode(data)


@pytest.mark.parametrize("prefix", [b"\x00", b"\x00\x43", b"\xd0\x00\x00\xff\xff\x00\x00\x00\x01", b"\xe0\xff\x01"])
def test_depth_is_limited(prefix: bytes) -> None:
    with pytest.raises(CodecError):
        decode(prefix * (MAX_DEPTH + 5000))
    if prefix[0] == 0:
        with pytest.raises(CodecError, match="nested deeper"):
            skip(prefix * (MAX_DEPTH + 5000), 0, 10**6)


def test_a_small_input_cannot_take_much_memory() -> None:
    inner = b"\x40\x40\x40"
    bombs = [
        b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40",
        b"\xf0" + (4 + 1 + 3 * 1000).to_bytes(4, "big") + (1000).to_bytes(4, "big") + b"\xe0" + b"\x02\x40\x40" * 1000,
        b"\xd0\xff\xff\xff\xff\xff\xff\xff\xff" + inner,
    ]
    tracemalloc.start()
    try:
        for bomb in bombs:
            with contextlib.suppress(CodecError):
                decode(bomb)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * 2**20


def test_the_last_of_equal_keys_is_used() -> None:
    assert decode(bytes.fromhex("c10b04a1016155") + b"\x01\xa1\x01a\x55\x02")[0] == {"a": 2}


@pytest.mark.parametrize(
    ("code", "width", "items", "kind"),
    [
        (0x50, 1, [0, 255], UByte),
        (0x51, 1, [-1, 1], Byte),
        (0x53, 1, [0, 255], ULong),
        (0x55, 1, [-1, 1], int),
        (0x60, 2, [0, 65535], UShort),
        (0x71, 4, [-5, 7], Int),
    ],
)
def test_arrays_of_numbers_have_items_of_their_type(code: int, width: int, items: list[int], kind: type) -> None:
    octets = b"".join(item.to_bytes(width, "big", signed=item < 0) for item in items)
    data = bytes((0xE0, 2 + len(octets), len(items), code)) + octets
    found, stop = decode(data)
    assert (list(found), stop, {type(item) for item in found}) == (items, len(data), {kind})
    for wrong in (len(items) - 1, len(items) + 1):
        with pytest.raises(CodecError):
            decode(data[:2] + bytes((wrong,)) + data[3:])


@pytest.mark.rule("FAIR-1")
def test_an_array_has_few_items_with_many_descriptors() -> None:
    items = bytes((0x00, 0x53, 0x01)) * 20 + b"\x50" + bytes(1000)
    with pytest.raises(CodecError, match="descriptors"):
        decode(b"\xf0" + (len(items) + 4).to_bytes(4, "big") + (1000).to_bytes(4, "big") + items)
