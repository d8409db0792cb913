"""SCRAM as the server: two messages of a client, the challenge between them, and the signature at the end.

| state | message      | answer                                       | next  |
|-------|--------------|----------------------------------------------|-------|
| FIRST | client-first | server-first, the challenge                  | FINAL |
| FINAL | client-final | the proof, which is yet to be judged         | DONE  |
| DONE  | none         | server-final, once the proof has been judged | DONE  |
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from escrowmq.wire.scram.keys import ScramKeys, digest, sign, xor
from escrowmq.wire.scram.messages import ScramError, read_client_final, read_client_first


class Challenge(NamedTuple):
    """The server's part of a challenge: the user's keys, or keys that no proof fits, and a fresh random nonce."""

    keys: ScramKeys
    nonce: str


@dataclass(frozen=True, slots=True)
class Proof:
    """A client's claim that it knows the password of `user`."""

    user: str
    keys: ScramKeys
    proof: bytes = field(repr=False)
    covered: bytes = field(repr=False)
    """The messages that the proof covers (AuthMessage)."""

    def fits(self) -> bool:
        """Return whether the client knows the password, in a time that does not depend on the proof."""
        keys = self.keys
        if len(self.proof) != len(keys.stored_key):
            return False
        client_key = xor(self.proof, sign(keys.mechanism, keys.stored_key, self.covered))
        return hmac.compare_digest(digest(keys.mechanism, client_key), keys.stored_key)

    def signature(self) -> bytes:
        """Return server-final, by which the server proves that it knows the user's keys. Only for a proof that fits."""
        signed = sign(self.keys.mechanism, self.keys.server_key, self.covered)
        return b"v=" + base64.b64encode(signed)


class _State(Enum):
    FIRST = auto()
    FINAL = auto()
    DONE = auto()


class ServerExchange:
    """One login."""

    __slots__ = ("_challenge", "_first_bare", "_gs2_header", "_keys", "_nonce", "_server_first", "_state", "_user")

    def __init__(self, challenge: Callable[[str], Challenge]) -> None:
        """`challenge` returns the challenge for a user name, also for an unknown one."""
        self._challenge = challenge
        self._state = _State.FIRST
        self._user = self._gs2_header = self._first_bare = self._server_first = self._nonce = ""
        self._keys: ScramKeys

    def step(self, message: bytes) -> bytes | Proof:
        """Take a message of the client. Return the challenge that answers it, or the client's proof.

        Raises ScramError for a malformed or unexpected message. No further message may follow.
        """
        state, self._state = self._state, _State.DONE
        if state is _State.FIRST:
            answer = self._first(message)
            self._state = _State.FINAL
            return answer
        if state is _State.FINAL:
            return self._final(message)
        raise ScramError("unexpected message after the end of the login")

    def _first(self, message: bytes) -> bytes:
        first = read_client_first(message)
        self._keys, nonce = self._challenge(first.user)
        self._user, self._gs2_header, self._first_bare = first.user, first.gs2_header, first.bare
        self._nonce = first.nonce + nonce
        salt = base64.b64encode(self._keys.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={self._keys.iterations}"
        return self._server_first.encode()

    def _final(self, message: bytes) -> Proof:
        final = read_client_final(message, self._gs2_header, self._nonce)
        covered = f"{self._first_bare},{self._server_first},{final.without_proof}".encode()
        return Proof(self._user, self._keys, final.proof, covered)
