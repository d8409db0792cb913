"""Composites: descriptors, defaults, lists of symbols, and fields of the wrong type."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp10.codec.composite import described, encode_composite, resolve
from escrowmq.wire.amqp10.codec.encoding import CodecError, decode
from escrowmq.wire.amqp10.codec.performatives import Detach, Error, Open
from escrowmq.wire.amqp10.codec.types import Array, Described, Symbol, UInt, ULong


def test_trailing_nulls_are_left_out() -> None:
    assert encode_composite(Detach(1)).hex() == "005316c003015201"
    assert described(Detach(1, closed=True)) == Described(ULong(0x16), [UInt(1), True])


def test_numeric_and_symbolic_descriptors_are_read() -> None:
    assert resolve(Described(ULong(0x16), [UInt(1)])) == Detach(1)
    assert resolve(Described(Symbol("amqp:detach:list"), [UInt(1)])) == Detach(1)


@pytest.mark.parametrize("value", [5, [], Described(ULong(0x999), []), Described(0x16, []), Described("amqp:x", 1)])
def test_anything_else_stays_as_it_is(value: object) -> None:
    assert resolve(value) is value


def test_null_fields_have_their_defaults() -> None:
    opened = resolve(Described(ULong(0x10), ["me", None, None, None]))
    assert opened == Open("me", None, 2**32 - 1, 65535)


def test_one_symbol_or_an_array_of_them_is_a_list_of_symbols() -> None:
    several = Array([Symbol("b"), Symbol("c")])
    opened = resolve(Described(ULong(0x10), ["me", *[None] * 6, Symbol("a"), several]))
    assert opened.incoming_locales == ()
    assert opened.offered_capabilities == ("a",)
    assert opened.desired_capabilities == ("b", "c")


def test_keys_of_a_map_of_fields_may_be_strings_and_become_symbols() -> None:
    modified = resolve(Described(ULong(0x27), [None, None, {"x-opt-a": 1, Symbol("x-opt-b"): 2}]))
    assert modified.message_annotations == {"x-opt-a": 1, "x-opt-b": 2}
    assert {type(key) for key in modified.message_annotations} == {Symbol}


@pytest.mark.parametrize("capabilities", [(), ("a",), ("a", "b")])
def test_symbols_survive(capabilities: tuple[str, ...]) -> None:
    opened = Open("me", offered_capabilities=tuple(map(Symbol, capabilities)))
    assert resolve(decode(encode_composite(opened))[0]) == opened


def test_composites_within_maps_are_composites() -> None:
    error = Error("amqp:internal-error", "text", {Symbol("inner"): Error("amqp:not-found")})
    assert resolve(decode(encode_composite(error))[0]) == error


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Described(ULong(0x16), {}), "must be a list of at most 3 fields"),
        (Described(ULong(0x16), [UInt(1), True, None, None]), "must be a list of at most 3 fields"),
        (Described(ULong(0x16), []), "detach:list lacks its mandatory field handle"),
        (Described(ULong(0x16), [None, True]), "lacks its mandatory field handle"),
        (Described(ULong(0x16), ["x"]), "field handle of amqp:detach:list"),
        (Described(ULong(0x16), [UInt(1), True, 5]), "field error of amqp:detach:list"),
        (Described(ULong(0x10), ["me", *[None] * 7, {"a": 1}]), "field"),
    ],
)
def test_fields_of_the_wrong_type_are_an_error(value: Described, message: str) -> None:
    with pytest.raises(CodecError, match=message):
        resolve(value)


def test_values_out_of_range_are_an_error() -> None:
    with pytest.raises(CodecError, match="out of the range of UInt"):
        encode_composite(Detach(-1))
