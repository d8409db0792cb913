"""Takes memory back from clients that hold much of it for long while publishers wait for memory.

An open transaction, or deliveries that are never acknowledged, would otherwise keep up the memory alarm, and so all
publishers, for as long as the client likes. While the alarm lasts, the channel that holds most is closed if it has held
it for the time of grace. What it has acknowledged meanwhile does not count, so a client that works is not closed.
"""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from escrowmq.core.broker import Broker

SHARE: Final = 0.05
"""The share of the memory limit that a channel may hold for any time."""


@runtime_checkable
class MemoryOwner(Protocol):
    """A holder of deliveries that can be made to give back its memory: a channel or a link."""

    @property
    def next_tag(self) -> int:
        """The tag of the next delivery."""
        ...

    def held_bytes(self, before: int) -> int:
        """The bytes of its open transaction, and of its unsettled deliveries with tags less than `before`, about."""
        ...

    def give_up(self, text: str) -> None:
        """Close it for the reason `text`: its transaction is rolled back, and its deliveries return to their queues."""
        ...


class Relief:
    """Looks at the channels about once a second, while the memory alarm is on."""

    def __init__(self, broker: Broker, limit_bytes: int, grace_ms: int) -> None:
        """`limit_bytes` is the memory limit. `grace_ms` of 0 means that no channel is ever closed."""
        self._broker = broker
        self._least = int(limit_bytes * SHARE)
        self._grace_ms = grace_ms
        # When a channel was first seen to hold so much, and its next tag at that time.
        self._seen: WeakKeyDictionary[MemoryOwner, tuple[int, int]] = WeakKeyDictionary()

    def rest(self) -> None:
        """The memory alarm is off: forget what was seen."""
        self._seen.clear()

    def look(self) -> None:
        """Close the channel that holds most, if one has held enough for long enough."""
        now = self._broker.engine.now
        found: tuple[int, MemoryOwner, int] | None = None
        for holder in list(self._broker.engine.holders):
            if not self._grace_ms or not isinstance(holder, MemoryOwner):
                continue
            since, tag = self._seen.get(holder, (now, holder.next_tag))
            size = holder.held_bytes(tag)
            if size < self._least:
                since, tag = now, holder.next_tag
                size = holder.held_bytes(tag)
                if size < self._least:
                    self._seen.pop(holder, None)
                    continue
            self._seen[holder] = since, tag
            if now - since >= self._grace_ms and (found is None or size > found[0]):
                found = size, holder, now - since
        if found is not None:
            size, heaviest, age_ms = found
            self._seen.pop(heaviest, None)
            heaviest.give_up(
                f"memory is short, and the channel or link has held about {size} bytes of unacknowledged deliveries "
                f"and open transactions for {age_ms // 1000} s"
            )
