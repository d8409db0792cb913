"""The forms in which passwords are stored."""

from __future__ import annotations

import pytest

from escrowmq.core.access.permissions import User
from escrowmq.server.passwords import HASHER, ITERATIONS, Passwords
from escrowmq.wire.scram.keys import derive, find

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def test_hashes_are_of_the_documented_kind() -> None:
    first, second = Passwords().hashes("x"), Passwords().hashes("x")
    assert first.password_hash.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert first.password_hash != second.password_hash
    assert first.scram_hashes == ()
    assert HASHER.verify(first.password_hash, "x")


def test_keys_of_scram_are_stored_for_the_mechanisms_on_offer() -> None:
    hashes = Passwords(MECHANISMS).scram_hashes("x")
    for mechanism, text in zip(MECHANISMS[1:], hashes, strict=True):
        keys = find([text], mechanism)
        assert keys is not None
        assert keys == derive(mechanism, "x", keys.salt, ITERATIONS)


@pytest.mark.parametrize(
    ("mechanisms", "iterations", "complete"),
    [(MECHANISMS, 4096, True), (MECHANISMS, 5000, False), (MECHANISMS[:2], 4096, False), ((), 4096, False)],
)
def test_a_user_is_complete_with_keys_for_all_mechanisms(
    mechanisms: tuple[str, ...], iterations: int, complete: bool
) -> None:
    user = User("u", "hash", scram_hashes=Passwords(mechanisms, iterations).scram_hashes("x"))
    assert Passwords(MECHANISMS, 4096).is_complete(user) == complete
    assert Passwords(("PLAIN",)).is_complete(user)
