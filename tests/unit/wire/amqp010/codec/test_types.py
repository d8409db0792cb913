"""Python types for the values of AMQP 0-10."""

from __future__ import annotations

from escrowmq.wire.amqp010.codec.types import Array, UInt8


def test_arrays_of_different_types_differ() -> None:
    assert Array([1], code=0x02) == Array([1], code=0x02)
    assert Array([1], code=0x02) != Array([1], code=0x12)


def test_an_array_equals_the_list_of_its_items() -> None:
    assert Array(["a"], code=0x95) == ["a"]


def test_a_type_keeps_the_value_of_its_python_type() -> None:
    assert UInt8(7) == 7
