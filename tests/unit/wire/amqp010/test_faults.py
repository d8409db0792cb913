"""Faults of the peer."""

from __future__ import annotations

from escrowmq.wire.amqp010.codec.spec import CloseCode, DetachCode
from escrowmq.wire.amqp010.faults import ConnectionFault, SessionFault


def test_a_fault_of_the_connection_is_one_of_framing_unless_told_otherwise() -> None:
    assert ConnectionFault("x").code is CloseCode.FRAMING_ERROR
    assert ConnectionFault("x", CloseCode.INVALID_PATH).code is CloseCode.INVALID_PATH


def test_a_fault_says_what_was_wrong() -> None:
    assert str(SessionFault(DetachCode.UNKNOWN_IDS, "never sent")) == "never sent"
