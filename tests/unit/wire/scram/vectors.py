"""Recorded logins of the user `user` with the password `pencil`, for the tests beside this file."""

from __future__ import annotations

import base64
from typing import NamedTuple

from escrowmq.wire.scram.keys import ScramKeys, derive
from escrowmq.wire.scram.server import Challenge, Proof, ServerExchange

CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"


class Vector(NamedTuple):
    """One login."""

    mechanism: str
    server_nonce: str
    salt: str
    proof: str
    signature: str

    @property
    def keys(self) -> ScramKeys:
        return derive(self.mechanism, "pencil", base64.b64decode(self.salt), 4096)

    @property
    def server_first(self) -> bytes:
        return f"r={CLIENT_NONCE}{self.server_nonce},s={self.salt},i=4096".encode()

    @property
    def client_final(self) -> bytes:
        return f"c=biws,r={CLIENT_NONCE}{self.server_nonce},p={self.proof}".encode()

    @property
    def server_final(self) -> bytes:
        return f"v={self.signature}".encode()


RFC_7677 = Vector(
    "SCRAM-SHA-256",
    "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
    "W22ZaJ0SNY7soEsUEjb6gQ==",
    "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)
SHA_512 = Vector(
    "SCRAM-SHA-512",
    "02431b08-2f89-4bad-a4e6-80c0564ec865",
    "Yin2FuHTt/M0kJWb0t9OI32n2VmOGi3m+JfjOvuDF88=",
    "Hc5yec3NmCD7t+kFRw4/3yD6/F3SQHc7AVYschRja+Bc3sbdjlA0eH1OjJc0DD4ghn1tnXN5/Wr6qm9xmaHt4A==",
    "BQuhnKHqYDwQWS5jAw4sZed+C9KFUALsbrq81bB0mh+bcUUbbMPNNmBIupnS2AmyyDnG5CTBQtkjJ9kyY4kzmw==",
)
VECTORS = (RFC_7677, SHA_512)


def exchange(vector: Vector = RFC_7677) -> ServerExchange:
    """Return the server's side of a recorded login."""
    return ServerExchange(lambda _: Challenge(vector.keys, vector.server_nonce))


def proof_of(vector: Vector, final: bytes | None = None) -> Proof:
    """Return the proof in the client's second message."""
    server = exchange(vector)
    assert server.step(FIRST) == vector.server_first
    proof = server.step(vector.client_final if final is None else final)
    assert isinstance(proof, Proof)
    return proof
