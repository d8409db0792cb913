"""The orders in which a cursor offers messages: any message that waits, or one after the other for each key (GRP-3).

An order knows the positions that were found in the stream and are not settled. A position is leased, or it waits to be
leased. With keys, the positions of a key form a lane; they are leased from its beginning, and only while none of them
is leased. So a message never overtakes an earlier one of its key, also when that one has failed.
"""

from __future__ import annotations

import heapq
from collections import deque
from itertools import islice
from typing import Protocol


class Order(Protocol):
    """The operations that a cursor needs."""

    def __len__(self) -> int:
        """Return the number of positions that count towards the limit, in addition to those that were leased."""
        ...

    @property
    def ready(self) -> bool:
        """Whether a position can be leased now."""
        ...

    def add(self, position: int, key: str | None) -> None:
        """Add a position, which is after all others, and waits."""
        ...

    def restore(self, position: int, key: str | None, *, leased: bool) -> None:
        """Add a position that was leased before the order was made. It is after all others that were added."""
        ...

    def take(self, most: int) -> list[int]:
        """Return at most `most` positions, which are leased from now on."""
        ...

    def give_back(self, position: int) -> None:
        """Note that the lease of a position is over. The position waits again."""
        ...

    def hold(self, position: int) -> None:
        """Keep a position from being leased until it is given back or settled, also if its lease was revoked."""
        ...

    def revoke_after(self, position: int) -> list[int]:
        """Return the leased positions that must not be handled before this one, and let them wait again."""
        ...

    def settle(self, position: int) -> None:
        """Forget a position."""
        ...


class AnyOrder:
    """Messages wait independently of each other. The lowest position is offered first."""

    __slots__ = ("_heap", "_waiting")

    def __init__(self) -> None:
        self._heap: list[int] = []
        self._waiting: set[int] = set()

    def __len__(self) -> int:
        return 0

    @property
    def ready(self) -> bool:
        return bool(self._waiting)

    def add(self, position: int, key: str | None) -> None:
        self.give_back(position)

    def restore(self, position: int, key: str | None, *, leased: bool) -> None:
        """Do nothing: the position waits as soon as its lease is over."""

    def take(self, most: int) -> list[int]:
        found: list[int] = []
        while self._heap and len(found) < most:
            position = heapq.heappop(self._heap)
            if position in self._waiting:
                self._waiting.remove(position)
                found.append(position)
        return found

    def give_back(self, position: int) -> None:
        if position not in self._waiting:
            self._waiting.add(position)
            heapq.heappush(self._heap, position)

    def hold(self, position: int) -> None:
        """Do nothing: a position waits only after it was given back."""

    def revoke_after(self, position: int) -> list[int]:
        return []

    def settle(self, position: int) -> None:
        self._waiting.discard(position)


class _Lane:
    """The positions of a key, in order."""

    __slots__ = ("key", "leased", "positions")

    def __init__(self, key: str | None) -> None:
        self.key = key
        self.positions: deque[int] = deque()
        self.leased: set[int] = set()


class Lanes:
    """The lanes of a cursor. Lanes that have become free take turns."""

    __slots__ = ("_free", "_lane_of", "_lanes")

    def __init__(self) -> None:
        self._lanes: dict[str | None, _Lane] = {}
        self._lane_of: dict[int, _Lane] = {}
        self._free: dict[_Lane, None] = {}

    def __len__(self) -> int:
        return len(self._lane_of)

    @property
    def ready(self) -> bool:
        return bool(self._free)

    def add(self, position: int, key: str | None) -> None:
        self._offer(self._extended(position, key))

    def restore(self, position: int, key: str | None, *, leased: bool) -> None:
        lane = self._extended(position, key)
        if leased:
            lane.leased.add(position)
            self._free.pop(lane, None)
        else:
            self._offer(lane)

    def _extended(self, position: int, key: str | None) -> _Lane:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key)
        lane.positions.append(position)
        self._lane_of[position] = lane
        return lane

    def take(self, most: int) -> list[int]:
        found: list[int] = []
        while self._free and len(found) < most:
            lane = next(iter(self._free))
            del self._free[lane]
            some = list(islice(lane.positions, most - len(found)))
            lane.leased.update(some)
            found += some
        return found

    def give_back(self, position: int) -> None:
        lane = self._lane_of.get(position)
        if lane is not None:  # a restarted broker has not found it yet
            lane.leased.discard(position)
            self._offer(lane)

    def hold(self, position: int) -> None:
        lane = self._lane_of.get(position)
        if lane is not None:
            lane.leased.add(position)
            self._free.pop(lane, None)

    def revoke_after(self, position: int) -> list[int]:
        lane = self._lane_of.get(position)
        if lane is None:
            return []
        revoked = [other for other in lane.leased if other > position]
        lane.leased.difference_update(revoked)
        return revoked

    def settle(self, position: int) -> None:
        lane = self._lane_of.pop(position, None)
        if lane is None:
            return
        lane.positions.remove(position)
        lane.leased.discard(position)
        if lane.positions:
            self._offer(lane)
        else:
            del self._lanes[lane.key]
            self._free.pop(lane, None)

    def _offer(self, lane: _Lane) -> None:
        if not lane.leased:
            self._free[lane] = None
