"""The consumer's ledger, which tracks every message by its number.

A message counts when the transaction with its acknowledgement is committed. Nothing is filtered: every delivery is
recorded, and a message that is redelivered after it counted is an error.
"""

from __future__ import annotations

from escrowmq.demo.events import Resolution

_MASK = (1 << 64) - 1


class Ledger:
    """Tracks deliveries, settlements, and acknowledgements in doubt after a lost connection."""

    def __init__(self, total: int) -> None:
        self.settled = 0
        self.twice = 0
        self.out_of_order = 0
        self.repeated = 0
        self.digest = 0
        self._received = bytearray(total)
        self._counted = bytearray(total)
        self._batch: list[tuple[int, int]] = []
        self._sent = False
        self._last = -1
        self._doubtful: dict[int, int] = {}
        self._unsettled: set[int] = set()
        self._back: set[int] = set()

    @property
    def waiting(self) -> int:
        """The number of deliveries that are not acknowledged yet."""
        return len(self._batch)

    def delivered(self, ident: int, checksum: int) -> None:
        """Record a delivery.

        The numbers must increase on one connection, because there is one publisher, queue and consumer (ORD-1).
        """
        if self._counted[ident]:
            self.twice += 1
        if ident <= self._last:
            self.out_of_order += 1
        self._last = ident
        self.repeated += self._received[ident]
        self._received[ident] = 1
        if ident in self._doubtful or ident in self._unsettled:
            self._back.add(ident)
        self._batch.append((ident, checksum))

    def committing(self) -> None:
        """Record that the commit of all acknowledgements so far is about to be sent."""
        self._sent = True

    def committed(self) -> None:
        """Record that the commit was answered."""
        for ident, checksum in self._batch:
            self._count(ident, checksum)
        self._batch.clear()
        self._sent = False

    def _count(self, ident: int, checksum: int) -> None:
        if self._counted[ident]:
            return  # `delivered` has recorded this error
        self._counted[ident] = 1
        self.settled += 1
        self.digest = (self.digest + checksum) & _MASK

    def interrupted(self) -> None:
        """Record that the connection was lost.

        Unsettled deliveries are in doubt if a commit was sent; otherwise they must be redelivered.
        """
        if self._sent:
            self._doubtful.update(self._batch)
        else:
            self._unsettled.update(ident for ident, _ in self._batch)
        self._batch.clear()
        self._sent = False
        self._last = -1

    def resolve(self) -> Resolution:
        """Determine which messages were redelivered, once all messages from before the lost connection have arrived.

        An acknowledgement in doubt was committed if its message was not redelivered. A message without an
        acknowledgement must be redelivered.
        """
        back = self._back
        result = Resolution(
            len(self._doubtful),
            len(self._doubtful.keys() & back),
            len(self._unsettled),
            len(self._unsettled & back),
        )
        for ident, checksum in self._doubtful.items():
            if ident not in back:
                self._count(ident, checksum)
        self._doubtful.clear()
        self._unsettled.clear()
        self._back = set()
        return result

    def found(self, first: int, count: int) -> int:
        """Return how many of these numbers have ever arrived."""
        return sum(self._received[first : first + count])

    def missing(self) -> int:
        """Return how many messages never counted."""
        return len(self._counted) - self.settled
