"""Finds clients that disconnected while they are not read. The event loop notices a disconnect only by reading."""

from __future__ import annotations

import select
from collections.abc import Iterable
from typing import Final

from escrowmq.server.connection import ClientConnection, Pause

_UNREAD: Final = Pause.ALARM | Pause.UNSENT
"""Pauses that may last for any time. After other pauses, reading soon continues and reaches the end of the stream."""


def hung_up(connections: Iterable[ClientConnection]) -> list[ClientConnection]:
    """Return the connections that are not read and whose peer has disconnected. Empty if the system has no `poll`."""
    waiting = {c.descriptor: c for c in connections if c.paused & _UNREAD}
    waiting.pop(-1, None)
    if not waiting or not hasattr(select, "poll"):
        return []
    poller = select.poll()
    for descriptor in waiting:
        poller.register(
            descriptor, select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)
        )  # only Linux has it
    return [waiting[descriptor] for descriptor, _ in poller.poll(0)]
