"""SCRAM as the server."""

from __future__ import annotations

import base64

import pytest

from escrowmq.wire.scram.keys import decoy
from escrowmq.wire.scram.messages import ScramError
from escrowmq.wire.scram.server import Challenge, ServerExchange
from tests.unit.wire.scram.vectors import FIRST, RFC_7677, VECTORS, Vector, exchange, proof_of


@pytest.mark.parametrize("vector", VECTORS, ids=lambda each: each.mechanism)
def test_a_recorded_login_succeeds(vector: Vector) -> None:
    proof = proof_of(vector)
    assert (proof.user, proof.keys) == ("user", vector.keys)
    assert proof.fits()
    assert proof.signature() == vector.server_final


@pytest.mark.parametrize("vector", VECTORS, ids=lambda each: each.mechanism)
def test_a_wrong_proof_does_not_fit(vector: Vector) -> None:
    right = base64.b64decode(vector.proof)
    for wrong in (bytes(len(right)), right[:-1] + bytes([right[-1] ^ 1]), right[:-1], right + b"\0", b""):
        final = vector.client_final.rpartition(b"p=")[0] + b"p=" + base64.b64encode(wrong)
        assert not proof_of(vector, final).fits()


def test_a_proof_covers_what_was_said() -> None:
    extended = RFC_7677.client_final.replace(b",p=", b",x=y,p=")
    assert not proof_of(RFC_7677, extended).fits()


def test_no_proof_fits_the_keys_of_an_unknown_user() -> None:
    keys = decoy("SCRAM-SHA-256", "user", b"secret", 4096)
    server = ServerExchange(lambda _: Challenge(keys, "x"))
    assert server.step(FIRST) == f"r=rOprNGfwEbeRWgbNEkqOx,s={base64.b64encode(keys.salt).decode()},i=4096".encode()
    proof = server.step(b"c=biws,r=rOprNGfwEbeRWgbNEkqOx,p=" + base64.b64encode(bytes(32)))
    assert not isinstance(proof, bytes)
    assert not proof.fits()


def test_the_user_is_looked_up_by_the_name_without_escapes() -> None:
    asked: list[str] = []

    def challenge(user: str) -> Challenge:
        asked.append(user)
        return Challenge(RFC_7677.keys, "x")

    ServerExchange(challenge).step(b"n,,n=a=2Cb,r=x")
    assert asked == ["a,b"]


@pytest.mark.parametrize("messages", [[b""], [FIRST, b""], [FIRST, FIRST], [FIRST, b"c=biws,r=other,p=YQ=="]])
def test_nothing_follows_a_malformed_message(messages: list[bytes]) -> None:
    server = exchange()
    for each in messages[:-1]:
        server.step(each)
    with pytest.raises(ScramError):
        server.step(messages[-1])
    for each in (FIRST, RFC_7677.client_final):
        with pytest.raises(ScramError):
            server.step(each)


def test_nothing_follows_the_proof() -> None:
    server = exchange()
    server.step(FIRST)
    server.step(RFC_7677.client_final)
    with pytest.raises(ScramError):
        server.step(RFC_7677.client_final)


def test_proofs_are_not_shown() -> None:
    assert "proof=" not in repr(proof_of(RFC_7677))
    assert "covered" not in repr(proof_of(RFC_7677))
