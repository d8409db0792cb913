"""The frames of the SASL layer, octet by octet."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp10.codec.performatives import Performative, decode_performative, encode_performative
from escrowmq.wire.amqp10.codec.sasl import SaslChallenge, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse
from escrowmq.wire.amqp10.codec.types import Symbol


@pytest.mark.parametrize(
    ("frame", "octets"),
    [
        (SaslMechanisms((Symbol("PLAIN"),)), "005340c00801a305504c41494e"),
        (SaslInit("PLAIN", b"\0u\0p", "host"), "005341c01403a305504c41494ea00400750070a104686f7374"),
        (SaslChallenge(b"c"), "005342c00401a00163"),
        (SaslResponse(b"r"), "005343c00401a00172"),
        (SaslOutcome(0), "005344c003015000"),
    ],
)
def test_frames_of_the_sasl_layer(frame: Performative, octets: str) -> None:
    assert encode_performative(frame).hex() == octets
    assert decode_performative(bytes.fromhex(octets)) == (frame, len(octets) // 2)
