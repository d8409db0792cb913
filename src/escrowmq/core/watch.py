"""Watches: which of many objects have changed since somebody last looked at them.

Somebody who looks at an object sets its flag `watched`. The next change of the object clears the flag and notes the
object in every watch. While the flag is not set, a change costs one look at the flag.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class ChangeWatch(Generic[T]):
    """The objects that have changed, each noted once. With `most`, a watch with that many objects gives up: it forgets
    them, and notes nothing until it is asked. So a watch for which nobody asks any more keeps little memory.
    """

    __slots__ = ("_changed", "_gave_up", "_most")

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._changed: dict[T, None] = {}
        self._gave_up = False

    def note(self, changed: T) -> None:
        """Note that an object has changed, or is new."""
        if self._gave_up:
            return
        self._changed[changed] = None
        if self._most is not None and len(self._changed) > self._most:
            self._changed = {}
            self._gave_up = True

    def take(self) -> list[T] | None:
        """Return the objects noted since the last call, in order; None if the watch gave up, so that any object may
        have changed.
        """
        changed, gave_up = self._changed, self._gave_up
        self._changed, self._gave_up = {}, False
        return None if gave_up else list(changed)


def note_in(watches: Iterable[ChangeWatch[T]], changed: T) -> None:
    """Note a change in each of several watches."""
    for watch in watches:
        watch.note(changed)
