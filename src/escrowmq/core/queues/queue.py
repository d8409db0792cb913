"""A queue: its entries by position, its consumers, and its limits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.counters import QueueCounters
from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.messages.marks import MarkTable
from escrowmq.core.queues.browsing import show
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.discipline import Discipline
from escrowmq.core.queues.lifetime import Lifetime
from escrowmq.core.queues.measuring import measuring
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.queues.priority import discipline_of
from escrowmq.core.queues.room import drop_over_limit, has_room
from escrowmq.core.queues.rotation import Consumers
from escrowmq.core.queues.selection import finished, return_to_sight, serve
from escrowmq.core.queues.serving import end_drains, serve_in_turn
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.queue_state import encode_delivered
from escrowmq.core.records.references import Reference
from escrowmq.core.records.unreadable import LogUnreadable
from escrowmq.core.topology.arguments.queue import QueueOptions
from escrowmq.core.topology.equivalence import locked_text
from escrowmq.core.watch import note_in

if TYPE_CHECKING:
    from escrowmq.core.policies.merging import Effective
    from escrowmq.core.queues.admission import MessageFilter
    from escrowmq.core.queues.fifo import Place
    from escrowmq.core.queues.host import Host
    from escrowmq.core.queues.sealed import SealedRuns
    from escrowmq.core.reservations.reservation import Part, Reservation

_DELIVERED: Final = Kind.DELIVERED  # found sooner than a member of an enumeration


class Session:
    """A client's connection, or its session in AMQP 0-10, as the owner of exclusive queues."""

    __slots__ = ("exclusive", "label")

    def __init__(self, label: str) -> None:
        self.label = label
        self.exclusive: dict[Queue, None] = {}


