"""A group's cursor over one stream: what is settled, who has a lease until when, and where new messages begin.

A message is settled, out, or neither. It is out from its first lease on; then the cursor knows the end of its lease,
its attempts, and the generation of its lease, which is 0 once the lease is over. Each change is recorded before it
takes effect. What retention drops from the stream is taken for settled, and is not recorded for the group.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.core.budget import DEAD_LETTERED, EXAMINED, HEADERS
from escrowmq.core.conditions import BrokerError
from escrowmq.core.groups.orders import AnyOrder, Lanes, Order
from escrowmq.core.groups.settled import Settled
from escrowmq.core.leftover import FREED, freed
from escrowmq.core.queues.availability import RETRY_MS
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.groups import (
    ProgressCause,
    SettledCause,
    encode_group_progress,
    encode_group_settled,
    encode_leased,
    leased_ranges,
    settled_ranges,
)
from escrowmq.core.records.kinds import Kind
from escrowmq.core.topology.exchanges.partitioned import KEY_HEADER

if TYPE_CHECKING:
    from escrowmq.core.deadlines import Deadline
    from escrowmq.core.groups.group import Group
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.queues.stream import StreamQueue

    Wants = Callable[[StreamQueue, Entry], bool]

PIECE: Final = 500
"""Messages that one call examines at most, and leases that one step ends."""
_FEW: Final = 64


class Out(NamedTuple):
    """A message that was leased: the end of its lease (milliseconds since the epoch), and how often it was leased."""

    due: int
    attempts: int
    generation: int


class Selection(NamedTuple):
    """Messages to lease, and positions that a filter has passed over."""

    taken: list[Entry]
    passed: list[int]


class Cursor:
    """The cursor of `group` over `stream`. `out` has the messages that were leased and are not settled."""

    __slots__ = (
        "_deadline",
        "_due",
        "_failed",
        "_known",
        "_order",
        "group",
        "next",
        "out",
        "settled",
        "stream",
        "waiters",
    )

    def __init__(self, group: Group, stream: StreamQueue) -> None:
        self.group = group
        self.stream = stream
        self.settled = Settled(stream.begin)
        self.out: dict[int, Out] = {}
        self.waiters: dict[object, None] = {}  # of the group, in order of arrival
        self._due: list[tuple[int, int, int]] = []  # heap: end of a lease or time of a retry, position, generation
        self._deadline: Deadline | None = None
        self.next = 1
        self._known = 1  # what was out before the order was made is before this position
        self._failed: list[int] = []  # heap: messages that were given back before all of that was found
        self._order: Order = AnyOrder()
        self.begin()

    def begin(self) -> None:
        """Build everything that follows from `settled` and `out`, as after a restart."""
        self._order = Lanes() if self.group.options.fifo else AnyOrder()
        self.next = self.settled.floor
        self._failed.clear()
        self._known = max(self.out, default=0) + 1
        self._due = [(out.due, position, out.generation) for position, out in self.out.items()]
        heapq.heapify(self._due)
        self._arm()

    # -- leasing

    @property
    def available(self) -> bool:
        """Whether a lease may find a message now."""
        return self._order.ready or (self._has_room and self._first_new() < self.stream.end)

    @property
    def floor(self) -> int:
        """The first position that is neither settled nor dropped."""
        settled, begin = self.settled, self.stream.begin
        if begin > settled.floor:
            settled.raise_to(begin)
        return settled.floor

    @property
    def _has_room(self) -> bool:
        return self.next < self._known or max(len(self.out), len(self._order)) < self.group.limits.outstanding

    def _first_new(self) -> int:
        return self.settled.first_open(max(self.next, self.floor))

    def select(self, most: int, wants: Wants | None) -> Selection:
        """Return at most `most` messages that can be leased now, which the caller leases. Raises UNAVAILABLE if the log
        cannot be read, unless some messages were found before.
        """
        if self._due and self._due[0][0] <= self.group.host.now:
            self.end_leases()
        passed: list[int] = []
        found: dict[int, Entry] = {}
        positions = self._order.take(most)
        try:
            self._find(most, wants, positions, found, passed)
        except BrokerError:
            if not positions and not passed:
                raise
        return self._load(positions, wants, found, passed)

    def _find(
        self, most: int, wants: Wants | None, positions: list[int], found: dict[int, Entry], passed: list[int]
    ) -> None:
        """Add positions of new messages until there are `most`, or enough have been examined."""
        left = PIECE
        while len(positions) < most and left > 0:
            wanted, before = most - len(positions), len(found)
            while left > 0 and len(found) - before < wanted:
                examined = self._scan(min(wanted, left), wants, found, passed)
                if not examined:
                    left = 0
                left -= examined
            positions += self._order.take(wanted)

    def _load(self, positions: list[int], wants: Wants | None, found: dict[int, Entry], passed: list[int]) -> Selection:
        """Return the messages at `positions`, of which some were found already. If the log cannot be read, the others
        wait again; raises UNAVAILABLE if there is nothing else.
        """
        taken: list[Entry] = []
        for i, position in enumerate(positions):
            try:
                entry = found.get(position) or self._read(position)
            except BrokerError:
                for other in positions[i:]:
                    self._order.give_back(other)
                if not taken and not passed:
                    raise
                break
            if entry is None:
                self._forget(position)
            elif position not in found and wants is not None and not wants(self.stream, entry):
                passed.append(position)
            else:
                taken.append(entry)
        return Selection(taken, passed)

    def _read(self, position: int) -> Entry | None:
        """Return the message at a position, or None if it has been dropped or is settled."""
        if position < self.settled.floor:
            return None
        entries = self.stream.read(position, 1)
        return entries[0] if entries and entries[0].position == position else None

    def _scan(self, most: int, wants: Wants | None, found: dict[int, Entry], passed: list[int]) -> int:
        """Add new messages to the order: about `most`, or fewer if a filter passes over many. Return the number of
        messages that were examined, 0 if there is none.
        """
        position = self._first_new()
        if position >= self.stream.end or not self._has_room:
            return 0
        examined = new = 0
        for entry in self.stream.read(position, most if wants is None else PIECE):
            examined += 1
            position = entry.position
            out = self.out.get(position)
            if position in self.settled:
                continue
            if out is not None:  # leased before the broker was restarted
                self._order.restore(position, self._key(entry), leased=out.generation != 0)
            elif wants is not None and not wants(self.stream, entry):
                passed.append(position)
            else:
                self._order.add(position, self._key(entry))
                found[position] = entry
                new += 1
                if new >= most:
                    break
        self.next = position + 1
        self.group.host.budget.left -= examined if wants is None else EXAMINED * examined
        return examined

    def _key(self, entry: Entry) -> str | None:
        if not self.group.options.fifo:
            return None
        envelope = entry.run.envelope
        form = self.group.host.formats.get(envelope.protocol)
        if form is None:
            return None
        self.group.host.budget.left -= HEADERS
        key = form.headers(envelope, entry.content).get(KEY_HEADER)
        return key if isinstance(key, str) else None

    def lease(self, selection: Selection, generation: int, due: int) -> list[int]:
        """Record a selection and apply it. Return how often each message has been leased, this time included."""
        if selection.passed:
            self.settle(dict.fromkeys(selection.passed, 0), SettledCause.PASSED)
        attempts = {}
        for entry in selection.taken:
            out = self.out.get(entry.position)
            attempts[entry.position] = 1 if out is None else out.attempts + 1
        if attempts:
            self.set_out(attempts, generation, due)
        return list(attempts.values())

    def set_out(self, attempts: dict[int, int], generation: int, due: int) -> None:
        """Record leases, by position, and apply them."""
        ranges = leased_ranges(attempts)
        record = encode_leased(self.group.number, self.stream.ident, generation, due, ranges)
        self.group.host.log.append(Kind.GROUP_LEASED, record)
        self.group.changed(self)
        for position, count in attempts.items():
            self.out[position] = Out(due, count, generation)
            heapq.heappush(self._due, (due, position, generation))
        if len(self._due) > _FEW and len(self._due) > 2 * len(self.out):
            self._due = [item for item in self._due if item[1] in self.out and self.out[item[1]].generation == item[2]]
            heapq.heapify(self._due)
        self._arm()

    # -- leases that end

    def valid(self, position: int, generation: int) -> bool:
        """Return whether a lease is the present one of its message, has not run out, and is not behind a
        message of the same lane that was given back.
        """
        out = self.out.get(position)
        return (
            out is not None
            and out.generation == generation != 0
            and out.due > self.group.host.now
            and not (self._failed and position > self._failed[0])
        )

    def settle(self, generations: dict[int, int], cause: SettledCause) -> None:
        """Record that messages are settled, each by the lease of this generation, and apply it."""
        settling = Settling(self, generations, cause)
        for kind, parts in settling.operations():
            self.group.host.log.append(kind, *parts)
        settling.apply(0, 0)

    def settled_now(self, ranges: Iterable[tuple[int, int]], positions: Iterable[int]) -> None:
        """Apply a record of settled messages."""
        self.group.changed(self)
        self.settled.add_all(ranges)
        for position in positions:
            self._forget(position)
        self.wake()

    def _forget(self, position: int) -> None:
        self.out.pop(position, None)
        self._order.settle(position)

    def change(self, position: int, generation: int, due: int, *, failed: bool) -> None:
        """Replace a valid lease by another one. With `failed`, the member has given the message back, so nothing of its
        lane that is behind it may be handled before it is leased again.
        """
        if failed:
            found = self._find_piece()
            heapq.heappush(self._failed, position)
            if found:
                self._revoke_failed()
        self.set_out({position: self.out[position].attempts}, generation, due)

    def _find_piece(self) -> bool:
        """Do a piece of letting the order know every message that was out before it was made, for example before a
        restart. Return True at the end. Raises UNAVAILABLE if the log cannot be read.

        Until then, no lease behind a message that was given back is valid, because both may belong to one lane.
        """
        left = PIECE
        while self.group.options.fifo and self.next < self._known and left > 0:
            examined = self._scan(left, None, {}, [])  # those of one run
            if not examined:
                return True
            left -= examined
        return not self.group.options.fifo or self.next >= self._known

    def _revoke_failed(self) -> None:
        failed, self._failed = self._failed, []
        for position in failed:
            self._revoke(position)

    def _revoke(self, position: int) -> None:
        revoked = self._order.revoke_after(position)
        if revoked:
            self.set_out({other: self.out[other].attempts for other in sorted(revoked)}, 0, self.group.host.now)

    def end_leases(self) -> None:
        """End the leases that have run out. Messages that have had all their attempts are dead-lettered."""
        now, left = self.group.host.now, PIECE
        try:
            found = self._find_piece()
        except BrokerError:
            self._arm(now + RETRY_MS)
            return
        if not found:
            self._arm(now + 1)
            return
        if self._failed:
            self._revoke_failed()
        exhausted: list[int] = []
        self.settled.raise_to(self.stream.begin)
        while self._due and self._due[0][0] <= now and left > 0:
            left -= 1
            _, position, generation = heapq.heappop(self._due)
            out = self.out.get(position)
            if out is None or out.generation != generation:
                continue
            if position < self.settled.floor:
                self._forget(position)
            elif out.attempts >= self.group.options.max_attempts and self.group.dead_letter_streams(self.stream):
                exhausted.append(position)
                left -= DEAD_LETTERED
            else:
                self.out[position] = out._replace(generation=0)
                self._revoke(position)
                self._order.give_back(position)
        self.group.host.requests.left -= PIECE - left
        if exhausted:
            self._dead_letter(exhausted)
        self._arm(now + 1 if left <= 0 else 0)  # a later turn ends the others
        self.wake()

    def _dead_letter(self, positions: Sequence[int]) -> None:
        """Dead-letter messages whose leases have run out. If the log cannot be read, try again after `RETRY_MS`; nobody
        leases them meanwhile.
        """
        for position in positions:
            try:
                self.group.bury(self, position, Outcome.DELIVERY_LIMIT)
            except BrokerError:
                self._order.hold(position)
                heapq.heappush(self._due, (self.group.host.now + RETRY_MS, position, self.out[position].generation))

    def _arm(self, not_before: int = 0) -> None:
        """Set a deadline for the lease that ends first, or for the next piece of `_find_piece`."""
        if not self._due:
            return
        first = self._due[0][0] if not self._failed else self.group.host.now + 1
        at, deadline = max(first, not_before), self._deadline
        if deadline is not None and deadline.action is not None:
            if deadline.at <= at:
                return
            deadline.cancel()
        self._deadline = self.group.host.deadlines.set(at, self.end_leases)

    # -- progress at once

    def record_progress(self, cause: ProgressCause) -> None:
        """Record the floor."""
        record = encode_group_progress(self.group.number, self.stream.ident, cause, self.settled.floor)
        self.group.host.log.append(Kind.GROUP_PROGRESS, record)
        self.group.changed(self)

    def reset(self, floor: int) -> None:
        """Set the floor. Every message from there on is new to the group, and no lease counts any more."""
        self.settled = Settled(floor)
        self.record_progress(ProgressCause.RESET)
        self.out.clear()
        self.begin()
        self.wake()

    # -- waiting

    def wake(self) -> None:
        """See to it that waiting members are called: in this turn if there is something for them, else as soon as a
        message arrives or a lease runs out.
        """
        if self.waiters:
            self.stream.watch(0 if self.available else max(self._first_new(), self.stream.end), self)

    def ready(self) -> None:
        """Call waiting members in order of arrival, as long as there is something to lease."""
        budget = self.group.host.budget
        left = len(self.waiters)
        while left and self.waiters and budget.left > 0 and (self.stream.deleted or self.available):
            left -= 1
            self.group.call(next(iter(self.waiters)))
        if not self.stream.deleted:
            self.wake()

    def end(self) -> None:
        """Forget the deadline and the stream's call. The memory of many leases is freed in later turns."""
        if self._deadline is not None:
            self._deadline.cancel()
        self.stream.unwatch(self)
        if len(self.out) > PIECE:
            self.group.host.left_over.add(_freed(self.out))
            self.group.host.left_over.add(freed(self._due))
            self.out, self._due = {}, []


def _freed(out: dict[int, Out]) -> Iterator[None]:
    while out:
        for _ in range(min(FREED, len(out))):
            out.popitem()
        yield


class Settling:
    """The settlement of messages for a group, as a part of a decision, too."""

    __slots__ = ("_cause", "_cursor", "_generations", "_ranges")

    def __init__(self, cursor: Cursor, generations: dict[int, int], cause: SettledCause) -> None:
        """`generations` are those of the leases, by position."""
        self._cursor = cursor
        self._generations = generations
        self._cause = cause
        self._ranges = settled_ranges(generations)

    def operations(self) -> list[tuple[Kind, Sequence[bytes]]]:
        """Return the operation to write."""
        cursor = self._cursor
        floor = cursor.settled.would_be([(first, length) for first, length, _ in self._ranges])
        record = encode_group_settled(cursor.group.number, cursor.stream.ident, self._cause, floor, self._ranges)
        return [(Kind.GROUP_SETTLED, [record])]

    def apply(self, end: int, synced: int) -> None:
        """Apply the record."""
        self._cursor.settled_now([(first, length) for first, length, _ in self._ranges], self._generations)

    @property
    def bytes(self) -> int:
        """The size of the record."""
        return 32 + 20 * len(self._ranges)
