"""The names of sessions that are attached or kept. A user has each name at most once in a virtual host."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from escrowmq.wire.amqp010.session import Session

MOST_DETACHED: Final = 1000
"""The most sessions of a user that are kept while they are detached."""


class SessionNames:
    """The sessions of all connections, by user, virtual host and name. Connections share it through `Host.common`."""

    __slots__ = ("_detached", "_sessions")

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, str, bytes], Session] = {}
        self._detached: Counter[str] = Counter()

    def find(self, user: str, vhost: str, name: bytes) -> Session | None:
        """Return the session with this name, if it is attached or kept."""
        return self._sessions.get((user, vhost, name))

    def add(self, user: str, vhost: str, name: bytes, session: Session) -> None:
        """Note that `session` is attached."""
        self._sessions[user, vhost, name] = session

    def remove(self, user: str, vhost: str, name: bytes, session: Session) -> None:
        """Free the name, if `session` has it."""
        if self._sessions.get((user, vhost, name)) is session:
            del self._sessions[user, vhost, name]

    # -- sessions that are kept

    def may_keep(self, user: str) -> bool:
        """Whether one more session of a user may be kept."""
        return self._detached[user] < MOST_DETACHED

    def kept(self, user: str) -> None:
        """Note that a session of the user is detached and kept."""
        self._detached[user] += 1

    def kept_no_more(self, user: str) -> None:
        """Note that such a session is attached again, or has ended."""
        self._detached[user] -= 1
        if not self._detached[user]:
            del self._detached[user]
