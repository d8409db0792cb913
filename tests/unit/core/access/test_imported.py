"""Hashes of passwords from RabbitMQ's definitions."""

from __future__ import annotations

import base64
import hashlib

import pytest

from escrowmq.core.access.imported import imported, parts
from escrowmq.core.conditions import BrokerError, Condition

# From RabbitMQ's documentation: the password "test12" with the salt 908DC60A.
DOCUMENTED = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
STORED = "$rabbitmq$sha256$" + DOCUMENTED


def test_a_hash_is_divided_into_salt_and_digest() -> None:
    assert imported(DOCUMENTED) == STORED
    found = parts(STORED)
    assert found is not None
    algorithm, salt, digest = found
    assert (algorithm, salt) == ("sha256", bytes.fromhex("908DC60A"))
    assert digest == hashlib.sha256(salt + b"test12").digest()


@pytest.mark.parametrize("algorithm", ["sha256", "sha512", "md5"])
def test_each_algorithm_has_its_length(algorithm: str) -> None:
    digest = hashlib.new(algorithm, b"salt" + b"x").digest()
    given = base64.b64encode(b"salt" + digest).decode()
    assert parts(imported(given, "rabbit_password_hashing_" + algorithm)) == (algorithm, b"salt", digest)


def test_an_empty_hash_means_no_password() -> None:
    assert imported("") == ""
    assert parts("") is None
    assert parts("$argon2id$x") is None


@pytest.mark.parametrize(
    ("given", "module"),
    [
        (DOCUMENTED[:-4], "rabbit_password_hashing_sha256"),
        (DOCUMENTED + "AAAA", "rabbit_password_hashing_sha256"),
        (DOCUMENTED, "rabbit_password_hashing_sha512"),
        ("§", "rabbit_password_hashing_sha256"),
        ("not base 64", "rabbit_password_hashing_sha256"),
        (DOCUMENTED, "mine"),
    ],
)
def test_other_hashes_are_refused(given: str, module: str) -> None:
    with pytest.raises(BrokerError) as refusal:
        imported(given, module)
    assert refusal.value.condition is Condition.INVALID_ARGUMENT
