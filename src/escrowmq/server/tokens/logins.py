"""Logins by tokens: the checks of new ones, and a memory of those that were right."""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from escrowmq.core.access.grant import Grant
from escrowmq.server.tokens.cache import KeyCache
from escrowmq.server.tokens.verifier import TokenRefused, TokenRules, UnknownKey, verified

_REMEMBERED: Final = 1000
"""Tokens that were right and are remembered. Each has up to 12 KiB of scopes."""


class _Known(NamedTuple):
    """The rights of a token that was right with the keys of this version."""

    grant: Grant
    version: int


class TokenLogins:
    """Checks tokens by the keys in `cache`. `clock` returns seconds since the epoch."""

    def __init__(self, cache: KeyCache, rules: TokenRules, clock: Callable[[], float]) -> None:
        self._cache = cache
        self._rules = rules
        self._clock = clock
        self._secret = os.urandom(32)
        self._known: OrderedDict[bytes, _Known] = OrderedDict()

    def remembered(self, token: str) -> Grant | None:
        """Return the rights of a token that was right before and has not expired since; None if it must be checked."""
        digest = self._digest(token)
        found = self._known.get(digest)
        if found is None:
            return None
        if found.version != self._cache.version or found.grant.expires_ms <= self._clock() * 1000:
            del self._known[digest]
            return None
        self._known.move_to_end(digest)
        return found.grant

    def check(self, token: str) -> Callable[[], Grant | TokenRefused]:
        """Return what checks a token with the present keys, on another thread."""
        keys = self._cache.keys

        def work() -> Grant | TokenRefused:
            try:
                return verified(token, keys, self._rules, self._clock())
            except TokenRefused as refused:
                return refused

        return work

    @property
    def version(self) -> int:
        """The version of the present keys."""
        return self._cache.version

    def remember(self, token: str, grant: Grant, version: int) -> None:
        """Remember a token that is right by the keys of this version."""
        self._known[self._digest(token)] = _Known(grant, version)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def await_keys(self, refused: TokenRefused, done: Callable[[], None]) -> bool:
        """Read the keys again if a token was refused for lack of its key, and call `done` afterwards. Return False if
        that cannot help.
        """
        return isinstance(refused, UnknownKey) and self._cache.ask(done)

    def reason(self, refused: TokenRefused) -> str:
        """Return why a token was refused, with what the operator must know of the keys."""
        if isinstance(refused, UnknownKey) and self._cache.fault:
            return f"{refused}, and they cannot be read from {self._cache.name}: {self._cache.fault}"
        return str(refused)

    def figures(self) -> dict[str, Any]:
        """Return the state of the keys, for JSON."""
        cache = self._cache
        return {
            "issuer": self._rules.issuer,
            "audience": self._rules.audience,
            "keys": len(cache.keys),
            "keys_from": cache.name,
            "fault": cache.fault,
        }

    def reload(self) -> None:
        """Read the keys again."""
        self._cache.refresh()

    def stop(self) -> None:
        """Read the keys no more."""
        self._cache.stop()

    def _digest(self, token: str) -> bytes:
        return hashlib.blake2b(token.encode("utf-8", "surrogatepass"), key=self._secret, digest_size=32).digest()
