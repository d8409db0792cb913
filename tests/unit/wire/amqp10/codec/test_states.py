"""Delivery states, octet by octet."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp10.codec import states
from escrowmq.wire.amqp10.codec.composite import encode_composite, resolve
from escrowmq.wire.amqp10.codec.encoding import CodecError, decode, encode
from escrowmq.wire.amqp10.codec.states import (
    UNSETTLED,
    Accepted,
    Declared,
    DeliveryState,
    Error,
    Modified,
    Received,
    Rejected,
    Released,
    TransactionalState,
)
from escrowmq.wire.amqp10.codec.types import Described, Symbol, UInt, ULong


@pytest.mark.parametrize(
    ("state", "octets"),
    [
        (Accepted(), "00532445"),
        (Released(), "00532645"),
        (Rejected(), "00532545"),
        (Modified(delivery_failed=True), "005327c0020141"),
        (Modified(undeliverable_here=True), "005327c003024041"),
        (Received(1, 300), "005323c00c02520180000000000000012c"),
        (Declared(b"t"), "005333c00401a00174"),
        (TransactionalState(b"t", Accepted()), "005334c00802a0017400532445"),
    ],
)
def test_states_have_the_encoding_of_the_specification(state: DeliveryState, octets: str) -> None:
    assert encode_composite(state).hex() == octets
    assert resolve(decode(bytes.fromhex(octets))[0]) == state


def test_a_rejection_and_a_modification_keep_their_details() -> None:
    for state in (
        Rejected(Error("amqp:not-found", "gone", {Symbol("k"): 1})),
        Modified(True, True, {Symbol("x-opt-a"): "b"}),
    ):
        assert resolve(decode(encode_composite(state))[0]) == state


def test_the_outcome_of_a_transactional_state_is_an_outcome() -> None:
    with pytest.raises(CodecError, match="field outcome"):
        resolve(Described(ULong(0x34), [b"t", Described(ULong(0x23), [UInt(1), ULong(1)])]))


def test_encoded_outcomes_are_those_of_their_classes() -> None:
    assert encode_composite(Accepted()) == states.ACCEPTED
    assert encode_composite(Released()) == states.RELEASED
    assert states.OUTCOME_SYMBOLS[0] == "amqp:accepted:list"


def test_maps_of_unsettled_deliveries_have_tags_as_keys() -> None:
    deliveries = {b"a": None, b"b": Accepted()}
    assert states.UNSETTLED.read(states.UNSETTLED.write(deliveries) | {}) == {b"a": None, b"b": Accepted()}
    with pytest.raises(CodecError, match="delivery tags"):
        states.UNSETTLED.read({"a": None})


def test_a_map_of_unsettled_deliveries_keeps_the_state_of_each() -> None:
    states: list[DeliveryState | None] = [
        None,
        Accepted(),
        Released(),
        Accepted(),
        Rejected(),
        Modified(),
        Received(1, 2),
    ]
    states.append(TransactionalState(b"t", Accepted()))
    unsettled = {b"%d" % number: state for number, state in enumerate(states)}
    written = decode(encode(UNSETTLED.write(unsettled)))[0]
    assert UNSETTLED.read(written) == unsettled
