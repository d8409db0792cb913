"""SCRAM as the client."""

from __future__ import annotations

import base64
import hmac
from typing import Final

from escrowmq.wire.scram.keys import LEAST_ITERATIONS, digest, salted_password, sign, xor
from escrowmq.wire.scram.messages import ScramError, escape, read_server_final, read_server_first

MOST_ITERATIONS: Final = 1_000_000
"""The most iterations that a server may demand: about half a second."""
_GS2_HEADER: Final = b"n,,"


class ClientExchange:
    """One login: `first`, then `final` with the server's challenge, then `verify` with the server's last message."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str) -> None:
        """`nonce` is a fresh random text of printable ASCII characters without commas."""
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._bare = f"n={escape(user)},r={nonce}".encode()
        self._signature = b""

    def first(self) -> bytes:
        """Return the initial response."""
        return _GS2_HEADER + self._bare

    def final(self, challenge: bytes) -> bytes:
        """Return the answer to the server's challenge. Raises ScramError if the challenge is not acceptable."""
        server = read_server_first(challenge, self._nonce)
        if not LEAST_ITERATIONS <= server.iterations <= MOST_ITERATIONS:
            raise ScramError(
                f"the server demands {server.iterations} iterations, not {LEAST_ITERATIONS} to {MOST_ITERATIONS}"
            )
        mechanism = self._mechanism
        salted = salted_password(mechanism, self._password, server.salt, server.iterations)
        client_key = sign(mechanism, salted, b"Client Key")
        without_proof = b"c=" + base64.b64encode(_GS2_HEADER) + b",r=" + server.nonce.encode()
        covered = self._bare + b"," + challenge + b"," + without_proof
        self._signature = sign(mechanism, sign(mechanism, salted, b"Server Key"), covered)
        proof = xor(client_key, sign(mechanism, digest(mechanism, client_key), covered))
        return without_proof + b",p=" + base64.b64encode(proof)

    def verify(self, server_final: bytes) -> None:
        """Raises ScramError unless the server has proved that it knows the user's keys."""
        signature = read_server_final(server_final)
        if not self._signature or not hmac.compare_digest(signature, self._signature):
            raise ScramError("the server does not know the password")
