"""Credit: the number of entries that a consumer may still receive, and the event that restores spent credit.

| event     | SETTLEMENT | COMPLETION | RECEIVER |
|-----------|------------|------------|----------|
| delivered | − n        | − n        | − n      |
| settled   | + n        |            |          |
| completed |            | + n        |          |
| granted   | + n        | + n        | + n      |
| allowed   | = n        | = n        | = n      |
| cancelled | = 0        | = 0        | = 0      |

With zero credit nothing is delivered; unlimited credit is `UNLIMITED`. Deliveries made before the credit was set again
or cancelled restore nothing. The unit is a message. A consumer may have a second credit in bytes (`ByteCredit`). Then
it gets only messages that both allow, and the next message waits until there is credit for all of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.queues.consumer import Consumer

UNLIMITED: Final = 1 << 60


class Replenishment(Enum):
    """The event that restores spent credit."""

    SETTLEMENT = auto()
    """A delivery was settled or returned: the prefetch limit of AMQP 0-9-1."""
    COMPLETION = auto()
    """The receiver has completed the transfer, settled or not: the window mode of AMQP 0-10."""
    RECEIVER = auto()
    """Only a new grant: links of AMQP 1.0, the credit mode of 0-10, a long poll."""


_SETTLEMENT: Final = Replenishment.SETTLEMENT  # found sooner than a member of an enumeration


class Credit:
    """The credit of one consumer. `left` can still be spent; `used` is spent and can be restored."""

    __slots__ = ("by", "left", "used")

    def __init__(self, left: int = 0, by: Replenishment = Replenishment.SETTLEMENT) -> None:
        self.by = by
        self.left = left
        self.used = 0

    def spend(self, count: int) -> None:
        """Spend credit for `count` delivered entries."""
        self.left -= count
        self.used += count

    def settled(self, count: int) -> None:
        """Note that `count` deliveries were settled, or returned to their queue."""
        if self.by is _SETTLEMENT:
            self._restore(count)

    def completed(self, count: int) -> None:
        """Note that the receiver has completed `count` transfers."""
        if self.by is Replenishment.COMPLETION:
            self._restore(count)

    def _restore(self, count: int) -> None:
        count = min(count, self.used)
        self.used -= count
        self.left += count

    def grant(self, count: int) -> None:
        """Add credit for `count` entries."""
        self.left += count

    def allow(self, count: int) -> None:
        """Set the credit to `count` entries."""
        self.left = count
        self.used = 0

    def cancel(self) -> int:
        """Set the credit to zero; return the credit that was left."""
        unused, self.left, self.used = self.left, 0, 0
        return unused


class ByteCredit(Credit):
    """The credit of one consumer in bytes. `measure` returns how many bytes an entry costs.

    It is `halted` if there was not enough of it for the next entry.
    """

    __slots__ = ("halted", "measure")

    def __init__(
        self, measure: Callable[[Entry], int], left: int = 0, by: Replenishment = Replenishment.SETTLEMENT
    ) -> None:
        super().__init__(left, by)
        self.measure = measure
        self.halted = False

    def fitting(self, entries: list[Entry]) -> list[Entry]:
        """Return the first of `entries`, as many as the credit is enough for."""
        left = self.left
        for i, entry in enumerate(entries):
            left -= self.measure(entry)
            if left < 0:
                self.halted = True
                return entries[:i]
        self.halted = False
        return entries


class Window:
    """Credit that several consumers share: a channel's global prefetch limit. A `limit` of 0 is unlimited.

    A consumer that only lacks this shared credit waits here. Waiting consumers get the credit in their order.
    """

    __slots__ = ("credit", "limit", "waiting")

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        self.credit = limit or UNLIMITED
        self.waiting: OrderedDict[Consumer, None] = OrderedDict()

    def resize(self, limit: int) -> None:
        """Change the limit. Credit that is in use stays in use."""
        used = (self.limit or UNLIMITED) - self.credit
        self.limit = limit
        self.credit = (limit or UNLIMITED) - used

    def line_up(self, consumer: Consumer) -> None:
        """Let `consumer` wait for credit, behind all others."""
        self.waiting[consumer] = None
        self.waiting.move_to_end(consumer)

    def offer(self) -> bool:
        """Wake as many waiting consumers as there is credit. Return True if others wait, since the woken consumers may
        not use all of it.
        """
        for _ in range(min(self.credit, len(self.waiting))):
            consumer, _none = self.waiting.popitem(last=False)
            consumer.wake()
        return bool(self.waiting) and self.credit > 0
