"""Consumers: subscriptions with credit, and whose turn it is on a queue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from escrowmq.core.topology.arguments.consumer import ConsumerOptions

if TYPE_CHECKING:
    from escrowmq.core.ports import Receiver
    from escrowmq.core.queues.queue import Queue

UNLIMITED: Final = 1 << 60
_NO_OPTIONS: Final = ConsumerOptions()


class Window:
    """Credit that several consumers share: a channel's global prefetch limit. `limit` 0 is unlimited."""

    __slots__ = ("credit", "limit", "members")

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        self.members: list[Consumer] = []
        self.credit = limit or UNLIMITED

    def after(self, consumer: Consumer) -> list[Consumer]:
        """The members, in the order in which they may use what `consumer` gives back: it comes last itself."""
        members = self.members
        i = members.index(consumer) + 1 if consumer in members else 0
        return members[i:] + members[:i]

    def resize(self, limit: int) -> None:
        """Change the limit; what is in use stays in use."""
        used = (self.limit or UNLIMITED) - self.credit
        self.limit = limit
        self.credit = (limit or UNLIMITED) - used


class Consumer:
    """A subscription of `receiver` to `queue`.

    `credit` is how many more entries it may hold unsettled. With `auto_settle` entries are settled as they are handed
    over. `tag` and `view` belong to the protocol; `label` is what the log calls it; `cursor` is where it stands in a
    stream.
    """

    __slots__ = (
        "auto_settle",
        "credit",
        "cursor",
        "exclusive",
        "label",
        "options",
        "priority",
        "queue",
        "receiver",
        "tag",
        "view",
        "window",
    )

    def __init__(
        self,
        queue: Queue,
        receiver: Receiver | None,
        tag: str = "",
        *,
        credit: int = 0,
        window: Window | None = None,
        auto_settle: bool = False,
        exclusive: bool = False,
        options: ConsumerOptions = _NO_OPTIONS,
        label: str = "",
    ) -> None:
        self.queue = queue
        self.receiver = receiver
        self.tag = tag
        self.label = label
        self.credit = credit or UNLIMITED
        self.window = window
        self.auto_settle = auto_settle
        self.exclusive = exclusive
        self.options = options
        self.priority = options.priority
        self.cursor = 0
        self.view: Any = None

    def room(self) -> int:
        """How many entries it can take now."""
        if self.receiver is None or not self.receiver.writable:
            return 0
        if self.window is None or self.window.credit > self.credit:
            return self.credit
        return self.window.credit

    def spend(self, count: int) -> None:
        self.credit -= count
        if self.window is not None:
            self.window.credit -= count

    def earn(self, count: int) -> None:
        self.credit += count
        if self.window is not None:
            self.window.credit += count


class Consumers:
    """The consumers of one queue: higher priority first, in turn within a priority; one alone if `single`."""

    __slots__ = ("_groups", "_turns", "active", "single")

    def __init__(self, *, single: bool = False) -> None:
        self.single = single
        self.active: Consumer | None = None  # the one that is served, when only one may be
        self._groups: dict[int, list[Consumer]] = {}
        self._turns: dict[int, int] = {}

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def __bool__(self) -> bool:
        return bool(self._groups)

    def __iter__(self) -> Iterator[Consumer]:
        for priority in self._groups:
            yield from self._groups[priority]

    def add(self, consumer: Consumer) -> None:
        self._groups.setdefault(consumer.priority, []).append(consumer)
        self._turns.setdefault(consumer.priority, 0)
        self._groups = dict(sorted(self._groups.items(), reverse=True))
        if self.single and self.active is None:
            self.active = consumer

    def remove(self, consumer: Consumer) -> bool:
        """Take it out; False if it was not there. With `single`, the next one in line becomes active."""
        group = self._groups.get(consumer.priority, [])
        if consumer not in group:
            return False
        group.remove(consumer)
        if not group:
            del self._groups[consumer.priority], self._turns[consumer.priority]
        if self.active is consumer:
            self.active = next(iter(self), None)
        return True

    def able(self) -> list[Consumer]:
        """Those who are served next, in turn: all that have room among the highest priority that has any."""
        if self.single:
            return [self.active] if self.active is not None and self.active.room() > 0 else []
        for priority, group in self._groups.items():
            turn = self._turns[priority] % len(group)
            ready = [consumer for consumer in group[turn:] + group[:turn] if consumer.room() > 0]
            if ready:
                return ready
        return []

    def served(self, last: Consumer) -> None:
        """`last` was the last to get something: the one after it is next."""
        group = self._groups.get(last.priority)
        if group is not None and last in group:
            self._turns[last.priority] = group.index(last) + 1
