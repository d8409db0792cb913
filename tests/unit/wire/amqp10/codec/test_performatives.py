"""Performatives: round trips, cut-off octets, and any octets."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.amqp10.codec import performatives
from escrowmq.wire.amqp10.codec.composite import encode_composite
from escrowmq.wire.amqp10.codec.encoding import CodecError, encode
from escrowmq.wire.amqp10.codec.performatives import (
    RECEIVER,
    SECOND,
    SENDER,
    SETTLED_MODE,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    Performative,
    Transfer,
    decode_performative,
    encode_performative,
)
from escrowmq.wire.amqp10.codec.states import Accepted, Rejected, TransactionalState
from escrowmq.wire.amqp10.codec.termini import Coordinator, Source, Target
from escrowmq.wire.amqp10.codec.types import Described, Symbol, UInt, ULong

EXAMPLES: list[Performative] = [
    Open("me", "host", 65536, 100, 30000, (Symbol("en-US"),), (), (Symbol("A"), Symbol("B")), (), {Symbol("p"): "v"}),
    Begin(next_outgoing_id=1, incoming_window=2, outgoing_window=3),
    Begin(remote_channel=5, next_outgoing_id=0, incoming_window=2**32 - 1, outgoing_window=9, handle_max=255),
    Attach("link", 0, SENDER, SETTLED_MODE, SECOND, Source("q"), Target("q"), {b"t": Accepted(), b"u": None}),
    Attach("tx", 3, RECEIVER, target=Coordinator((Symbol("amqp:local-transactions"),)), initial_delivery_count=0),
    Flow(incoming_window=1, next_outgoing_id=2, outgoing_window=3),
    Flow(
        next_incoming_id=9,
        incoming_window=1,
        next_outgoing_id=2,
        outgoing_window=3,
        handle=4,
        delivery_count=500,
        link_credit=70000,
        available=0,
        drain=True,
        properties={Symbol("txn-id"): b"t"},
    ),
    Transfer(0, 1, b"tag", 0, False),
    Transfer(300, 70000, b"tag", 0, True, more=True, state=TransactionalState(b"t"), batchable=True),
    Transfer(1, more=True),
    Disposition(RECEIVER, 1, 5, True, Accepted()),
    Disposition(SENDER, 1, state=Rejected(Error("amqp:not-found"))),
    Detach(1, True, Error("amqp:link:stolen")),
    End(),
    Close(Error("amqp:connection:forced", "bye")),
]


@pytest.mark.parametrize("performative", EXAMPLES, ids=lambda item: type(item).__name__)
def test_performatives_survive_at_any_offset(performative: Performative) -> None:
    data = encode_performative(performative)
    assert decode_performative(data) == (performative, len(data))
    assert decode_performative(b"xx" + data + b"payload", 2, len(data) + 9) == (performative, len(data) + 2)


@pytest.mark.parametrize("performative", EXAMPLES, ids=lambda item: type(item).__name__)
def test_a_performative_that_is_cut_off_is_an_error(performative: Performative) -> None:
    data = encode_performative(performative)
    for end in range(len(data)):
        with pytest.raises(CodecError):
            decode_performative(data, 0, end)
        with pytest.raises(CodecError):
            decode_performative(data[:end])


def test_a_symbolic_descriptor_is_accepted() -> None:
    data = encode(Described(Symbol("amqp:transfer:list"), [UInt(1)]))
    assert decode_performative(data) == (Transfer(1), len(data))


@pytest.mark.parametrize("value", [None, 5, Described(ULong(0x24), []), Described(ULong(0x77), 1)])
def test_anything_else_is_no_performative(value: object) -> None:
    with pytest.raises(CodecError, match="does not begin with a performative"):
        decode_performative(encode(value))


def test_fields_stand_in_the_order_of_the_specification() -> None:
    names = [field.name for field in dataclasses.fields(Attach)]
    assert names[:5] == ["name", "handle", "role", "snd_settle_mode", "rcv_settle_mode"]
    assert names[7:11] == ["unsettled", "incomplete_unsettled", "initial_delivery_count", "max_message_size"]
    assert next(field.name for field in dataclasses.fields(Begin)) == "remote_channel"


uints = st.integers(0, 2**32 - 1)
states = st.sampled_from([None, Accepted(), Rejected(), TransactionalState(b"t", Accepted())])
flags = st.booleans()


@given(
    st.one_of(
        st.builds(
            Transfer,
            uints,
            st.none() | uints,
            st.none() | st.binary(max_size=32),
            st.none() | uints,
            st.none() | flags,
            flags,
            st.none() | st.integers(0, 1),
            states,
            flags,
            flags,
            flags,
        ),
        st.builds(Disposition, flags, uints, st.none() | uints, flags, states, flags),
        st.builds(
            Flow,
            next_incoming_id=st.none() | uints,
            incoming_window=uints,
            next_outgoing_id=uints,
            outgoing_window=uints,
            handle=st.none() | uints,
            link_credit=st.none() | uints,
            echo=flags,
        ),
    )
)
def test_the_fast_functions_and_the_table_agree(performative: Any) -> None:
    data = encode_composite(performative)
    assert decode_performative(data) == (performative, len(data))
    assert decode_performative(encode_performative(performative) + b"\x00") == (performative, len(data))


@given(st.sampled_from([b"\x00\x53\x13\xc0", b"\x00\x53\x14\xc0", b"\x00\x53\x15\xc0", b""]), st.binary(max_size=40))
def test_any_octets_are_a_performative_or_an_error(start: bytes, data: bytes) -> None:
    octets = start + data
    try:
        performative, at = decode_performative(octets)
    except CodecError:
        return
    assert at <= len(octets)
    assert type(performative).__name__ in performatives.__all__ or "Sasl" in type(performative).__name__
