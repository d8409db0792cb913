"""The types for values of AMQP 1.0."""

from __future__ import annotations

from escrowmq.wire.amqp10.codec.types import Array, Described, Symbol, UInt, ULong, Uuid


def test_typed_values_equal_the_plain_ones() -> None:
    assert UInt(5) == 5
    assert Symbol("a") == "a"
    assert Uuid(bytes(16)) == bytes(16)
    assert Array([1, 2]) == [1, 2]


def test_an_array_remembers_its_constructor() -> None:
    assert Array([], 0xA3).code == 0xA3
    assert Array([1]).code is None


def test_a_described_value_is_a_pair() -> None:
    descriptor, value = Described(ULong(36), [])
    assert (descriptor, value) == (36, [])
