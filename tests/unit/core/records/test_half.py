"""The records of half messages."""

from __future__ import annotations

from array import array

from escrowmq.core.records.half import (
    HalfDecided,
    HalfMany,
    HalfResumed,
    HalfRow,
    HalfStates,
    HalfStored,
    OriginFields,
    decode_half_decided,
    decode_half_many,
    decode_half_resumed,
    decode_half_states,
    decode_half_stored,
    decode_origin,
    encode_half_decided,
    encode_half_many,
    encode_half_resumed,
    encode_half_states,
    encode_half_stored,
    split_half_stored,
)

ORIGIN = OriginFields("törn", "g", "", "\ud800", 3)


def test_a_stored_half_message_is_read_back() -> None:
    stored = HalfStored(9, 1 << 40, 7, 8, "m\u20ac", ORIGIN)
    assert decode_half_stored(encode_half_stored(stored)) == stored


def test_a_decision_is_read_back() -> None:
    decided = HalfDecided(9, 1 << 40, 4, True, 7)
    assert decode_half_decided(encode_half_decided(decided)) == decided


def test_checked_half_messages_are_read_back() -> None:
    checked = HalfMany(9, 7, array("Q", [1, 1 << 40]), array("H", [15, 65_535]))
    assert decode_half_many(encode_half_many(*checked)) == checked


def test_a_resumed_half_message_is_read_back() -> None:
    resumed = HalfResumed(9, 1 << 40, 7)
    assert decode_half_resumed(memoryview(encode_half_resumed(resumed))) == resumed


def test_a_state_is_read_back() -> None:
    rows = [HalfRow(1, "a", 5, 6, 2, 15, 1), HalfRow(1 << 40, "ü" * 40, 7, 8, 2, 0, 4)]
    states = HalfStates(9, [(2, ORIGIN), (3, ORIGIN._replace(topic=""))], rows)
    assert decode_half_states(b"".join(encode_half_states(*states))) == states
    empty = HalfStates(9, [], [])
    assert decode_half_states(b"".join(encode_half_states(*empty))) == empty


def test_the_shared_facts_of_a_stored_half_message_can_be_left_undecoded() -> None:
    stored = HalfStored(9, 1 << 40, 7, 8, "m\u20ac", ORIGIN)
    parts = split_half_stored(memoryview(encode_half_stored(stored)))
    assert parts[:5] == stored[:5]
    assert decode_origin(parts.origin) == ORIGIN
    other = split_half_stored(encode_half_stored(stored._replace(number=1, ident="x")))
    assert other.origin == parts.origin
