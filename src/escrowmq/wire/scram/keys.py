"""The keys of SCRAM (RFC 5802, section 3), and the text in which they are stored.

A server keeps StoredKey and ServerKey. Neither of them suffices for a login, but both can be used to guess the
password.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from escrowmq.wire.scram.saslprep import password_bytes

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The supported mechanisms, and the names of their hash functions."""
SALT_SIZE: Final = 16
LEAST_ITERATIONS: Final = 4096
"""The fewest iterations that RFC 7677 permits."""


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """The keys of one password for one mechanism. They are left out of the representation."""

    mechanism: str
    iterations: int
    salt: bytes
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    def __str__(self) -> str:
        """Return the stored form, `MECHANISM$ITERATIONS:SALT$STOREDKEY:SERVERKEY`, which is also PostgreSQL's."""
        salt, stored, server = (
            base64.b64encode(each).decode() for each in (self.salt, self.stored_key, self.server_key)
        )
        return f"{self.mechanism}${self.iterations}:{salt}${stored}:{server}"


def derive(mechanism: str, password: str, salt: bytes, iterations: int) -> ScramKeys:
    """Return the keys of `password`. This takes milliseconds, so it must not run on an event loop.

    Raises UnicodeEncodeError for a password with lone surrogates.
    """
    salted = salted_password(mechanism, password, salt, iterations)
    client_key = sign(mechanism, salted, b"Client Key")
    return ScramKeys(mechanism, iterations, salt, digest(mechanism, client_key), sign(mechanism, salted, b"Server Key"))


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Return SaltedPassword, from which both sides derive their keys."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password_bytes(password), salt, iterations)


def find(texts: Iterable[str], mechanism: str) -> ScramKeys | None:
    """Return the keys for `mechanism` among the stored ones, or None. Keys in an unknown form are passed over."""
    for text in texts:
        name, _, rest = text.partition("$")
        if name == mechanism:
            try:
                return _parsed(mechanism, rest)
            except ValueError:
                continue
    return None


def _parsed(mechanism: str, text: str) -> ScramKeys:
    parameters, _, keys = text.partition("$")
    iterations, _, salt = parameters.partition(":")
    stored, _, server = keys.partition(":")
    decoded = [base64.b64decode(each, validate=True) for each in (salt, stored, server)]
    if not all(decoded):
        raise ValueError("a part of the keys is missing")
    return ScramKeys(mechanism, int(iterations), *decoded)


def decoy(mechanism: str, user: str, secret: bytes, iterations: int) -> ScramKeys:
    """Return keys that no proof fits, for a user without keys. They are always the same for the same `secret`.

    A client can therefore not find out by its challenges which users exist.
    """
    stem = f"{mechanism}\0{user}".encode("utf-8", "surrogatepass")
    salt = hmac.digest(secret, b"salt\0" + stem, "sha256")[:SALT_SIZE]
    return ScramKeys(
        mechanism,
        iterations,
        salt,
        hmac.digest(secret, b"stored\0" + stem, HASHES[mechanism]),
        hmac.digest(secret, b"server\0" + stem, HASHES[mechanism]),
    )


def sign(mechanism: str, key: bytes, data: bytes) -> bytes:
    """Return the HMAC of `data`."""
    return hmac.digest(key, data, HASHES[mechanism])


def digest(mechanism: str, data: bytes) -> bytes:
    """Return the hash of `data`."""
    return hashlib.new(HASHES[mechanism], data).digest()


def xor(left: bytes, right: bytes) -> bytes:
    """Return the exclusive or of two keys of the same length."""
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
