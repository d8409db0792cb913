"""The consumer's books: every message by its number, so that nothing is taken for granted.

A message counts when the transaction with its acknowledgement is committed. Nothing is filtered out on the way:
whatever the broker delivers is written down, and a message that comes back after it counted is an error.
"""

from __future__ import annotations

from escrowmq.demo.events import Resolution

_MASK = (1 << 64) - 1


class Ledger:
    """What was delivered, what is settled, and what is in doubt after a connection was lost."""

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
        """Deliveries that are not acknowledged yet."""
        return len(self._batch)

    def delivered(self, ident: int, checksum: int) -> None:
        """A message arrived. On one connection the numbers must grow: one publisher, queue, consumer (ORD-1)."""
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
        """The commit of all acknowledgements so far is about to be sent."""
        self._sent = True

    def committed(self) -> None:
        """That commit was answered."""
        for ident, checksum in self._batch:
            self._count(ident, checksum)
        self._batch.clear()
        self._sent = False

    def _count(self, ident: int, checksum: int) -> None:
        if self._counted[ident]:
            return  # written down when it was delivered
        self._counted[ident] = 1
        self.settled += 1
        self.digest = (self.digest + checksum) & _MASK

    def interrupted(self) -> None:
        """The connection was lost: what is not settled is in doubt if a commit was sent, and must come back if not."""
        if self._sent:
            self._doubtful.update(self._batch)
        else:
            self._unsettled.update(ident for ident, _ in self._batch)
        self._batch.clear()
        self._sent = False
        self._last = -1

    def resolve(self) -> Resolution:
        """Everything that was there before the connection was lost has arrived: what came back, and what did not.

        An acknowledgement in doubt whose message did not come back was committed. A delivery without one must come
        back.
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
        """How many of these numbers have arrived, at any time."""
        return sum(self._received[first : first + count])

    def missing(self) -> int:
        """How many messages never counted."""
        return len(self._counted) - self.settled
