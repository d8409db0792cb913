"""The names of sessions that are attached. A user has each name at most once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from escrowmq.wire.amqp010.session import Session


class SessionNames:
    """The attached sessions of all connections, by user and name. Connections share it through `Host.common`."""

    __slots__ = ("_sessions",)

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, bytes], Session] = {}

    def find(self, user: str, name: bytes) -> Session | None:
        """Return the session with this name, if it is attached."""
        return self._sessions.get((user, name))

    def add(self, user: str, name: bytes, session: Session) -> None:
        """Note that `session` is attached."""
        self._sessions[user, name] = session

    def remove(self, user: str, name: bytes, session: Session) -> None:
        """Free the name, if `session` has it."""
        if self._sessions.get((user, name)) is session:
            del self._sessions[user, name]
