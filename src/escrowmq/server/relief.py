"""Takes memory back from users that hold much of it for long while publishers wait for memory.

An open transaction, or deliveries that are never acknowledged, would otherwise keep up the memory alarm, and so all
publishers, for as long as the client likes. While the alarm lasts, the memory that channels and links have held for the
time of grace is added up for each user. Of the user that holds most, the heaviest connection loses its heaviest
channels. What a channel has acknowledged meanwhile does not count, so a client that works is not closed.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from escrowmq.core.broker import Broker

SHARE: Final = 0.05
"""The share of the memory limit that the channels and links of a user together may hold for any time."""

AT_ONCE: Final = 100
"""The most channels and links that are closed at once."""


@runtime_checkable
class MemoryOwner(Protocol):
    """A holder of deliveries that can be made to give back its memory: a channel or a link."""

    @property
    def owner(self) -> tuple[str, object]:
        """The user, and its connection or what stands for it, which can be a key of a dictionary."""
        ...

    @property
    def next_tag(self) -> int:
        """The tag of the next delivery."""
        ...

    def held_bytes(self, before: int) -> int:
        """The bytes of its unsettled deliveries with tags less than `before`, and of everything else that it holds,
        such as an open transaction, about.
        """
        ...

    def give_up(self, text: str) -> None:
        """Close it for the reason `text`: its transaction is rolled back, and its deliveries return to their queues."""
        ...


class _Record:
    """What is known of a holder. Deliveries with tags less than `old_tag`, and `old_rest` bytes of other memory, have
    been held for the time of grace. What it has held since the time `since` becomes old next.
    """

    __slots__ = ("_rest", "_since", "_tag", "old_rest", "old_tag")

    def __init__(self, holder: MemoryOwner, now: int) -> None:
        self.old_tag = self.old_rest = 0
        self._begin(holder, now, holder.held_bytes(0))

    def _begin(self, holder: MemoryOwner, now: int, rest: int) -> None:
        self._since, self._tag, self._rest = now, holder.next_tag, rest

    def old_bytes(self, holder: MemoryOwner, now: int, grace_ms: int) -> int:
        """Return the bytes that the holder has held for the time of grace."""
        rest = holder.held_bytes(0)
        self._rest = min(self._rest, rest)
        self.old_rest = min(self.old_rest, rest)
        if now - self._since >= grace_ms:
            self.old_tag, self.old_rest = self._tag, self._rest
            self._begin(holder, now, rest)
        return self.old_rest + holder.held_bytes(self.old_tag) - rest


class Relief:
    """Looks at the channels and links about once a second, while the memory alarm is on."""

    def __init__(self, broker: Broker, limit_bytes: int, grace_ms: int) -> None:
        """`limit_bytes` is the memory limit. `grace_ms` of 0 means that no channel is ever closed."""
        self._broker = broker
        self._least = int(limit_bytes * SHARE)
        self._grace_ms = grace_ms
        self._records: WeakKeyDictionary[MemoryOwner, _Record] = WeakKeyDictionary()

    def rest(self) -> None:
        """The memory alarm is off: forget what was seen."""
        self._records.clear()

    def look(self) -> None:
        """Relieve the user that holds most, if it has held enough for long enough, of about `SHARE` of the limit."""
        if not self._grace_ms:
            return
        sizes = self._old_sizes()
        users: Counter[str] = Counter()
        connections: Counter[tuple[str, object]] = Counter()
        for holder, size in sizes.items():
            users[holder.owner[0]] += size
            connections[holder.owner] += size
        (user, held), *_ = users.most_common(1) or [("", 0)]
        if not held or held < self._least:
            return
        most = sorted(
            (holder for holder in sizes if holder.owner[0] == user),
            key=lambda holder: (connections[holder.owner], sizes[holder]),
            reverse=True,
        )
        freed = 0
        for holder in most[:AT_ONCE]:
            self._records.pop(holder, None)
            holder.give_up(
                f"memory is short, and the channel or link has held about {sizes[holder]} bytes of unacknowledged "
                f"deliveries, open transactions and incomplete messages for {self._grace_ms // 1000} s; its user held "
                f"{held} bytes"
            )
            freed += sizes[holder]
            if freed >= self._least:
                break

    def _old_sizes(self) -> dict[MemoryOwner, int]:
        """Return the bytes that each holder has held for the time of grace, without those that have held none."""
        now = self._broker.engine.now
        found: dict[MemoryOwner, int] = {}
        for holder in list(self._broker.engine.holders):
            if not isinstance(holder, MemoryOwner):
                continue
            record = self._records.get(holder)
            if record is None:
                record = self._records[holder] = _Record(holder, now)
            size = record.old_bytes(holder, now, self._grace_ms)
            if size:
                found[holder] = size
        return found
