"""Clients that have gone while they are not read: the event loop, which would find out by reading, does not look."""

from __future__ import annotations

import select
from collections.abc import Iterable
from typing import Final

from escrowmq.server.connection import ClientConnection, Pause

_UNREAD: Final = Pause.ALARM | Pause.UNSENT
"""Pauses that may last. After the others reading goes on soon, and finds the end behind all that came before it."""


def hung_up(connections: Iterable[ClientConnection]) -> list[ClientConnection]:
    """Those that are held back and whose peer has closed or reset its end. None where the system has no `poll`."""
    waiting = {c.descriptor: c for c in connections if c.paused & _UNREAD}
    waiting.pop(-1, None)
    if not waiting or not hasattr(select, "poll"):
        return []
    poller = select.poll()
    for descriptor in waiting:
        poller.register(descriptor, select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0))  # that: Linux
    return [waiting[descriptor] for descriptor, _ in poller.poll(0)]
