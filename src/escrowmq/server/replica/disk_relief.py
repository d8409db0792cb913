"""A leader whose disk has become short of space lets another node lead, whose disk may have more.

A broker alone can only block its publishers until there is space again. A standby that is short of space as well gives
way to others when a leader is wanted (see `Candidate`), and one that leads nevertheless keeps the leadership. So nodes
that are all short of space do not pass it around.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from escrowmq.server.resources import Alarms
from escrowmq.server.turn import Turns

GRACE_SECONDS: Final = 1.0
"""How long the alarm lasts before the leader does something about it."""
_RETRY_SECONDS: Final = 5.0

_log = logging.getLogger("escrowmq.replication")


class DiskRelief:
    """Looks at the end of each turn. `obstacle` says why no other node could lead now, and is empty if one could."""

    def __init__(
        self, turns: Turns, alarms: Alarms, obstacle: Callable[[], str], hand_over: Callable[[], None]
    ) -> None:
        self._alarms = alarms
        self._obstacle = obstacle
        self._hand_over = hand_over
        self._had_space = False
        """Whether there was space enough since this node leads."""
        self._act_at: float | None = None
        self._told = ""
        turns.after.append(self._step)

    def _step(self) -> None:
        if not self._alarms.disk:
            self._had_space, self._act_at, self._told = True, None, ""
            return
        if not self._had_space:
            return
        now = time.monotonic()
        if self._act_at is None:
            self._act_at = now + GRACE_SECONDS
        if now >= self._act_at:
            self._act_at = now + _RETRY_SECONDS
            self._act()

    def _act(self) -> None:
        obstacle = self._obstacle()
        if not obstacle:
            self._had_space = False  # this happens once
            _log.warning("the disk is short of space, so this node hands over to one that may have more")
            self._hand_over()
        elif obstacle != self._told:
            self._told = obstacle
            _log.warning("the disk is short of space, and this node goes on leading: %s", obstacle)
