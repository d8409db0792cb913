"""Field tables: the octets of every type, the types that are preserved, and malformed input."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Any

import pika.data
import pytest

from escrowmq.wire.amqp091 import table
from escrowmq.wire.amqp091.errors import SyntaxFault
from escrowmq.wire.amqp091.table import FieldTable, FieldValue, decode_fields, decode_table, encode_entry, encode_table


def field(value: bytes, name: bytes = b"k") -> bytes:
    """Return the octets of a table with one field."""
    data = bytes((len(name),)) + name + value
    return struct.pack(">I", len(data)) + data


TAGS: list[tuple[str, FieldValue]] = [
    ("74 01", True),
    ("74 00", False),
    ("62 80", table.Byte(-128)),
    ("42 ff", table.UnsignedByte(255)),
    ("73 8000", table.Short(-32768)),
    ("75 ffff", table.UnsignedShort(65535)),
    ("49 80000000", -(2**31)),
    ("49 7fffffff", 2**31 - 1),
    ("69 ffffffff", table.UnsignedInt(2**32 - 1)),
    ("6c 0000000080000000", 2**31),
    ("6c 8000000000000000", -(2**63)),
    ("6c 0000000000000001", table.Long(1)),
    ("4c ffffffffffffffff", table.LongL(-1)),
    ("66 3fc00000", table.Float(1.5)),
    ("64 3ff8000000000000", 1.5),
    ("44 02 0000007b", Decimal("1.23")),
    ("44 00 ffffffff", Decimal(-1)),
    ("44 ff 7fffffff", Decimal((0, (2, 1, 4, 7, 4, 8, 3, 6, 4, 7), -255))),
    ("53 00000003 61c3a9", "aé"),
    ("53 00000000", ""),
    ("53 00000001 ff", table.LongStr(b"\xff")),
    ("78 00000002 ff61", b"\xffa"),
    ("54 ffffffffffffffff", table.Timestamp(2**64 - 1)),
    ("56", None),
    ("41 00000007 56 41 00000001 56", [None, [None]]),
    ("46 0000000a 01 61 46 00000003 01 62 56", {"a": {"b": None}}),
]


@pytest.mark.parametrize(("octets", "value"), TAGS, ids=[f"{octets[:2]}-{value!r}"[:40] for octets, value in TAGS])
def test_each_tag_has_its_type_and_keeps_it(octets: str, value: FieldValue) -> None:
    octets_of_table = field(bytes.fromhex(octets))
    decoded, end = decode_table(octets_of_table, 0)
    assert decoded == {"k": value}
    assert type(decoded["k"]) is type(value)
    assert end == len(octets_of_table)
    assert encode_table({"k": value}) == octets_of_table


def test_every_type_tag_is_tested() -> None:
    assert {bytes.fromhex(octets)[:1] for octets, _ in TAGS} == {bytes([tag]) for tag in b"tbBsuIilLfdDSxATFV"}


def test_any_octet_except_zero_is_true() -> None:
    assert decode_table(field(b"t\x02"), 0) == ({"k": True}, 8)


def test_not_a_number_survives() -> None:
    decoded, _ = decode_table(encode_table({"k": math.nan}), 0)
    assert math.isnan(decoded["k"])  # type: ignore[arg-type]


def test_a_table_may_be_at_any_offset() -> None:
    octets = encode_table({"a": 1})
    assert decode_table(b"junk" + octets + b"more", 4) == ({"a": 1}, 4 + len(octets))
    assert decode_fields(octets[4:]) == {"a": 1}
    assert decode_fields(b"") == {}


def test_the_first_of_equal_names_is_used() -> None:
    octets = encode_entry("a", 1) + encode_entry("a", 2)
    assert decode_fields(octets) == {"a": 1}


def test_entries_have_the_place_of_each_field() -> None:
    first, second, third = encode_entry("a", 1), encode_entry("é", {"x": ["y"]}), encode_entry("a", None)
    octets = b"...." + first + second + third
    found = table.entries(octets, 4, len(octets))
    assert [name for name, _, _ in found] == ["a", "é", "a"]
    assert [octets[start:end] for _, start, end in found] == [first, second, third]


def test_order_of_fields_is_kept() -> None:
    assert list(decode_table(encode_table({"z": 1, "a": 2}), 0)[0]) == ["z", "a"]


def test_pika_reads_our_tables_and_we_read_its_tables() -> None:
    value: dict[str, Any] = {
        "s": "text",
        "t": True,
        "i": 7,
        "big": 2**40,
        "n": None,
        "x": b"\xff",
        "l": [1, {"m": "n"}],
    }
    assert pika.data.decode_table(encode_table(value), 0)[0] == value
    pieces: list[bytes] = []
    pika.data.encode_table(pieces, value | {"d": Decimal("-1.50")})
    assert decode_table(b"".join(pieces), 0)[0] == value | {"d": Decimal("-1.5")}


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"\0\0\0",
        b"\0\0\0\1",
        b"\xff\xff\xff\xff",
        field(b"S\xff\xff\xff\xff"),
        field(b"S\0\0\0\2a"),
        field(b"S\0\0"),
        field(b"x\0\0\0\2a"),
        field(b"I\0\0\0"),
        field(b"D\0\0\0\0"),
        field(b"A\0\0\0\1"),
        field(b"A\0\0\0\2Vb"),
        field(b"F\0\0\0\1\0"),
        field(b"F\0\0\0\2\5a"),
        field(b"Z"),
        field(b"\0"),
        field(b"", b"k"),
        field(b"V", b"\xff"),
    ],
    ids=bytes.hex,
)
def test_malformed_tables_are_an_error(octets: bytes) -> None:
    with pytest.raises(SyntaxFault, match="SYNTAX_ERROR - field table: "):
        decode_table(octets, 0)


def test_a_nested_table_cannot_read_beyond_its_own_end() -> None:
    inner = struct.pack(">I", 3) + b"\1aI"  # its number would be outside
    with pytest.raises(SyntaxFault):
        decode_table(field(b"F" + inner + b"\0\0\0\1"), 0)


@pytest.mark.parametrize("tag", [b"A", b"F"])
def test_depth_is_limited_on_reading(tag: bytes) -> None:
    def nested(levels: int) -> bytes:
        value = b"V"
        for _ in range(levels - 1):
            content = value if tag == b"A" else b"\0" + value
            value = tag + struct.pack(">I", len(content)) + content
        return field(value)

    decode_table(nested(table.MAX_DEPTH), 0)
    with pytest.raises(SyntaxFault, match="64 levels"):
        decode_table(nested(table.MAX_DEPTH + 1), 0)
    with pytest.raises(SyntaxFault, match="64 levels"):
        decode_table(nested(5000), 0)


def test_depth_is_limited_on_writing() -> None:
    value: FieldTable = {}
    for _ in range(table.MAX_DEPTH - 1):
        value = {"k": value}
    assert decode_table(encode_table(value), 0)[0] == value
    with pytest.raises(ValueError, match="64 levels"):
        encode_table({"k": value})


@pytest.mark.parametrize(
    "value",
    [
        2**63,
        -(2**63) - 1,
        table.Byte(128),
        table.UnsignedByte(-1),
        table.Short(32768),
        table.UnsignedShort(65536),
        table.UnsignedInt(2**32),
        table.Long(2**63),
        table.LongL(2**63),
        table.Timestamp(-1),
        table.Float(1e300),
        Decimal(2147483648),
        Decimal("1E+1000000000"),
        Decimal("1E-256"),
        Decimal("NaN"),
        "\udcff",
    ],
    ids=repr,
)
def test_values_that_do_not_fit_are_refused(value: FieldValue) -> None:
    with pytest.raises(ValueError, match=r"."):
        encode_table({"k": [value]})


def test_names_that_do_not_fit_are_refused() -> None:
    assert decode_table(encode_table({"x" * 255: 1}), 0)[0] == {"x" * 255: 1}
    with pytest.raises(ValueError, match="field name of 256 bytes"):
        encode_table({"é" * 128: 1})


def test_values_without_a_tag_are_refused() -> None:
    with pytest.raises(TypeError, match="no field table tag for complex"):
        encode_table({"k": 1j})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("value", "octets"), [(Decimal("1E+2"), "44 00 00000064"), (Decimal("-0.5"), "44 01 fffffffb")]
)
def test_decimals_are_scaled_to_the_wire(value: Decimal, octets: str) -> None:
    assert encode_table({"k": value}) == field(bytes.fromhex(octets))
