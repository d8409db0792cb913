"""The client's login: the choice of a mechanism, and SCRAM."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.amqp10.endpoint.handshake import LoginSteps
from escrowmq.amqp10.errors import LoginRefused
from escrowmq.amqp10.parameters import Parameters
from escrowmq.wire.amqp10.codec import frames
from escrowmq.wire.amqp10.codec.performatives import decode_performative, encode_performative
from escrowmq.wire.amqp10.codec.sasl import SaslChallenge, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse
from escrowmq.wire.amqp10.codec.types import Symbol
from escrowmq.wire.scram.keys import derive
from escrowmq.wire.scram.server import Challenge, Proof, ServerExchange


class Broker:
    """A broker that knows the password `secret`."""

    def __init__(self, *offered: str, iterations: int = 4096, **parameters: Any) -> None:
        keys = derive("SCRAM-SHA-256", "secret", b"salt", iterations)
        self.exchange = ServerExchange(lambda _: Challenge(keys, "xyz"))
        self.sent: list[bytes] = []
        self.reader = frames.FrameReader()
        self.steps = LoginSteps(Parameters(user="alice", password="secret", **parameters), self.sent.append)
        assert self.sent.pop() == frames.SASL_HEADER
        self.feed(frames.SASL_HEADER)
        self.say(SaslMechanisms(tuple(map(Symbol, offered))))

    def feed(self, data: bytes) -> None:
        self.reader.feed(data)
        self.steps.advance(self.reader)

    def say(self, performative: Any) -> None:
        self.feed(frames.frame(0, encode_performative(performative), type=frames.SASL))

    def hear(self, kind: type) -> Any:
        frame = self.sent.pop(0)
        found = decode_performative(frame, 8, len(frame))[0]
        assert isinstance(found, kind)
        return found

    def prove(self) -> Proof:
        """Go through SCRAM up to the client's proof."""
        challenge = self.exchange.step(self.hear(SaslInit).initial_response)
        assert isinstance(challenge, bytes)
        self.say(SaslChallenge(challenge))
        proof = self.exchange.step(self.hear(SaslResponse).response)
        assert isinstance(proof, Proof)
        return proof


@pytest.mark.parametrize(
    ("offered", "parameters", "chosen"),
    [
        (("PLAIN", "SCRAM-SHA-256"), {}, "SCRAM-SHA-256"),
        (("PLAIN",), {}, "PLAIN"),
        (("PLAIN", "SCRAM-SHA-256"), {"mechanism": "PLAIN"}, "PLAIN"),
        (("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), {"mechanism": "SCRAM-SHA-512"}, "SCRAM-SHA-512"),
    ],
)
def test_scram_is_preferred_unless_a_mechanism_is_named(
    offered: tuple[str, ...], parameters: dict[str, Any], chosen: str
) -> None:
    assert Broker(*offered, **parameters).hear(SaslInit).mechanism == chosen


def test_a_mechanism_that_was_named_is_not_replaced() -> None:
    with pytest.raises(LoginRefused, match="offers PLAIN, not SCRAM-SHA-256"):
        Broker("PLAIN", mechanism="SCRAM-SHA-256")


@pytest.mark.parametrize("as_challenge", [False, True])
def test_scram_proves_both_sides(as_challenge: bool) -> None:
    broker = Broker("SCRAM-SHA-256")
    proof = broker.prove()
    assert proof.fits()
    if as_challenge:
        broker.say(SaslChallenge(proof.signature()))
        assert broker.hear(SaslResponse).response == b""
        broker.say(SaslOutcome(0))
    else:
        broker.say(SaslOutcome(0, proof.signature()))
    assert broker.sent == [frames.PROTOCOL_HEADER]


@pytest.mark.parametrize("signature", [None, b"v=AAAA", b"e=other-error"])
def test_a_broker_without_a_signature_is_refused(signature: bytes | None) -> None:
    broker = Broker("SCRAM-SHA-256")
    broker.prove()
    with pytest.raises(LoginRefused, match="cannot be trusted"):
        broker.say(SaslOutcome(0, signature))


def test_an_acceptance_without_any_challenge_is_refused() -> None:
    broker = Broker("SCRAM-SHA-256")
    with pytest.raises(LoginRefused, match="cannot be trusted"):
        broker.say(SaslOutcome(0))


def test_few_iterations_are_refused() -> None:
    broker = Broker("SCRAM-SHA-256", iterations=100)
    with pytest.raises(LoginRefused, match="unacceptable challenge: the server demands 100 iterations"):
        broker.prove()


def test_a_challenge_needs_a_mechanism_with_challenges() -> None:
    with pytest.raises(LoginRefused, match="sent SaslChallenge, which PLAIN does not need"):
        Broker("PLAIN").say(SaslChallenge(b""))
