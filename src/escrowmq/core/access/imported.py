"""Salted hashes of passwords from RabbitMQ's definitions: 4 octets of salt, then the hash of salt and password.

They are stored as `$rabbitmq$ALGORITHM$BASE64`. The core only tells them from other hashes; a login verifies them, and
replaces them by stronger ones (`server.auth`).
"""

from __future__ import annotations

import base64
from typing import Final

from escrowmq.core.conditions import BrokerError, Condition

PREFIX: Final = "$rabbitmq$"
SALT_OCTETS: Final = 4
SIZES: Final = {"sha256": 32, "sha512": 64, "md5": 16}
"""Octets of the hashes, by algorithm."""
_MODULE: Final = "rabbit_password_hashing_"
DEFAULT_ALGORITHM: Final = _MODULE + "sha256"
OWN_ALGORITHM: Final = "escrowmq_argon2"
"""The name for hashes of this broker in its own exports."""


def imported(password_hash: str, module: str = DEFAULT_ALGORITHM) -> str:
    """Return the form in which a hash in Base64 is stored; an empty one means that the user has no password. `module`
    is RabbitMQ's name for the algorithm. Raises INVALID_ARGUMENT.
    """
    if not password_hash:
        return ""
    if module == OWN_ALGORITHM and password_hash.startswith("$argon2"):
        return password_hash
    algorithm = module.removeprefix(_MODULE)
    if algorithm not in SIZES:
        known = ", ".join(_MODULE + name for name in SIZES)
        raise BrokerError(Condition.INVALID_ARGUMENT, f"unknown hashing_algorithm {module!r}; known ones: {known}")
    try:
        octets = base64.b64decode(password_hash, validate=True)
    except ValueError:
        octets = b""
    if len(octets) != SALT_OCTETS + SIZES[algorithm]:
        raise BrokerError(
            Condition.INVALID_ARGUMENT,
            f"password_hash is not {SALT_OCTETS} octets of salt and {SIZES[algorithm]} of {algorithm} in Base64",
        )
    return f"{PREFIX}{algorithm}${password_hash}"


def parts(stored: str) -> tuple[str, bytes, bytes] | None:
    """Return algorithm, salt and hash of a stored hash; None for a hash of another form."""
    if not stored.startswith(PREFIX):
        return None
    algorithm, _, encoded = stored[len(PREFIX) :].partition("$")
    octets = base64.b64decode(encoded)
    return algorithm, octets[:SALT_OCTETS], octets[SALT_OCTETS:]


def exported(stored: str) -> tuple[str, str]:
    """Return the hash and RabbitMQ's name for its algorithm, from which `imported` makes the stored hash again."""
    if not stored.startswith(PREFIX):
        return stored, OWN_ALGORITHM if stored else DEFAULT_ALGORITHM
    algorithm, _, encoded = stored[len(PREFIX) :].partition("$")
    return encoded, _MODULE + algorithm
