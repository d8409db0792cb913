"""SCRAM logins: challenges for known and unknown users, and whether the mechanisms can be offered at all."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from typing import Final

from escrowmq.core.access.access import Access
from escrowmq.core.access.permissions import PasswordHashes, User
from escrowmq.server.passwords import Passwords
from escrowmq.wire.scram.keys import ScramKeys, decoy, find
from escrowmq.wire.scram.server import Challenge

_NONCE_BYTES: Final = 18
_NAMED: Final = 5

_log = logging.getLogger("escrowmq.auth")


class ScramUsers:
    """The users as SCRAM needs them."""

    def __init__(self, access: Access, passwords: Passwords, secret: bytes) -> None:
        """`secret` stays the same over restarts; the challenges for unknown users depend on it."""
        self._access = access
        self._passwords = passwords
        self._secret = secret
        self._version = -1
        self._ready: dict[str, bool] = {}

    def offers(self, mechanism: str) -> bool:
        """Return whether all users with a password have keys for `mechanism`.

        Many clients choose SCRAM whenever it is offered. Users of a journal of an older version have no keys before
        their first login with PLAIN, so those clients could not log in.
        """
        if self._version != self._access.version:
            self._version = self._access.version
            self._ready.clear()
        ready = self._ready.get(mechanism)
        if ready is None:
            ready = self._ready[mechanism] = not self._without_keys(mechanism)
        return ready

    def warn(self) -> None:
        """Log which mechanisms cannot be offered yet."""
        for mechanism in self._passwords.scram:
            users = self._without_keys(mechanism)
            if users:
                more = f" and {len(users) - _NAMED} more" if len(users) > _NAMED else ""
                _log.warning(
                    "%s is not offered yet, because these users have no keys for it: %s%s. A user gets them by a login "
                    "with PLAIN or by a new password",
                    *(mechanism, ", ".join(map(repr, users[:_NAMED])), more),
                )

    def challenge(self, mechanism: str, name: str) -> Challenge:
        """Return the challenge for a login, with keys that no proof fits if the user has none."""
        keys = self._keys(mechanism, name) or decoy(mechanism, name, self._secret, self._passwords.iterations)
        return Challenge(keys, secrets.token_urlsafe(_NONCE_BYTES))

    def is_current(self, name: str, keys: ScramKeys) -> bool:
        """Return whether these are the keys of the user now."""
        return self._keys(keys.mechanism, name) == keys

    def complete(self, user: User, password: str) -> tuple[str, ...]:
        """Return the keys for a correct password if the user lacks some, and otherwise nothing; on another thread."""
        return () if self._passwords.is_complete(user) else self._passwords.scram_hashes(password)

    def _keys(self, mechanism: str, name: str) -> ScramKeys | None:
        user = self._access.users.get(name)
        return find(user.scram_hashes, mechanism) if user is not None and user.password_hash else None

    def _without_keys(self, mechanism: str) -> list[str]:
        return [
            user.name
            for user in self._access.users.values()
            if user.password_hash and find(user.scram_hashes, mechanism) is None
        ]


def keep(access: Access, record: Callable[[User], None], user: User, better: PasswordHashes) -> None:
    """Store the hashes that were derived for `user`, unless its password was changed meanwhile. Without keys of SCRAM
    among them, the present ones stay.
    """
    current = access.users.get(user.name)
    if current is not None and current.password_hash == user.password_hash:
        record(access.set_password(user.name, better.password_hash, better.scram_hashes or current.scram_hashes))
