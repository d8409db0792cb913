"""Sessions of the console: a login in a browser, known by a random token in a cookie.

A session keeps the password, or the bearer token, in memory and shows it to the broker with each request, as other HTTP
clients do. So a changed password, a deleted user, changed tags and an expired token have effect at once.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

IDLE_SECONDS: Final = 3600.0
"""A session without a request for so long ends."""
MOST: Final = 1000
"""The largest number of sessions; beyond it, the one without a request for the longest time ends."""
MOST_OF_USER: Final = 50
"""Those of one user or token; beyond it, one of its own ends, so that nobody can end the sessions of others."""
_OCTETS: Final = 32


@dataclass
class LoginSession:
    """One login: by user and password, or by a bearer token, which says who the user is. `form_token` proves that a
    form comes from a page of this session. `notices` are texts that the next page shows, each with the word `done` or
    `failed`.
    """

    user: str
    password: str = field(repr=False)
    form_token: str = field(repr=False)
    seen: float
    bearer: str = field(default="", repr=False)
    notices: list[tuple[str, str]] = field(default_factory=list)


class Sessions:
    """The sessions by token. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._by_token: dict[str, LoginSession] = {}

    def __len__(self) -> int:
        return len(self._by_token)

    def open(self, user: str, password: str, bearer: str = "") -> str:
        """Begin a session of a user with this password or bearer token, and return the session's own token."""
        self._forget_idle()
        own = [token for token, each in self._by_token.items() if (each.bearer or each.user) == (bearer or user)]
        for token in own[: max(len(own) - MOST_OF_USER + 1, 0)]:
            del self._by_token[token]
        while len(self._by_token) >= MOST:
            del self._by_token[next(iter(self._by_token))]
        token = secrets.token_urlsafe(_OCTETS)
        self._by_token[token] = LoginSession(user, password, secrets.token_urlsafe(_OCTETS), self._clock(), bearer)
        return token

    def find(self, token: str) -> LoginSession | None:
        """Return the session of a token, and note that it was used; None if there is none."""
        self._forget_idle()
        session = self._by_token.pop(token, None)
        if session is not None:
            session.seen = self._clock()
            self._by_token[token] = session  # the longest unused is first
        return session

    def close(self, token: str) -> None:
        """End a session, if there is one."""
        self._by_token.pop(token, None)

    def _forget_idle(self) -> None:
        limit = self._clock() - IDLE_SECONDS
        while self._by_token:
            token = next(iter(self._by_token))
            if self._by_token[token].seen > limit:
                return
            del self._by_token[token]