class Queue:
    """Entries in order. Each new entry gets the next position; positions are never reused.

    `logged` is true once the log holds anything of the queue. `unsynced` holds the runs whose commit is not on disk
    yet, and the runs that arrived after them. They stay invisible until the commit is on disk (TX-2, TX-8). `fault` is
    the reason why the queue is unavailable (`availability.py`), or empty.
    """

    __slots__ = (
        "__weakref__",
        "_delete",
        "_drop",
        "_getter",
        "_host",
        "admits",
        "arguments",
        "auto_delete",
        "browsers",
        "bytes",
        "consumers",
        "counters",
        "declared",
        "deleted",
        "delivered_below",
        "delivered_recorded",
        "durable",
        "effective",
        "exclusive",
        "fault",
        "had_consumer",
        "ident",
        "lifetime",
        "limited",
        "locked",
        "logged",
        "marks",
        "name",
        "next_position",
        "options",
        "order",
        "owner",
        "persists_all",
        "producers",
        "refuses",
        "reservations",
        "restored_below",
        "retimed_below",
        "returning",
        "ttl_possible",
        "unmeasured_below",
        "unread",
        "unsettled",
        "unsynced",
        "vhost",
        "watched",
    )

    is_stream = False  # a stream keeps its entries when they are settled

    def __init__(
        self,
        host: Host,
        delete_queue: Callable[[Queue], int],
        ident: int,
        vhost: str,
        name: str,
        options: QueueOptions,
        *,
        durable: bool = False,
        auto_delete: bool = False,
        arguments: dict[str, Any] | None = None,
        owner: Session | None = None,
        exclusive: bool = False,
    ) -> None:
        self._host = host
        self._delete = delete_queue
        self.ident = ident
        self.vhost = vhost
        self.name = name
        self.options = self.declared = options  # policies change the former
        self.effective: Effective | None = None  # what policies say about it
        self.exclusive = exclusive
        self.durable = durable and not exclusive  # EXC-3
        self.persists_all = options.queue_type != "classic"  # as RabbitMQ's quorum queues and streams do
        self.auto_delete = auto_delete
        self.arguments = arguments or {}
        self.admits: MessageFilter | None = None
        """Whether the queue takes a message that an exchange routes to it; None if it takes every one."""
        self.owner = owner
        self.consumers = Consumers(single=options.single_active_consumer)
        self.browsers: Consumers | None = None  # consumers that see the messages without taking them
        self.unread: Place | None = None  # where a consumer that selects messages could not read
        self._getter: ref[Consumer] | None = None
        self.next_position = 1
        self.counters = QueueCounters()
        self.unsettled = 0
        self.producers = 0  # links that publish to it by its name
        self.bytes = 0
        self.logged = False
        self.fault = ""
        self.marks = MarkTable()  # by position, for the few messages that have any
        self.deleted = False
        self.returning = 0  # lists of deliveries that are on their way back: nothing may overtake them
        self.watched = False  # somebody wants to know of the next change (`core.watch`)
        self.had_consumer = False
        self.unsynced: deque[tuple[int, Run | SealedRuns, Sequence[bytes]]] = deque()
        self.delivered_below = 0
        self.delivered_recorded = 0
        self.restored_below = 0  # recovered messages below this position have not been checked for a TTL
        self.reservations: dict[str, Reservation] = {}
        self.locked: list[Part] = []  # messages that recovery found unsettled at termini, or unreadable in branches
        self.retimed_below = 0  # messages below this position arrived before the queue's TTL was changed
        self.unmeasured_below = 0  # `bytes` leaves out the messages below this position, which are being measured
        self.ttl_possible = options.message_ttl is not None
        self._limit()
        self.order = self._discipline()
        self.lifetime = Lifetime(self, host)

    def _limit(self) -> None:
        options = self.options
        self.limited = options.max_length is not None or options.max_length_bytes is not None
        self._drop = self.limited and options.overflow == "drop-head"
        self.refuses = self.limited and not self._drop

    def adopt(self, options: QueueOptions) -> None:
        """Follow other options from now on, because policies changed. What exceeds new limits leaves at the end of this
        turn, or in later ones.
        """
        former, self.options = self.options, options
        self._limit()
        if options.message_ttl != former.message_ttl:
            self.ttl_possible = True
            self.retimed_below = self.next_position
            self.lifetime.arm()
        if options.expires != former.expires:
            self.lifetime.renew()
        if options.max_length_bytes is not None and former.max_length_bytes is None:
            self.measure_again()
        if self._drop:
            self._host.dirty[self] = None

    def measure_again(self) -> None:
        """Count the bytes of the messages anew, in pieces."""
        self.bytes = 0
        self.unmeasured_below = self.visible_end if len(self.order) else 0
        if self.unmeasured_below:
            self._host.left_over.begin(measuring(self, self._host))

    def size_of(self, entries: Iterable[Entry]) -> int:
        """Return the bytes of entries as far as `bytes` counts them."""
        below = self.unmeasured_below
        if below:
            return sum([len(entry.content) for entry in entries if entry.position >= below])
        return sum([len(entry.content) for entry in entries])

    def retime(self, entries: Iterable[Entry]) -> None:
        """Let messages that arrived before the queue's TTL was changed expire by the current one."""
        for entry in entries:
            if entry.position < self.retimed_below:
                entry.run.expires_at = self.expiry(entry.run.envelope, entry.run.time)

    def _discipline(self) -> Discipline:
        return discipline_of(self, self._host)

    def __repr__(self) -> str:
        return f"<Queue {self.vhost}:{self.name}>"

    @property
    def getter(self) -> Consumer:
        """Return the consumer of deliveries that no subscription has made. It exists only while it is referenced."""
        getter = self._getter() if self._getter is not None else None
        if getter is None:
            getter = Consumer(self, None)
            self._getter = ref(getter)
        return getter

    @property
    def ready(self) -> int:
        """Return the number of messages that wait for a consumer."""
        self.take_in()
        return len(self.order)

    def check_access(self, session: Session | None) -> None:
        """Raises RESOURCE_LOCKED if another owner has the queue (EXC-2)."""
        if self.owner is not None and self.owner is not session:
            raise BrokerError(
                Condition.RESOURCE_LOCKED,
                locked_text(self.vhost, self.name),
            )

    def change(self) -> None:
        """Note that the queue changes: its durable state, which a snapshot in progress then captures again, or anything
        else that lists show of it (`admin.queue_rows`).
        """
        if self.watched:
            self.watched = False
            note_in(self._host.watches, self)

    # -- arriving entries

    def expiry(self, envelope: Envelope, time: int) -> int:
        """Return when a message that arrived at `time` expires here, in milliseconds since the epoch; 0 is never."""
        ttl = self.options.message_ttl
        if envelope.ttl is not None:
            self.ttl_possible = True
            if ttl is None or envelope.ttl < ttl:
                ttl = envelope.ttl
        # A time in the future is from before the machine's time was set back.
        return 0 if ttl is None else max(min(time, self._host.now) + ttl, 1)

    def enqueue(self, run: Run, contents: Sequence[bytes], after: int = 0) -> None:
        """Give a run the next positions. With `after` it stays invisible until the log is synced up to that LSN."""
        if self.watched:
            self.change()
        run.first = self.next_position
        self.next_position += len(contents)
        if after or self.unsynced:
            self.unsynced.append((after, run, contents))
            return
        self._admit(run, contents)

    def enqueue_sealed(self, sealed: SealedRuns, after: int) -> None:
        """Do `enqueue` for the runs of a large commit. They stay invisible until they are ready, too."""
        self.change()
        self.next_position += sealed.count
        self.unsynced.append((after, sealed, ()))

    def keep_back(self, run: Run, contents: Sequence[bytes], after: int) -> None:
        """Do `enqueue` in few steps, for one of many queues. The run stays invisible until the next `unseal`."""
        if self.watched:
            self.change()
        run.first = self.next_position
        self.next_position += len(contents)
        self.unsynced.append((after, run, contents))

    def _admit_together(self, sealed: SealedRuns) -> None:
        for number, level in sealed.levels.items():
            self.order.admit(number, level)
        self.logged = self.logged or sealed.logged
        self._host.left_over.add(sealed.dismantle())
        if self.limited:
            self.bytes += sealed.size
        if self.ttl_possible:
            self.lifetime.arm()
        if self.consumers or self._drop:
            self._host.dirty[self] = None

    def _admit(self, run: Run, contents: Sequence[bytes]) -> None:
        if run.envelope.ttl is not None or self.ttl_possible:
            run.expires_at = self.expiry(run.envelope, run.time)
        self.order.append(run, contents)
        if run.lsn:  # the discipline may just have paged it out
            self.logged = True
        if self.limited:
            self.bytes += sum(map(len, contents))
        if self.ttl_possible:
            self.lifetime.arm()
        if self.consumers or self._drop or self.browsers:
            self._host.dirty[self] = None

    def unseal(self, synced: int) -> bool:
        """Make the runs visible whose commit is on disk. Return True if others are left."""
        unsynced = self.unsynced
        while unsynced and unsynced[0][0] <= synced:
            _, run, contents = unsynced[0]
            if isinstance(run, Run):
                self._admit(run, contents)
            elif run.ready:
                self._admit_together(run)
            else:
                break
            if self.watched:
                self.change()
            unsynced.popleft()
        return bool(unsynced)

    def take_in(self) -> None:
        """Make what is on disk visible, before a client asks for it."""
        if self.unsynced:
            self.unseal(self._host.log.synced_lsn)

    def accepts(self, count: int, size: int) -> bool:
        """Return whether a queue that refuses messages at its limit has room for `count` more, of `size` bytes
        together.
        """
        if has_room(self, self._host.promised.get(self), count, size):
            return True
        if not self.consumers:
            return False
        self.dispatch(whole=True)  # entries that a consumer can get now do not fill the queue
        return has_room(self, self._host.promised.get(self), count, size)

    # -- leaving entries

    def take(self, most: int) -> list[Entry]:
        """Remove and return at most `most` entries that have not expired. There are fewer, or none, if some had
        expired, or if the queue becomes unavailable.
        """
        if self.watched:
            self.change()
        try:
            entries = self.order.take(most)
        except LogUnreadable as error:
            self._host.unavailable.suspend(self, error)
            return []
        return self.left(entries) if self.limited or self.ttl_possible else entries

    def left(self, entries: list[Entry]) -> list[Entry]:
        """Note that `entries` were taken. Dead-letter those that have expired, and return the others."""
        if self.limited:
            self.bytes -= self.size_of(entries)
        if self.ttl_possible:
            if self.retimed_below:
                self.retime(entries)
            now = self._host.now
            # A message with a TTL of 0 lives for one turn, so it is dead when it returns after a delivery.
            dead = [entry for entry in entries if 0 < entry.run.expires_at < now + (entry.deliveries > 0)]
            if dead:
                entries = [entry for entry in entries if not 0 < entry.run.expires_at < now + (entry.deliveries > 0)]
                self._host.dead_letters.send(self, dead, Outcome.EXPIRED)
            self.lifetime.arm()
        return entries

    def head(self) -> Entry | None:
        """Return the next entry, or None if there is none or the queue is unavailable."""
        if self.fault:
            return None
        try:
            found = self.order.peek()
        except LogUnreadable as error:
            self._host.unavailable.suspend(self, error)
            return None
        if self.retimed_below and found is not None:
            self.retime((found,))
        return found

    def probe(self) -> None:
        """Read the next message, and where else reading failed. Raises LogUnreadable while that is impossible."""
        self.order.peek()
        if self.unread is not None:
            self.unread.level.scan(self.unread.position, self.next_position, 1)
            self.unread = None

    def resume(self) -> None:
        """End the unavailability of the queue: its messages can be read again."""
        self.change()
        self.fault = ""
        self._host.dirty[self] = None
        if self.ttl_possible:
            self.lifetime.arm()

    def wake(self, consumer: Consumer) -> None:
        """Put `consumer` back in line, since it may have credit again."""
        if consumer.attached:
            consumer.line.admit(consumer)
            self._host.dirty[self] = None

    def dispatch(self, *, whole: bool = False) -> None:
        """Deliver ready entries until none is left or no consumer can be served; then enforce the limits.

        Without `whole`, delivering also stops when the turn's budget is used up. The queue then stays dirty.
        """
        if self.fault:
            return
        self.take_in()
        if self.browsers and show(self, self.browsers, self._host):
            self._host.dirty[self] = None
        if not self.returning:
            waiting = self.consumers
            choosy = waiting.selective or waiting.idle or waiting.weighing or self.marks.excluding
            if not (serve if choosy else serve_in_turn)(self, self._host, whole=whole):
                self._host.dirty[self] = None
                return
        if self.consumers.draining:
            end_drains(self)
        if self._drop:
            drop_over_limit(self, self._host)

    def refresh(self) -> None:
        """Serve consumers and enforce limits before a client inspects or fetches entries, since this turn may have
        added some. Entries with a TTL of 0 that no consumer took expire here, too.
        """
        self.take_in()
        if self.limited or self.consumers:
            self.dispatch(whole=True)
        if self.ttl_possible:
            self.lifetime.expire_before(self._host.now + 1)

    def has_for(self, consumer: Consumer) -> bool:
        """Return whether an entry is ready that `consumer` could get."""
        if consumer.sight is not None and finished(self, consumer):
            return False
        if consumer.byte_credit is not None and (consumer.byte_credit.left <= 0 or consumer.byte_credit.halted):
            return False
        return len(self.order) > 0 and (not self.consumers.single or consumer is self.consumers.active)

    @property
    def visible_end(self) -> int:
        """Return the position after the last visible one."""
        return self.unsynced[0][1].first if self.unsynced else self.next_position

    def note_delivered(self, entries: list[Entry]) -> None:
        """Note that `entries` are delivered to a client and unsettled."""
        count, ordered = len(entries), not self.options.max_priority
        self.unsettled += count
        self.counters.delivered += count
        below = self.delivered_below
        if (entries[0] if ordered else min(entries)).position < below:
            self._count_redelivered(entries)
        last = entries[-1].position if ordered else max(entries).position
        if last >= below:
            self.delivered_below = last + 1

    def count_auto_settled(self, entries: list[Entry]) -> None:
        """Count deliveries that are settled at once."""
        if self.watched:
            self.change()
        self.counters.auto_settled += len(entries)
        if (min(entries) if self.options.max_priority else entries[0]).position < self.delivered_below:
            self._count_redelivered(entries)

    def _count_redelivered(self, entries: list[Entry]) -> None:
        self.counters.redelivered += sum([entry.deliveries > 0 for entry in entries])

    def record_delivered(self) -> None:
        """Record in the log up to which position the queue has been delivered."""
        if self.durable and self.delivered_below > self.delivered_recorded:
            self.delivered_recorded = self.delivered_below
            self._host.log.append(_DELIVERED, encode_delivered(self.ident, self.delivered_below))

    def put_back(self, entries: list[Entry]) -> None:
        """Return entries to their places (ORD-2)."""
        self.change()
        self.order.put_back(entries)
        if self.consumers.sighted:
            return_to_sight(self.consumers, [(entry.position, 1) for entry in entries])
        if self.limited:
            self.bytes += self.size_of(entries)
        if self.ttl_possible:
            self.lifetime.arm()
        if self.consumers or self._drop:
            self._host.dirty[self] = None

    def failures(self, entry: Entry) -> int:
        """Return how many deliveries of `entry` have failed: all from which it returned, unless its marks say
        otherwise.
        """
        marks = self.marks.get(entry.position) if self.marks else None
        return entry.deliveries if marks is None else marks.failures

    def unmark(self, positions: Iterable[int]) -> None:
        """Forget the marks of messages that have left the queue for good."""
        self.change()
        self.marks.discard(positions)

    def take_back(self, found: list[Reference], deliveries: dict[int, int], size: int) -> None:
        """Return reserved messages, whose bodies have `size` bytes, to their places as `Discipline.attach` does."""
        self.change()
        self.order.attach(found, deliveries)
        if self.consumers.sighted:
            return_to_sight(self.consumers, [(reference.first, reference.length) for reference in found])
        self.bytes += size
        if self.unmeasured_below:  # some of them are, or are not, among those that are being measured
            self.measure_again()
        if self.ttl_possible:
            self.lifetime.arm()
        self._host.dirty[self] = None

    def attached(self, consumer: Consumer) -> None:
        """Note that a consumer was added. A stream sets its start position here."""
        self.lifetime.touch()

    def recovered(self) -> None:
        """Note that recovery has restored all messages."""
        self.lifetime.arm()

    # -- the end

    def delete(self) -> None:
        """Delete the queue, which is no longer used."""
        self._delete(self)

    def limit_memory(self, limit: int) -> None:
        """Set the limit, in bytes, for messages in memory."""
        self.order.limit_memory(limit)

    def retire(self) -> None:
        """Cancel the deadlines of a deleted queue."""
        self.deleted = True
        self._host.unavailable.forget(self)
        self.lifetime.end()
