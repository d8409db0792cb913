"""The fast functions agree with the table of composites."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp10.codec import hot
from escrowmq.wire.amqp10.codec.composite import encode_composite
from escrowmq.wire.amqp10.codec.encoding import CodecError
from escrowmq.wire.amqp10.codec.performatives import Disposition, Flow, Transfer, decode_performative
from escrowmq.wire.amqp10.codec.states import ACCEPTED, Accepted, TransactionalState


@pytest.mark.parametrize("number", [0, 255, 256, 2**32 - 1])
@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("more", [True, False])
@pytest.mark.parametrize("state", [None, Accepted(), TransactionalState(b"t" * 32, Accepted())])
def test_a_written_transfer_is_read(number: int, settled: bool, more: bool, state: TransactionalState | None) -> None:
    data = hot.encode_transfer(
        number, number, b"t" * 32, settled, more, b"" if state is None else encode_composite(state)
    )
    expected = Transfer(number, number, b"t" * 32, 0, settled, more, None, state)
    assert decode_performative(data) == (expected, len(data))


@pytest.mark.parametrize(
    ("first", "last", "settled", "state"),
    [(0, 0, True, ACCEPTED), (1, 2**32 - 1, False, b"\x40"), (300, 301, True, ACCEPTED)],
)
@pytest.mark.parametrize("role", [True, False])
def test_a_written_disposition_is_read(role: bool, first: int, last: int, settled: bool, state: bytes) -> None:
    data = hot.encode_disposition(role, first, last, settled, state)
    outcome = Accepted() if state == ACCEPTED else None
    expected = Disposition(role, first, None if first == last else last, settled, outcome)
    assert decode_performative(data) == (expected, len(data))


@pytest.mark.parametrize(
    "flow",
    [
        Flow(incoming_window=0, next_outgoing_id=1, outgoing_window=2),
        Flow(
            next_incoming_id=2**31, incoming_window=0, next_outgoing_id=1, outgoing_window=2, handle=0, link_credit=300
        ),
        Flow(incoming_window=0, next_outgoing_id=1, outgoing_window=2, handle=0, drain=True, echo=True, available=1),
    ],
)
def test_a_written_flow_is_read(flow: Flow) -> None:
    data = hot.encode_flow(flow)
    assert decode_performative(data) == (flow, len(data))
    assert hot.decode_flow(data, 0, len(data)) == (flow, len(data))


@pytest.mark.parametrize(
    "octets",
    [
        "005314c00b05435201a0017443420000",
        "005314c00a05435201a001744342",
        "005314c00805435201a001744342",
    ],
)
def test_a_transfer_with_a_wrong_size_is_left_to_the_table(octets: str) -> None:
    data = bytes.fromhex(octets)
    with pytest.raises(CodecError):
        decode_performative(data)


def test_equal_tails_are_remembered_up_to_a_limit() -> None:
    for number in range(hot.MAX_TAILS + 10):
        state = encode_composite(TransactionalState(number.to_bytes(4, "big")))
        data = hot.encode_transfer(0, 1, b"t", False, False, state)
        assert decode_performative(data)[0] == Transfer(
            0, 1, b"t", 0, False, state=TransactionalState(number.to_bytes(4, "big"))
        )
    assert len(hot._transfer_tails) <= hot.MAX_TAILS


@pytest.mark.parametrize("handle", [-1, 2**32])
def test_numbers_out_of_range_are_refused(handle: int) -> None:
    with pytest.raises(CodecError, match="out of the range of uint"):
        hot.encode_transfer(handle, 0, b"t", True)


def test_a_long_delivery_tag_is_refused() -> None:
    with pytest.raises(CodecError, match="33 octets"):
        hot.encode_transfer(0, 0, b"t" * 33, True)
