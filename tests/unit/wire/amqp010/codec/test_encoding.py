"""Writing values: everything that is written is read again, and what has no encoding is refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given

from escrowmq.wire.amqp010.codec import encoding
from escrowmq.wire.amqp010.codec.decoding import read_list
from escrowmq.wire.amqp010.codec.errors import CodecError
from escrowmq.wire.amqp010.codec.spec import ReplyTo
from escrowmq.wire.amqp010.codec.types import Array, Char, CharUtf32, FixedBinary, UInt8, Uuid
from tests.unit.wire.amqp010.codec.strategies import VALUES


@given(value=VALUES)
def test_what_is_written_is_read(value: Any) -> None:
    data = encoding.write_list([value])
    (found,), end = read_list(data, 0, len(data))
    assert end == len(data)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(("size", "code"), [(65_535, 0x95), (65_536, 0xA0)])
def test_a_long_string_becomes_binary(size: int, code: int) -> None:
    assert encoding.write_value("a" * size)[0] == code


@pytest.mark.parametrize(("size", "code"), [(65_535, 0x90), (65_536, 0xA0)])
def test_binary_has_the_shorter_type_that_fits(size: int, code: int) -> None:
    assert encoding.write_value(bytes(size))[0] == code


@pytest.mark.parametrize(
    "value",
    [
        1 << 63,
        UInt8(256),
        "\ud800",
        Char("€"),
        CharUtf32("ab"),
        FixedBinary(b"abc"),
        Uuid(b"short"),
        Decimal("Infinity"),
        Decimal(1 << 63),
        Decimal("1e-256"),
        frozenset(),
        ReplyTo("e", "k"),
        {"k" * 256: 1},
        Array([256], code=0x02),
        Array(["a"], code=0x03),
        Array([FixedBinary(b"ab")], code=0x00),
        Array(["€"], code=0x84),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_value_without_encoding_is_refused(value: object) -> None:
    with pytest.raises((CodecError, TypeError)):
        encoding.write_value(value)


def test_short_forms_are_limited() -> None:
    assert encoding.write_str8("a" * 255)[0] == 255
    with pytest.raises(CodecError):
        encoding.write_str8("a" * 256)
    with pytest.raises(CodecError):
        encoding.write_vbin16(bytes(65_536))
    with pytest.raises(CodecError):
        encoding.write_ranges(((0, 0),) * 8192)


def test_ranges_are_written_as_pairs() -> None:
    assert encoding.write_ranges(((0, 2),)) == b"\x00\x08" + bytes(7) + b"\x02"
    assert encoding.write_byte_ranges(((0, 5),)) == b"\x00\x10" + bytes(15) + b"\x05"
