"""SCRAM logins of known and unknown users, and when SCRAM is offered."""

from __future__ import annotations

import logging

import pytest

from escrowmq.core.access.access import Access
from escrowmq.core.access.permissions import PasswordHashes, User
from escrowmq.server.passwords import Passwords
from escrowmq.server.scram import ScramUsers, keep

NAME = "SCRAM-SHA-256"
PASSWORDS = Passwords((NAME,), 4096)
KEYS = PASSWORDS.scram_hashes("secret")


def users(*, complete: bool = True) -> tuple[Access, ScramUsers]:
    access = Access()
    access.add_user("alice", "hash", scram_hashes=KEYS if complete else ())
    access.add_user("external", "")
    return access, ScramUsers(access, PASSWORDS, b"key")


def test_scram_is_offered_as_soon_as_every_user_with_a_password_has_keys() -> None:
    access, scram = users()
    assert scram.offers(NAME)
    access.add_user("old", "hash")
    assert not scram.offers(NAME)
    access.set_password("old", "hash", KEYS)
    assert scram.offers(NAME)
    assert not scram.offers("SCRAM-SHA-512")


def test_users_without_keys_are_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    access, scram = users()
    with caplog.at_level(logging.WARNING):
        scram.warn()
        assert not caplog.text
        for i in range(7):
            access.add_user(f"u{i}", "hash")
        scram.warn()
    assert "'u0', 'u1', 'u2', 'u3', 'u4' and 2 more" in caplog.text


def test_a_challenge_has_the_keys_of_the_user_and_a_fresh_nonce() -> None:
    _, scram = users()
    one, two = scram.challenge(NAME, "alice"), scram.challenge(NAME, "alice")
    assert str(one.keys) == KEYS[0]
    assert one.keys == two.keys
    assert one.nonce != two.nonce
    assert len(one.nonce) >= 24
    assert scram.is_current("alice", one.keys)


@pytest.mark.parametrize("name", ["nobody", "external"])
def test_users_without_keys_are_challenged_alike_and_always_in_the_same_way(name: str) -> None:
    _, scram = users()
    _, restarted = users()
    one, real = scram.challenge(NAME, name).keys, scram.challenge(NAME, "alice").keys
    assert one == restarted.challenge(NAME, name).keys
    assert (len(one.salt), one.iterations) == (len(real.salt), real.iterations)
    assert not scram.is_current(name, one)


def test_keys_are_kept_if_the_password_is_still_the_same() -> None:
    access, _ = users(complete=False)
    before, recorded = access.users["alice"], list[User]()
    better = PasswordHashes(before.password_hash, KEYS)
    access.set_tags("alice", ("monitoring",))
    keep(access, recorded.append, before, better)
    assert recorded == [access.users["alice"]]
    assert (recorded[0].scram_hashes, recorded[0].tags) == (KEYS, ("monitoring",))
    access.set_password("alice", "other")
    keep(access, recorded.append, before, better)
    access.remove_user("alice")
    keep(access, recorded.append, before, better)
    assert len(recorded) == 1


def test_a_better_hash_is_kept_with_the_present_keys() -> None:
    access, _ = users(complete=False)
    access.set_password("alice", "weak", KEYS)
    keep(access, list[User]().append, access.users["alice"], PasswordHashes("strong"))
    assert (access.users["alice"].password_hash, access.users["alice"].scram_hashes) == ("strong", KEYS)
