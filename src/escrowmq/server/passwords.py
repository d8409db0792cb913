"""The forms in which passwords are stored: an Argon2id hash, and the keys of SCRAM for the mechanisms on offer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from argon2 import PasswordHasher

from escrowmq.core.access.permissions import PasswordHashes, User
from escrowmq.wire.scram.keys import HASHES, SALT_SIZE, derive, find

HASHER: Final = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)
"""Argon2id with the parameters that OWASP recommends: each check takes 19 MiB and 20 to 30 ms."""
ITERATIONS: Final = 10_000
"""The default number of iterations of SCRAM: 5 ms for SHA-256 and 12 ms for SHA-512, once for each new password."""


class Passwords:
    """Derives hashes. Each call takes tens of milliseconds of a processor, so none may run on the event loop."""

    def __init__(
        self, mechanisms: Sequence[str] = (), iterations: int = ITERATIONS, hasher: PasswordHasher = HASHER
    ) -> None:
        """`mechanisms` are those on offer. No keys are stored for those of SCRAM that are not among them."""
        self.hasher = hasher
        self.iterations = iterations
        self.scram = tuple(name for name in mechanisms if name in HASHES)

    def hashes(self, password: str) -> PasswordHashes:
        """Return everything that is stored of a password."""
        return PasswordHashes(self.hasher.hash(password), self.scram_hashes(password))

    def scram_hashes(self, password: str) -> tuple[str, ...]:
        """Return the keys of SCRAM for a password, in the form in which they are stored."""
        return tuple(str(derive(name, password, os.urandom(SALT_SIZE), self.iterations)) for name in self.scram)

    def is_complete(self, user: User) -> bool:
        """Return whether the user has keys for all mechanisms of SCRAM on offer, with the configured iterations."""
        found = [find(user.scram_hashes, name) for name in self.scram]
        return all(keys is not None and keys.iterations == self.iterations for keys in found)
