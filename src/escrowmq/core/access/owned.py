"""Objects that belong to a user: transaction branches, progress, reservations and half messages (SEC-2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol, TypeAlias, cast

from escrowmq.core.access.access import Kind, Right

Concern: TypeAlias = tuple[Kind, str, Right]
"""A queue or an exchange, and the right on it that the work needs."""
MOST: Final = 100
"""Number of queues and exchanges that are recorded for one object."""


class Concerns:
    """The queues and exchanges that an object concerns.

    They are `complete` up to `MOST`. Beyond that, permissions cannot cover the object, so that only its owner and
    administrators have a right on it.
    """

    __slots__ = ("complete", "names")

    def __init__(self) -> None:
        self.names: dict[Concern, None] = {}
        self.complete = True

    @classmethod
    def restored(cls, concerns: Iterable[tuple[str, str, str]], *, complete: bool) -> Concerns:
        """Return the concerns that a record names."""
        restored = cls()
        restored.complete = complete
        for kind, name, right in concerns:
            restored.names[cast("Concern", (kind, name, right))] = None
        return restored

    def add(self, kind: Kind, name: str, right: Right) -> None:
        """Add a queue or an exchange."""
        concern = (kind, name, right)
        if self.complete and concern not in self.names:
            if len(self.names) >= MOST:
                self.complete = False
                self.names.clear()
            else:
                self.names[concern] = None


class Owned(Protocol):
    """An object that belongs to a user."""

    @property
    def user(self) -> str:
        """The owner; empty if a journal of an older version does not name it."""
        ...

    @property
    def concerns(self) -> Concerns | None:
        """The queues and exchanges that another user's permissions must cover for a right on the object; None if none
        suffice.
        """
        ...

    @property
    def title(self) -> str:
        """The object's name for error texts."""
        ...
