"""Values and messages as python-qpid-proton 0.40 encodes them: an encoder that shares nothing with ours."""

from __future__ import annotations

from typing import Final

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
    Value,
)

VALUES: Final[list[tuple[Value, str]]] = [
    (None, "40"),
    (True, "41"),
    (False, "42"),
    (UByte(200), "50c8"),
    (UShort(65000), "60fde8"),
    (UInt(0), "43"),
    (UInt(7), "5207"),
    (UInt(4000000000), "70ee6b2800"),
    (ULong(0), "44"),
    (ULong(9), "5309"),
    (ULong(2**64 - 1), "80ffffffffffffffff"),
    (Byte(-5), "51fb"),
    (Short(-300), "61fed4"),
    (Int(-7), "54f9"),
    (Int(-70000), "71fffeee90"),
    (5, "5505"),
    (-(2**63), "818000000000000000"),
    (Float(1.5), "723fc00000"),
    (2.25, "824002000000000000"),
    (Char("ä"), "73000000e4"),
    (Timestamp(1700000000000), "830000018bcfe56800"),
    (Uuid(bytes(range(16))), "98000102030405060708090a0b0c0d0e0f"),
    (b"abc", "a003616263"),
    (b"x" * 300, "b00000012c" + "78" * 300),
    ("größe", "a1076772c3b6c39f65"),
    ("y" * 300, "b10000012c" + "79" * 300),
    (Symbol("amqp:test"), "a309616d71703a74657374"),
    (Decimal32(bytes(4)), "7400000000"),
    (Decimal64(bytes(8)), "840000000000000000"),
    (Decimal128(bytes(range(16))), "94000102030405060708090a0b0c0d0e0f"),
    ([], "45"),
    ([1, "two", [None, True]], "d000000016000000035501a10374776fd000000006000000024041"),
    ({"a": 1, Symbol("b"): [2]}, "d10000001700000004a101615501a30162d000000006000000015502"),
    (Described(ULong(36), []), "00532445"),
    (Described(Symbol("amqp:x"), "v"), "00a306616d71703a78a10176"),
    (Array([1, 2, 3]), "f00000001d0000000381000000000000000100000000000000020000000000000003"),
    (Array([Symbol("a"), Symbol("bc")]), "f00000001000000002b30000000161000000026263"),
    (Array([UInt(1), UInt(70000)]), "f00000000d00000002700000000100011170"),
    (Array([Described(ULong(1), "x")]), "f00000000d00000001005301b10000000178"),
    ([0] * 300, "d00000025c0000012c" + "5500" * 300),
]

MESSAGE: Final = bytes.fromhex(
    "005370c00c0541500770000009c4415202005371d10000000900000002a301695501005372d10000000f00000002a307"
    "782d6f70742d715304005373c0520da1036d2d31a00175a102746fa10173a10172980000000000000000000000000000"
    "0000a30a746578742f706c61696ea3057574662d388300000000000007d08300000000000003e8a101675203a1027267"
    "005374d10000000f00000004a101615501a10162a10163005377d10000001b00000002a1016bd00000000f0000000255"
    "01824004000000000000"
)
"""A message in which every section and every property is set."""
PLAIN: Final = bytes.fromhex("0053704500537345005375a00568656c6c6f")
"""A message with a body of binary data, and no more."""
