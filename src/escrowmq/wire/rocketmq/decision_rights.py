"""Who may decide half messages, asked once for all of a producer that arrive together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from escrowmq.core.access.table import Operation
from escrowmq.core.conditions import BrokerError

if TYPE_CHECKING:
    from escrowmq.core.access.door import Door
    from escrowmq.core.half.origin import HalfOrigin
    from escrowmq.core.half.registry import HalfMessages


class DecisionRights:
    """The half messages of a virtual host that a user may decide. What was found holds until `clear` is called."""

    __slots__ = ("_door", "_found", "_halves", "_vhost")

    def __init__(self, halves: HalfMessages, door: Door, vhost: str) -> None:
        self._halves = halves
        self._door = door
        self._vhost = vhost
        self._found: dict[HalfOrigin, None] = {}

    def origin(self, number: int) -> HalfOrigin | None:
        """Return what a half message shares with others, or None if it is unknown or the user may not decide it."""
        origin = self._halves.origin(self._vhost, number)
        if origin is None or origin in self._found:
            return origin
        try:
            self._door.check(Operation.DECIDE_HALF, half=self._halves.at(self._vhost, number))
        except BrokerError:
            return None
        self._found[origin] = None
        return origin

    def clear(self) -> None:
        """Forget what was found, since permissions may change."""
        self._found.clear()
