"""SCRAM as the client."""

from __future__ import annotations

import pytest

from escrowmq.wire.scram.client import ClientExchange
from escrowmq.wire.scram.messages import ScramError
from tests.unit.wire.scram.vectors import CLIENT_NONCE, FIRST, RFC_7677, VECTORS, Vector


def client(vector: Vector = RFC_7677, password: str = "pencil") -> ClientExchange:
    return ClientExchange(vector.mechanism, "user", password, CLIENT_NONCE)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda each: each.mechanism)
def test_a_recorded_login_is_repeated(vector: Vector) -> None:
    mine = client(vector)
    assert mine.first() == FIRST
    assert mine.final(vector.server_first) == vector.client_final
    mine.verify(vector.server_final)


@pytest.mark.parametrize("final", [b"v=AAAA", b"e=invalid-proof", b"", RFC_7677.server_final[:-4]])
def test_a_server_that_does_not_know_the_keys_is_not_trusted(final: bytes) -> None:
    mine = client()
    mine.final(RFC_7677.server_first)
    with pytest.raises(ScramError):
        mine.verify(final)


def test_a_server_that_asks_for_no_proof_is_not_trusted() -> None:
    with pytest.raises(ScramError):
        client().verify(b"v=")


@pytest.mark.parametrize("iterations", [b"1", b"4095", b"1000001"])
def test_few_and_very_many_iterations_are_refused(iterations: bytes) -> None:
    with pytest.raises(ScramError, match="iterations"):
        client().final(RFC_7677.server_first.replace(b"4096", iterations))


def test_names_are_escaped() -> None:
    assert ClientExchange("SCRAM-SHA-256", "a,b=c", "x", "n").first() == b"n,,n=a=2Cb=3Dc,r=n"
