"""A consumer group: its cursors, the operations of its members, and the members that wait (GRP-1 to GRP-6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from escrowmq.core.branches.decision import Decision
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.groups.cursor import Cursor, Settling
from escrowmq.core.groups.options import GroupLimits, GroupOptions, Handle
from escrowmq.core.messages.keys import with_own_keys
from escrowmq.core.queues.deaths import dead_envelope
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.groups import SettledCause, encode_locked
from escrowmq.core.records.kinds import Kind
from escrowmq.core.topology.exchanges.partitioned import PartitionedExchange

if TYPE_CHECKING:
    from escrowmq.core.access.holdings import Holdings
    from escrowmq.core.engine import Engine
    from escrowmq.core.groups.cursor import Wants
    from escrowmq.core.groups.settled import Settled
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.ports import Random
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.queues.stream import StreamQueue

MOST_LEASED: Final = 1000
"""Messages that one call leases at most."""
_CALL: Final = 2
_OUT_BYTES: Final = 320  # the memory of a message that is out


class Waiter(Protocol):
    """A member that waits for messages."""

    def ready(self) -> None:
        """Note that there may be something to lease. The member does not wait any more; it should lease now, and wait
        again if it gets nothing. It must not wait again without trying.
        """
        ...


class Lease(NamedTuple):
    """A message that a member has until its lease runs out. `attempts` counts this lease, too."""

    stream: StreamQueue
    entry: Entry
    attempts: int
    handle: Handle


class Leased(NamedTuple):
    """The leases of one call. The log must be synced up to `lsn` before they are answered (0: no wait)."""

    leases: list[Lease]
    lsn: int = 0


class Acknowledgement(NamedTuple):
    """The result of settling by handles: the LSN for the answer, and the handles that were refused as stale."""

    lsn: int
    stale: list[Handle]


class Lock(NamedTuple):
    """The member that consumes a stream alone, until a time in milliseconds since the epoch."""

    owner: str
    until: int


class Group:
    """A consumer group of a virtual host. `number` is its name in the log, `user` its owner."""

    __slots__ = (
        "_advanced",
        "_changes",
        "_followers",
        "_generations",
        "_holding",
        "_turn",
        "_waiting",
        "cursors",
        "deleted",
        "host",
        "limits",
        "locks",
        "name",
        "number",
        "options",
        "user",
        "vhost",
    )

    def __init__(
        self,
        common: Common,
        vhost: str,
        name: str,
        number: int,
        options: GroupOptions,
        user: str,
    ) -> None:
        self.host = common.engine
        self.vhost = vhost
        self.name = name
        self.number = number
        self.options = options
        self.user = user
        self.limits = common.limits
        self.deleted = False
        self.cursors: dict[int, Cursor] = {}  # by id of the stream
        self.locks: dict[int, Lock] = {}  # by id of the stream
        self._generations = common.generations
        self._advanced = common.advanced
        self._changes = common.changes
        self._followers = common.followers
        self._holding = common.holdings.begin(user, vhost)
        self._waiting: dict[object, tuple[Waiter, list[Cursor]]] = {}
        self._turn = 0

    def __repr__(self) -> str:
        return f"<Group {self.vhost}:{self.name}>"

    def cursor(self, stream: StreamQueue) -> Cursor:
        """Return the cursor over a stream. A new one begins with the oldest message."""
        cursor = self.cursors.get(stream.ident)
        if cursor is None:
            cursor = self.cursors[stream.ident] = Cursor(self, stream)
            self.changed(cursor)
            self._follow(stream)
        return cursor

    def changed(self, what: Group | Cursor) -> None:
        """Note that the group or one of its cursors has changed, or has begun or ended."""
        if self._changes.seen is not None:
            self._changes.seen[what] = None

    def _follow(self, stream: Queue) -> None:
        self._followers.setdefault(stream.ident, {})[self] = None

    @property
    def outstanding(self) -> int:
        """The number of messages that were leased and are not settled."""
        return sum([len(cursor.out) for cursor in self.cursors.values()])

    # -- leases

    def lease(self, streams: Sequence[StreamQueue], most: int, invisible_ms: int, wants: Wants | None = None) -> Leased:
        """Lease at most `most` messages of `streams` for `invisible_ms` milliseconds.

        `wants` is the filter of the member; what it passes over is settled for the group (GRP-6). The result may be
        empty although there are messages, if a filter has passed over many, or other messages are ahead of them. Each
        call begins with another stream. Raises UNAVAILABLE if the log cannot be read and nothing was found in other
        streams, and LIMIT_EXCEEDED if the owner of the group holds too much memory.
        """
        most = min(most, MOST_LEASED)
        self._holding.grow(_OUT_BYTES * (self.outstanding + most), f"leases of consumer group '{self.name}'")
        generation = self._generations.next()
        due = self.host.now + max(0, min(invisible_ms, self.limits.lease_ms))
        leases: list[Lease] = []
        changed = False
        unreadable: BrokerError | None = None
        start, self._turn = self._turn, self._turn + 1
        for i in range(len(streams)):
            if len(leases) >= most:
                break
            stream = streams[(start + i) % len(streams)]
            if stream.deleted:
                continue
            cursor = self.cursor(stream)
            try:
                selection = cursor.select(most - len(leases), wants)
            except BrokerError as error:
                unreadable = error
                continue
            if not selection.taken and not selection.passed:
                continue
            changed = True
            counts = cursor.lease(selection, generation, due)
            stream.change()
            stream.counters.delivered += len(counts)
            stream.counters.redelivered += sum([attempts > 1 for attempts in counts])
            for entry, attempts in zip(selection.taken, counts, strict=True):
                handle = Handle(self.number, stream.ident, entry.position, generation)
                leases.append(Lease(stream, entry, attempts, handle))
        if unreadable is not None and not changed:
            raise unreadable
        self._measure()
        return Leased(leases, self.host.log.end_lsn if changed else 0)

    def settle(self, handles: Sequence[Handle]) -> Acknowledgement:
        """Settle the messages of `handles`. Stale handles are refused, and settle nothing (GRP-2)."""
        by_cursor: dict[Cursor, dict[int, int]] = {}
        stale: list[Handle] = []
        for handle in handles:
            cursor = self._valid(handle)
            if cursor is None:
                stale.append(handle)
            else:
                by_cursor.setdefault(cursor, {})[handle.position] = handle.generation
        for cursor, generations in by_cursor.items():
            cursor.settle(generations, SettledCause.HANDLED)
            cursor.stream.change()
            cursor.stream.counters.accepted += len(generations)
        self._measure()
        return Acknowledgement(self.host.log.end_lsn if by_cursor else 0, stale)

    def change(self, handle: Handle, invisible_ms: int) -> tuple[Handle, int]:
        """Let the lease end `invisible_ms` milliseconds from now. Return the new handle, and the LSN for the answer.
        The old handle is stale. Raises NOT_FOUND for a stale handle.
        """
        return self._change(handle, invisible_ms, failed=False)

    def give_back(self, handle: Handle, delay_ms: int | None = None) -> tuple[Handle, int]:
        """Note that a member could not handle a message. It is offered again after `delay_ms` milliseconds (default:
        the group's back-off), and in a FIFO group no later one of its key before it. Otherwise as `change`.
        """
        if delay_ms is None:
            delay_ms = self.options.back_off(self._needed(handle).out[handle.position].attempts)
        return self._change(handle, delay_ms, failed=True)

    def _change(self, handle: Handle, ms: int, *, failed: bool) -> tuple[Handle, int]:
        cursor = self._needed(handle)
        generation = self._generations.next()
        due = self.host.now + max(0, min(ms, self.limits.lease_ms))
        cursor.change(handle.position, generation, due, failed=failed)
        return handle._replace(generation=generation), self.host.log.end_lsn

    def dead_letter(self, handle: Handle) -> int:
        """Move a message to the group's dead-letter topic, in one step with the group's progress (GRP-4). Return the
        LSN for the answer. Raises NOT_FOUND for a stale handle, PRECONDITION_FAILED if the group has no such topic.
        """
        cursor = self._needed(handle)
        if not self.dead_letter_streams(cursor.stream):
            raise BrokerError(
                Condition.PRECONDITION_FAILED,
                f"consumer group '{self.name}' in vhost '{self.vhost}' has no dead-letter topic",
            )
        return self.bury(cursor, handle.position, Outcome.REJECTED)

    def _valid(self, handle: Handle) -> Cursor | None:
        cursor = self.cursors.get(handle.stream) if handle.group == self.number and not self.deleted else None
        return cursor if cursor is not None and cursor.valid(handle.position, handle.generation) else None

    def _needed(self, handle: Handle) -> Cursor:
        cursor = self._valid(handle)
        if cursor is None:
            raise BrokerError(
                Condition.NOT_FOUND,
                f"stale handle for position {handle.position} in consumer group '{self.name}' in vhost "
                f"'{self.vhost}': its lease has run out, or was replaced or settled",
            )
        return cursor

    # -- dead letters

    def dead_letter_streams(self, stream: StreamQueue) -> Sequence[Queue]:
        """Return the streams of the dead-letter topic for messages of a stream. There is none without such a topic."""
        exchange = self.host.vhost_of(stream).exchanges.get(self.options.dead_letter_topic)
        return exchange.streams if isinstance(exchange, PartitionedExchange) else ()

    def bury(self, cursor: Cursor, position: int, outcome: Outcome) -> int:
        """Move a message that is out to the dead-letter topic, in one record with its settlement. Return the LSN for
        the answer. Raises UNAVAILABLE if it cannot be read.
        """
        decision = Decision(self.host)
        entries = [entry for entry in cursor.stream.read(position, 1) if entry.position == position]
        streams = self.dead_letter_streams(cursor.stream)
        for envelope, content in with_own_keys(self.host.formats, entries):
            dead = dead_envelope(
                envelope, cursor.stream, outcome, self.host.now, exchange=self.options.dead_letter_topic
            )
            decision.place(dead, [content], (streams[position % len(streams)],))
        decision.record(Settling(cursor, {position: cursor.out[position].generation}, SettledCause.DEAD))
        lsn = decision.apply()
        counts = cursor.stream.counters.dead_lettered
        counts[outcome] = counts.get(outcome, 0) + len(entries)
        return lsn

    # -- members that keep their own position

    def send_back(
        self,
        stream: StreamQueue,
        position: int,
        envelope: Envelope,
        content: bytes,
        queues: Sequence[Queue],
        cause: SettledCause = SettledCause.RETRIED,
    ) -> int:
        """Publish a message that a member could not handle to `queues` again, and settle it for the group, in one
        record (GRP-4). Return the LSN for the answer.

        A message that is settled by itself is not published again, as the member repeats its request. One before the
        progress is published again: the member had counted it as handled.
        """
        cursor = self.cursor(stream)
        is_behind = position < cursor.floor
        if not is_behind and position in cursor.settled:
            return self.host.log.end_lsn
        decision = Decision(self.host)
        decision.place(envelope, [content], queues)
        if not is_behind:
            out = cursor.out.get(position)
            decision.record(Settling(cursor, {position: 0 if out is None else out.generation}, cause))
        lsn = decision.apply()
        self._measure()
        return lsn

    def settled_beyond(self, stream: StreamQueue) -> Settled | None:
        """Return the settled positions if there are some beyond the progress."""
        cursor = self.cursors.get(stream.ident)
        return None if cursor is None or cursor.settled.end == cursor.settled.floor else cursor.settled

    def progress(self, stream: StreamQueue) -> int | None:
        """Return the position before which everything is settled; None if the group has never consumed the stream."""
        cursor = self.cursors.get(stream.ident)
        return None if cursor is None else cursor.floor

    def advance(self, stream: StreamQueue, position: int) -> int:
        """Note that a member has handled everything before `position`, and return the progress. It never goes back
        (GRP-5), and not beyond the end of the stream. It is recorded at the end of the turn.
        """
        cursor = self.cursors.get(stream.ident)
        if cursor is None:
            cursor = self.cursor(stream)
            self._advanced[cursor] = None
        position = min(position, stream.end)
        if position > cursor.settled.floor:
            cursor.settled.raise_to(position)
            self._advanced[cursor] = None
        return cursor.settled.floor

    def reset(self, stream: StreamQueue, position: int) -> int:
        """Set the progress, as an operator. All leases of the stream end. Return the LSN for the answer."""
        cursor = self.cursor(stream)
        self._advanced.pop(cursor, None)
        cursor.reset(min(max(position, stream.begin), stream.end))
        self._measure()
        return self.host.log.end_lsn

    def lock(self, stream: StreamQueue, owner: str, until: int) -> bool:
        """Let `owner` consume a stream alone until a time (milliseconds since the epoch), or prolong that. Return False
        if another member has the lock.
        """
        lock = self.locks.get(stream.ident)
        if lock is not None and lock.owner != owner and lock.until > self.host.now:
            return False
        self._set_lock(stream, Lock(owner, min(until, self.host.now + self.limits.lease_ms)))
        return True

    def unlock(self, stream: StreamQueue, owner: str) -> bool:
        """End the lock of `owner`. Return False if it does not have the lock."""
        lock = self.locks.get(stream.ident)
        if lock is None or lock.owner != owner:
            return False
        self._set_lock(stream, Lock(owner, 0))
        return True

    def _set_lock(self, stream: StreamQueue, lock: Lock) -> None:
        self.host.log.append(Kind.GROUP_LOCKED, encode_locked(self.number, stream.ident, lock.until, lock.owner))
        if lock.until:
            self.restore_lock(stream, lock)
        else:
            del self.locks[stream.ident]
            self.changed(self)

    def restore_lock(self, stream: Queue, lock: Lock) -> None:
        """Apply a lock that is in the log."""
        self.locks[stream.ident] = lock
        self.changed(self)
        self._follow(stream)

    # -- waiting

    def wait(self, streams: Sequence[StreamQueue], waiter: Waiter) -> None:
        """Call `waiter.ready` once, in a turn, when there may be something to lease in one of `streams`, or when one of
        them or the group is deleted. Waiting members are called in order of arrival.
        """
        self.stop_waiting(waiter)
        cursors = [self.cursor(stream) for stream in streams if not stream.deleted]
        self._waiting[waiter] = waiter, cursors
        for cursor in cursors:
            cursor.waiters[waiter] = None
            cursor.wake()

    def stop_waiting(self, waiter: Waiter) -> None:
        """Forget a waiting member."""
        found = self._waiting.pop(waiter, None)
        if found is not None:
            for cursor in found[1]:
                cursor.waiters.pop(waiter, None)

    def call(self, key: object) -> None:
        """Call a waiting member, which does not wait any more."""
        waiter, _ = self._waiting[key]
        self.stop_waiting(waiter)
        self.host.budget.left -= _CALL
        waiter.ready()

    # -- the end

    def forget_stream(self, stream: Queue) -> None:
        """Forget the cursor over a stream that is to be deleted. Members that wait for it are called."""
        if self.locks.pop(stream.ident, None) is not None:
            self.changed(self)
        cursor = self.cursors.pop(stream.ident, None)
        if cursor is not None:
            self._end_cursor(cursor)

    def end(self) -> None:
        """Note that the group is deleted."""
        self.deleted = True
        self.changed(self)
        for ident in self.cursors.keys() | self.locks.keys():
            self._followers.get(ident, {}).pop(self, None)
        cursors, self.cursors = list(self.cursors.values()), {}
        for cursor in cursors:
            self._end_cursor(cursor)
        self._holding.close()

    def _end_cursor(self, cursor: Cursor) -> None:
        cursor.end()
        self.changed(cursor)
        self._advanced.pop(cursor, None)
        for waiter in list(cursor.waiters):
            if waiter in self._waiting:
                self.call(waiter)

    def _measure(self) -> None:
        self._holding.follow(_OUT_BYTES * self.outstanding)


class Changes:
    """The groups and cursors that have changed since a snapshot asked last; None while none is made."""

    __slots__ = ("seen",)

    def __init__(self) -> None:
        self.seen: dict[Group | Cursor, None] | None = None


@dataclass(slots=True)
class Common:
    """The parts that all groups share. `advanced` has the cursors whose progress the end of the turn records,
    `followers` the groups that have a cursor or a lock, by id of the stream.
    """

    engine: Engine
    limits: GroupLimits
    holdings: Holdings
    generations: Generations
    advanced: dict[Cursor, None] = field(default_factory=dict)
    followers: dict[int, dict[Group, None]] = field(default_factory=dict)
    changes: Changes = field(default_factory=Changes)


class Generations:
    """Numbers of leases. None is used twice, also after a crash, since each run of the broker has its own prefix."""

    __slots__ = ("_last", "_random")

    def __init__(self, random: Random) -> None:
        """`random` makes the prefix."""
        self._random = random
        self._last = 0

    def next(self) -> int:
        """Return the next number. It fits into 63 bits."""
        if not self._last:
            self._last = int.from_bytes(self._random.randbytes(4), "big") >> 1 << 32
        self._last += 1
        return self._last
