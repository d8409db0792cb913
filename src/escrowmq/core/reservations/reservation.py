"""A reservation: messages of a queue that are reserved for a named group of bulk readers until it settles them
(PIPE-1).

Each message that a group reserves gets a number: 1, 2, 3 and so on, in the order in which the messages were taken. A
number is never used twice for one group and queue. A range of numbers therefore always names the same messages,
wherever they are in the queue. A message that was released and is reserved again gets a new number
(docs/adr/0009-reservations-are-numbered.md).
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import accumulate, chain, repeat
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from escrowmq.core.access.owned import Concerns
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.queues.backlog import Backlog
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.references import Range, Reference, merged
from escrowmq.core.records.reservations import Held, HeldRange, encode_released, joined
from escrowmq.core.records.settling import encode_settle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from escrowmq.core.ports import Log
    from escrowmq.core.queues.queue import Queue


UNLIMITED: Final = 1 << 60
MOST_TIMES: Final = 1000
"""Times of reservation that a group remembers. Later messages count as reserved with those before them."""

Row: TypeAlias = tuple[int, int, int, int, int]
"""Contiguous messages of one block: the fields of a reference, and how often each message had been delivered."""


class Piece(NamedTuple):
    """Contiguous reserved messages of one block. The first one has `number`. Each had been delivered `deliveries` times
    before it was reserved.
    """

    number: int
    reference: Reference
    deliveries: int


class Part(Backlog):
    """References to reserved or locked messages in order of position, which is also the order of their numbers."""

    __slots__ = ("deliveries", "numbers")

    def __init__(self) -> None:
        super().__init__()
        self.numbers = array("Q")
        self.deliveries = array("I")

    def add(self, references: Backlog, number: int, deliveries: int) -> None:
        """Append references, numbered from `number` on."""
        counts = references.counts
        self.join(references, references.begin)
        self.numbers.extend(accumulate(counts[:-1], initial=number))
        self.deliveries.extend(repeat(deliveries, len(counts)))

    def rows(self, number: int, most: int) -> tuple[Piece, Iterator[Row]] | None:
        """Return the part from `number` on: the first piece, and at most `most` others. None if there is nothing."""
        i = max(bisect_right(self.numbers, number, self.begin) - 1, self.begin)
        if i < self.end and number >= self.numbers[i] + self.counts[i]:
            i += 1
        if i >= self.end:
            return None
        first, length, lsn, start = self.at(i)
        skip = max(number - self.numbers[i], 0)
        piece = Piece(
            self.numbers[i] + skip, Reference(first + skip, length - skip, lsn, start + skip), self.deliveries[i]
        )
        columns = (self.firsts, self.counts, self.lsns, self.indexes, self.deliveries)
        return piece, zip(*(column[i + 1 : i + 1 + most] for column in columns), strict=True)

    def take_below(self, number: int) -> Iterator[tuple[int, int]]:
        """Remove everything below `number`. Yield the blocks, and the number of messages removed from each."""
        begin = self.begin
        whole = bisect_right(self.numbers, number - 1, begin)  # references that begin below it
        if whole > begin and self.numbers[whole - 1] + self.counts[whole - 1] > number:
            whole -= 1
        taken = self.split(sum(self.counts[begin:whole]), whole - begin)
        yield from zip(taken.lsns, taken.counts, strict=True)
        if self.messages and self.numbers[self.begin] < number:
            part = self.take(number - self.numbers[self.begin])
            self.numbers[self.begin] = number
            yield part.lsn, part.length

    def _trim(self) -> None:
        head = self.begin
        super()._trim()
        del self.numbers[:head]
        del self.deliveries[:head]

    def clear(self) -> None:
        super().clear()
        del self.numbers[:]
        del self.deliveries[:]

    def substitute(self, changes: list[tuple[int, int, list[Reference]]]) -> None:
        numbers, deliveries = array("Q"), array("I")
        begin, end = changes[0][0], changes[-1][1]
        at = begin
        for i, j, others in changes:
            numbers += self.numbers[at:i]
            deliveries += self.deliveries[at:i]
            for reference in others:
                old = max(bisect_right(self.firsts, reference.first, i, j) - 1, i)  # it lies within one of the old ones
                numbers.append(self.numbers[old] + reference.first - self.firsts[old])
                deliveries.append(self.deliveries[old])
            at = j
        super().substitute(changes)
        self.numbers[begin:end] = numbers
        self.deliveries[begin:end] = deliveries


class Reservation:
    """The messages of a queue that a group holds: numbers `first` to `end` - 1.

    Numbers below `settled` were accepted; numbers from `settled` to `first` - 1 were released. `pledged` maps the
    branch numbers of prepared transactions to the number below which they settle messages of this reservation.
    `holder` is the user that reserved messages last; the reservation belongs to that user while it holds messages.
    """

    __slots__ = ("_times", "end", "first", "group", "holder", "parts", "pledged", "queue", "releases", "settled")

    def __init__(self, queue: Queue, group: str, settled: int = 1, first: int = 1, holder: str = "") -> None:
        self.queue = queue
        self.group = group
        self.holder = holder
        self.parts: list[Part] = []
        self.settled = settled
        self.first = self.end = first
        self.releases = 0
        self.pledged: dict[int, int] = {}
        self._times: deque[tuple[int, int]] = deque()  # numbers, and when the messages from there on were reserved

    def __repr__(self) -> str:
        return f"<Reservation of {self.group} on {self.queue.name}: {self.first} to {self.end}>"

    def __len__(self) -> int:
        """Return the number of messages held."""
        return self.end - self.first

    @property
    def user(self) -> str:
        """The owner (`access.owned`); empty while the reservation holds no messages."""
        return self.holder if len(self) else ""

    @property
    def concerns(self) -> Concerns | None:
        """Without an owner, the reservation is open to every user that may read the queue."""
        if self.user:
            return None
        concerns = Concerns()
        concerns.add("queue", self.queue.name, "read")
        return concerns

    @property
    def title(self) -> str:
        return f"the messages of queue '{self.queue.name}' that group '{self.group}' holds"

    def add(self, references: Backlog, deliveries: int) -> None:
        """Add messages, which get the next numbers."""
        part = self.parts[-1] if self.parts else None
        if part is None or (len(part) and part.firsts[-1] > references.peek().first):
            part = Part()
            self.parts.append(part)
        part.add(references, self.end, deliveries)
        self.end += len(references)

    def note_time(self, now_ms: int) -> None:
        """Note that the messages that are added next are reserved at `now_ms`."""
        if len(self._times) < MOST_TIMES:
            self._times.append((self.end, now_ms))

    @property
    def since_ms(self) -> int | None:
        """Since when the first message is reserved, in milliseconds since the epoch, or since the start of the broker.
        None if there is none.
        """
        return self._times[0][1] if len(self) and self._times else None

    def rows(self, number: int = 0, most: int = UNLIMITED) -> tuple[int, Iterator[Row]]:
        """Return the number of the first message from `number` on, and at least `most` of the messages from there in
        order, or all of them.
        """
        found: list[Iterator[Row]] = []
        first = max(self.end, number)
        for part in self.parts:
            rows = part.rows(number, most)
            if rows is not None:
                piece, others = rows
                first = min(first, piece.number)
                found += (iter(((*piece.reference, piece.deliveries),)), others)
        return first, chain.from_iterable(found)

    def ranges(self, begin: int, end: int) -> list[Range]:
        """Return the positions of the messages with the numbers `begin` to `end` - 1."""
        number, rows = self.rows(begin)
        found: list[tuple[int, int]] = []
        at = behind = 0
        for first, length, _, _, _ in rows:
            if number + length > end:
                length = end - number
                if length <= 0:
                    break
            number += length
            if first != behind:
                found.append((at, behind - at))
                at = first
            behind = first + length
        found.append((at, behind - at))
        return merged(found[1:])

    def take_below(self, number: int) -> Iterator[tuple[int, int]]:
        """Remove all messages below `number`. Yield their blocks, and the number of messages removed from each."""
        while self.parts:
            yield from self.parts[0].take_below(number)
            if len(self.parts[0]):
                break
            del self.parts[0]
        self.first = max(self.first, number)
        while len(self._times) > 1 and self._times[1][0] <= self.first:
            self._times.popleft()
        if not len(self):
            self._times.clear()

    def clear(self) -> list[tuple[Reference, int]]:
        """Remove all messages. Return them, and how often they had been delivered."""
        taken = [(Reference(*row[:4]), row[4]) for row in self.rows()[1]]
        for part in self.parts:
            part.clear()  # compaction may be iterating over it
        self.parts.clear()
        self._times.clear()
        self.first = self.end
        return taken


class ReservedColumns:
    """A quick copy of a reservation for a snapshot, which is encoded as a record later."""

    __slots__ = ("_group", "_holder", "_numbers", "_parts", "_queue")

    def __init__(self, reservation: Reservation) -> None:
        self._queue, self._group = reservation.queue.ident, reservation.group
        self._holder = reservation.holder
        self._numbers = reservation.settled, reservation.first
        self._parts = [
            (part.firsts[part.begin :], part.counts[part.begin :], part.deliveries[part.begin :])
            for part in reservation.parts
        ]

    def held(self) -> Held:
        """Return the content of the record."""
        ranges = joined(each for part in self._parts for each in map(HeldRange, *part))
        return Held(self._queue, self._group, *self._numbers, ranges, [], self._holder)


class ReservationSettlement:
    """The acceptance of all messages of `reservation` below `end`, in a branch or on its own."""

    __slots__ = ("_releases", "end", "reservation")

    def __init__(self, reservation: Reservation, end: int) -> None:
        self.reservation = reservation
        self.end = end
        self._releases = reservation.releases

    @property
    def count(self) -> int:
        """Return how many messages it settles at present."""
        return max(self.end - self.reservation.first, 0)

    def check(self) -> None:
        """Raises PRECONDITION_FAILED if the group does not hold all the messages to be settled."""
        reservation = self.reservation
        if reservation.queue.deleted or self.end <= reservation.settled:
            return
        where = f"of queue '{reservation.queue.name}' in vhost '{reservation.queue.vhost}'"
        if self.end > reservation.end:
            raise BrokerError(
                Condition.PRECONDITION_FAILED,
                f"group '{reservation.group}' holds messages {where} below {reservation.end}, "
                f"it cannot settle below {self.end}",
            )
        if self.end <= reservation.first or self._releases != reservation.releases:
            raise BrokerError(
                Condition.PRECONDITION_FAILED,
                f"messages {where} that group '{reservation.group}' was to settle below {self.end} have been released",
            )

    def operations(self, before: dict[Reservation, int]) -> list[tuple[Kind, Sequence[bytes]]]:
        """Return the operations to write. `before` says how far earlier settlements in the same record go."""
        reservation = self.reservation
        queue, begin = reservation.queue, before.get(reservation, reservation.first)
        if queue.deleted or not queue.durable or self.end <= begin:
            return []
        before[reservation] = self.end
        return [
            (Kind.SETTLE, [encode_settle(queue.ident, Outcome.ACCEPTED, reservation.ranges(begin, self.end))]),
            (Kind.RELEASED, [encode_released(queue.ident, reservation.group, self.end, self.end)]),
        ]

    def pledge(self, branch: int) -> None:
        """Note that the prepared transaction `branch` will do this settlement. Its messages cannot be released
        until then.
        """
        self.reservation.pledged[branch] = self.end

    def withdraw(self, branch: int) -> None:
        """Withdraw the pledge: the transaction is decided."""
        self.reservation.pledged.pop(branch, None)

    def apply(self, log: Log) -> None:
        """Remove the messages from the reservation, after the record is written."""
        reservation = self.reservation
        if reservation.queue.deleted or self.end <= reservation.first:
            return
        queue = reservation.queue
        queue.change()
        if queue.marks:
            for first, length in reservation.ranges(reservation.first, self.end):
                queue.unmark(range(first, first + length))
        for lsn, count in reservation.take_below(self.end):
            queue.counters.accepted += count
            log.release(lsn, count)
        reservation.settled = self.end
