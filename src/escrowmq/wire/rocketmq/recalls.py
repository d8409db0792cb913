"""Recall of delayed messages before they are due, for both generations of clients.

The result of a delayed send has a recall handle, which names the place of the message: its position in the hidden queue
of delayed messages, when it is due, and its id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.core.queues.delayed import NAME, DelayedQueue
from escrowmq.wire.rocketmq import properties as names
from escrowmq.wire.rocketmq.content import PROTOCOL, properties_of
from escrowmq.wire.rocketmq.properties import value_of

if TYPE_CHECKING:
    from escrowmq.core.engine import Engine
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.topology.vhost import VirtualHost

LONGEST: Final = 512
"""Characters of a handle."""
_PARTS: Final = 3
_MOST: Final = 1 << 63


class DelayedPlace(NamedTuple):
    """The place of a delayed message, and the time in milliseconds since the epoch at which it is due."""

    position: int
    due: int
    message_id: str


def handle_of(engine: Engine, queues: Sequence[Queue], envelope: Envelope, content: bytes, message_id: str) -> str:
    """Return the handle of a message that is published next to `queues`; empty if it is due at once."""
    if not queues or not isinstance(queues[0], DelayedQueue):
        return ""
    return f"{queues[0].next_position:x}-{engine.delays.due(envelope, content, engine.now):x}-{message_id}"


def place_in(handle: str) -> DelayedPlace | None:
    """Return the place that a handle names, or None if it is malformed."""
    parts = handle.split("-", _PARTS - 1) if len(handle) <= LONGEST and handle.isascii() else []
    try:
        position, due = (int(part, 16) for part in parts[:-1])
    except ValueError:
        return None
    return DelayedPlace(position, due, parts[-1]) if 0 <= position < _MOST and 0 <= due < _MOST else None


def waiting_at(vhost: VirtualHost[Queue], topic: str, place: DelayedPlace) -> tuple[DelayedQueue, Entry] | None:
    """Return the message of `topic` that waits at a place, with its queue; None if it was delivered or recalled."""
    waiting = vhost.hidden.get(NAME)
    entry = waiting.find(place.position, place.due) if isinstance(waiting, DelayedQueue) else None
    if entry is None or not isinstance(waiting, DelayedQueue):
        return None
    envelope = entry.run.envelope
    if envelope.exchange != topic or envelope.protocol != PROTOCOL:
        return None
    key = value_of(properties_of(entry.content), names.UNIQUE_KEY)
    return (waiting, entry) if (key or "") == place.message_id else None
