"""When a standby may claim the leadership. No rule of safety depends on it: a claim too early only disturbs."""

from __future__ import annotations

from typing import Final

_LOOKS: Final = 4
"""A standby that looks less often than so many times in a lease has been stopped itself, and begins to wait again."""


class LeasePatience:
    """Waits until the leader has been silent for `lease_seconds`. `now` is of any clock that only goes forward."""

    def __init__(self, lease_seconds: float, now: float) -> None:
        self._lease = lease_seconds
        self._since = self._looked = now
        self._counted = -1
        self._resigned: bool | None = None

    def begin_again(self, now: float) -> None:
        """Wait for a whole lease from now on: the log could not be read, or a claim did not count."""
        self._since = self._looked = now

    def is_over(self, now: float, counted: int, *, led: bool, resigned: bool) -> bool:
        """Return whether the leader is silent for so long that this node may claim.

        Args:
            now: The time in seconds, after the log was read to its end.
            counted: How many entries have counted. It grows while a leader is there.
            led: Whether any node has ever led.
            resigned: Whether the last leader has resigned. A resignation that this node has seen coming is acted upon
                at once; one from before its start may be its own.
        """
        if counted != self._counted or now - self._looked > self._lease / _LOOKS:
            self._since = now
        before, self._resigned = self._resigned, resigned
        self._counted, self._looked = counted, now
        if not led:
            return True
        if resigned and before is False:
            return True
        return now - self._since >= self._lease
