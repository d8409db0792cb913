"""The engine: publishing, consuming and settling. The parts that it is made of do the rest."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from escrowmq.core.budget import DEADLINE, HEADERS, Budget
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.counters import BrokerCounters
from escrowmq.core.deadlines import Deadlines
from escrowmq.core.leftover import LeftOver
from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.messages.marks import Modification
from escrowmq.core.messages.pager import LogPager
from escrowmq.core.queues.admission import Admissions, admitted
from escrowmq.core.queues.availability import Unavailable, unavailable
from escrowmq.core.queues.browsing import add_browser
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.dead_letters import DeadLetters
from escrowmq.core.queues.delayed import Delays
from escrowmq.core.queues.delivery_log import Deliveries
from escrowmq.core.queues.discipline import Pager
from escrowmq.core.queues.outcome import Disposition, Outcome
from escrowmq.core.queues.placing import WIDE, GradualPublish
from escrowmq.core.queues.redelivery import Redelivery
from escrowmq.core.queues.refusal import dead_letter, publish_one_by_one
from escrowmq.core.queues.removals import Removals
from escrowmq.core.queues.returning import Lists, Returns
from escrowmq.core.queues.selection import picked_at
from escrowmq.core.queues.settlement import Settlements, release
from escrowmq.core.queues.showing import Showing
from escrowmq.core.records.blocks import encode_block
from escrowmq.core.records.commits import encode_commit
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.publishing import encode_single, encode_targets
from escrowmq.core.records.unreadable import LogUnreadable
from escrowmq.core.turn import Turn
from escrowmq.core.watch import ChangeWatch

if TYPE_CHECKING:
    from escrowmq.core.branches.decision import Recorded
    from escrowmq.core.messages.formats import Format
    from escrowmq.core.ports import Holder, Log, Receiver
    from escrowmq.core.queues.credit import Window
    from escrowmq.core.queues.placing import Beside
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.queues.returning import Returnable
    from escrowmq.core.topology.vhost import VirtualHost

RESIDENT_LIMIT: Final = 16 * 1024 * 1024
TIGHT_LIMIT: Final = 64 * 1024
"""Bytes of messages that a queue keeps in memory when memory is short."""
# Hot paths use these names, since reading a member of an enumeration takes five times as long as calling a function.
_PUBLISH: Final = Kind.PUBLISH
_ACCEPTED: Final = Outcome.ACCEPTED
_ACCEPT: Final = Disposition.ACCEPTED
_RELEASE: Final = Disposition.RELEASED
_MODIFY: Final = Disposition.MODIFIED


class Receipt(NamedTuple):
    """The result of a publish: the LSN up to which the log must be synced before the confirm (0: no wait), the numbers
    of the refused messages, and those parts of the publish that are not visible yet.
    """

    lsn: int = 0
    refused: tuple[int, ...] = ()
    placings: tuple[GradualPublish, ...] = ()


_TRANSIENT: Final = Receipt()
_RELEASED: Final = Modification()


class Engine:
    """Publishes, delivers and settles messages on the queues of all virtual hosts.

    No call waits. A call changes the state at once, appends records to the log, and returns the LSN up to which the log
    must be synced before a durable answer. The runtime sets `now`, in milliseconds since the epoch, before each turn.
    """

    def __init__(
        self, log: Log, vhosts: Mapping[str, VirtualHost[Queue]], resident_limit: int = RESIDENT_LIMIT
    ) -> None:
        """`resident_limit` is the number of bytes of messages that each queue keeps in memory."""
        self.log = log
        self.now = 0
        self.behind_ms = 0  # how far `now` is behind the machine's time, as recorded in the log; negative if ahead
        self.resident_limit = self._roomy_limit = resident_limit
        self.deadlines = Deadlines()
        self.settlements = Settlements(log)
        self.deliveries: Deliveries | None = None
        self.channels: Counter[str] = Counter()  # open ones, by user
        self.counters = BrokerCounters()
        self.scarcity = ""
        """The resource that is so scarce that only operations that free some of it are allowed; empty if none is."""
        self.budget = Budget()  # for deliveries
        self.requests = Budget()  # for requests; protocols stop reading when it is used up
        self.unavailable = Unavailable(self)
        self.pager: Pager = LogPager(log, self.budget)
        self.dirty: dict[Queue, None] = {}
        self.watches: list[ChangeWatch[Queue]] = []  # of those who want to know which queues change
        self.promised: dict[Queue, tuple[int, int]] = {}  # room kept for prepared branches: messages, bytes
        self.outcomes: dict[bytes, int] = {}  # bytes kept in the record of their outcome, by global transaction
        self.holders: dict[Holder, None] = {}
        self.direct: dict[tuple[str, str], Queue] = {}  # by (vhost, name): queues bound to the default exchange only
        self.formats: dict[int, Format] = {}  # by `Envelope.protocol`
        self._vhosts = vhosts
        self.dead_letters = DeadLetters(self)
        self.removals = Removals(log)
        self._redelivery = Redelivery(self)
        self.returns = Returns(self)
        self.delays = Delays(self)
        self.admissions: Admissions = {}
        self.windows: dict[Window, None] = {}  # those that have both credit and waiting consumers
        self._waiting_for_sync: list[Callable[[int], None]] = []
        self._until_synced: deque[tuple[int, Iterator[None]]] = deque()
        self.left_over = LeftOver()
        self._showing = Showing(self)
        self.turn = Turn(self)

    def record_deliveries(self) -> None:
        """Record all further deliveries and their consumers in the log, for the audit."""
        self.deliveries = self.settlements.deliveries = Deliveries(self)

    def keep_less(self, *, on: bool) -> None:
        """Reduce the memory limit of all queues while memory is short, so that new messages of longer queues are only
        on disk. Messages that are already in memory stay there, since they are delivered next.
        """
        self.resident_limit = min(TIGHT_LIMIT, self._roomy_limit) if on else self._roomy_limit
        self.left_over.begin(self._limiting_memory([vhost.queues for vhost in self._vhosts.values()]))

    def _limiting_memory(self, queues: list[dict[str, Queue]]) -> Iterator[None]:
        """Set the memory limit of all queues, in pieces. Queues that are made meanwhile have it from the beginning."""
        while queues:
            for queue in list(queues.pop().values()):
                queue.limit_memory(self.resident_limit)
                self.requests.left -= 1
                if self.requests.left <= 0:
                    yield

    # -- publishing

    def route(self, vhost: VirtualHost[Queue], envelope: Envelope, content: bytes = b"") -> tuple[Queue, ...]:
        """Return the queues that a message is routed to. Raises NOT_FOUND for an unknown exchange.

        `content` is used only where routing depends on it (`VirtualHost.needs_content`).
        """
        headers = None
        if vhost.needs_headers(envelope.exchange):
            headers = self.formats[envelope.protocol].headers(envelope, content)
            self.requests.left -= HEADERS
            if vhost.exchanges[envelope.exchange].delays:
                held = self.delays.hold(vhost, headers)
                if held is not None:
                    return (held,)
        found = vhost.route(envelope.exchange, envelope.routing_key, headers, envelope.extra_keys)
        self.requests.left -= vhost.take_cost()
        if vhost.needs_content(envelope.exchange):
            self.requests.left -= HEADERS
            return admitted(found, envelope, content)
        return found

    def publish(
        self,
        envelope: Envelope,
        contents: list[bytes],
        queues: Sequence[Queue],
        *,
        divided: bool = False,
        beside: Beside | None = None,
    ) -> Receipt:
        """Publish a run of messages to `queues`, outside any transaction. If there are very many queues, a publish that
        may be `divided` is placed in pieces; then something may be recorded `beside` the messages.
        """
        refuses = False
        for queue in queues:
            if queue.persists_all:
                envelope = envelope.lasting()
            if queue.refuses:
                refuses = True
        if divided and len(queues) > WIDE:
            gradual = GradualPublish(self, envelope, contents, queues, refuses=refuses, beside=beside)
            self.left_over.begin(gradual.steps())
            return Receipt(gradual.lsn, gradual.refused, () if gradual.done else (gradual,))
        if refuses:
            return Receipt(
                *publish_one_by_one(
                    self,
                    envelope,
                    contents,
                    queues,
                    lambda i, takers: self._publish(envelope, [contents[i]], takers).lsn,
                )
            )
        return self._publish(envelope, contents, queues)

    def publish_each(self, publishes: Iterable[tuple[Envelope, list[bytes], Sequence[Queue]]]) -> Receipt:
        """Publish runs in order, each to its own queues, which do not refuse messages, outside any transaction. Those
        to very many queues are placed in pieces.
        """
        last = 0
        placings: tuple[GradualPublish, ...] = ()
        for envelope, contents, queues in publishes:
            if len(queues) == 1:
                queue = queues[0]
                if queue.persists_all:
                    envelope = envelope.lasting()
                last = self._place(queue, envelope, contents) or last
            else:
                receipt = self.publish(envelope, contents, queues, divided=True)
                last = receipt.lsn or last
                if receipt.placings:
                    placings += receipt.placings
        return Receipt(self.log.end_lsn if last else 0, (), placings)

    def _place(self, queue: Queue, envelope: Envelope, contents: list[bytes]) -> int:
        """Publish a run to one queue. Return the LSN of its block, 0 if it is not in the log."""
        lsn, now, log = 0, self.now, self.log
        if envelope.durable and queue.durable:
            count = len(contents)
            if count == 1:
                record, block = encode_single(queue.ident, queue.next_position, now, envelope, contents[0])
                lsn = log.append(_PUBLISH, *record) + block
            else:
                head = encode_targets(((queue.ident, queue.next_position),))
                lsn = log.append(_PUBLISH, head, *encode_block(now, envelope, contents)) + len(head)
            log.retain(lsn, count)
        queue.enqueue(Run(envelope, 0, now, lsn), contents)
        return lsn

    def _publish(self, envelope: Envelope, contents: list[bytes], queues: Sequence[Queue]) -> Receipt:
        if len(queues) == 1:
            return Receipt(self.log.end_lsn) if self._place(queues[0], envelope, contents) else _TRANSIENT
        lsn, now = self.record(envelope, contents, queues), self.now
        for queue in queues:
            queue.enqueue(Run(envelope, 0, now, lsn if queue.durable else 0), contents)
        return Receipt(self.log.end_lsn) if lsn else _TRANSIENT

    def record(
        self, envelope: Envelope, contents: list[bytes], queues: Sequence[Queue], work: Recorded | None = None
    ) -> int:
        """Record a publish that is in no transaction, with `work`. Return the LSN of its block, or 0 if it is not in
        the log.
        """
        log, lsn = self.log, 0
        targets = [(queue.ident, queue.next_position) for queue in queues if queue.durable] if envelope.durable else []
        more = work.operations() if work is not None else []
        if targets:
            head = encode_targets(targets)
            parts = [head, *encode_block(self.now, envelope, contents)]
            if more:
                written, offsets = encode_commit(0, [(_PUBLISH, parts), *more])
                lsn = log.append(Kind.COMMIT, *written) + offsets[0] + len(head)
            else:
                lsn = log.append(_PUBLISH, *parts) + len(head)
            log.retain(lsn, len(contents) * len(targets))
        if work is not None:
            work.apply(log.end_lsn if lsn else 0, log.synced_lsn)
        return lsn

    def dead_letter_refused(self, queue: Queue, envelope: Envelope, content: bytes) -> int:
        """Dead-letter a message that `queue` has refused. Return the LSN to wait for, or 0."""
        return dead_letter(self, queue, envelope, content)

    # -- consuming

    def subscribe(self, queue: Queue, receiver: Receiver, **options: Any) -> Consumer:
        """Attach a consumer (keyword arguments as of `Consumer`). Raises ACCESS_REFUSED for exclusive use, UNAVAILABLE
        if the queue's messages cannot be read.

        Messages published earlier in this turn go to the existing consumers first.
        """
        if queue.consumers:
            queue.refresh()
        exclusive = bool(options.get("exclusive"))
        if queue.consumers.exclusive is not None or (exclusive and queue.consumers):
            raise BrokerError(
                Condition.ACCESS_REFUSED, f"queue '{queue.name}' in vhost '{queue.vhost}' in exclusive use"
            )
        if queue.fault:
            raise unavailable(queue, queue.fault)
        consumer = Consumer(queue, receiver, **options)
        try:
            queue.attached(consumer)
        except LogUnreadable as error:
            raise unavailable(queue, str(error)) from error
        if consumer.browses:
            add_browser(queue, consumer)
            self.dirty[queue] = None
            return consumer
        queue.change()
        queue.consumers.add(consumer)
        self.counters.consumers_added += 1
        queue.had_consumer = True
        self.dirty[queue] = None
        return consumer

    def unsubscribe(self, consumer: Consumer) -> None:
        """Detach a consumer, which keeps its deliveries. Detaching the last one deletes an auto-delete queue."""
        queue = consumer.queue
        if not consumer.line.remove(consumer):
            return
        consumer.detach()
        queue.change()
        if consumer.browses:
            return
        queue.lifetime.touch()
        if queue.auto_delete and not queue.consumers and not queue.deleted:
            queue.delete()
        else:
            self.dirty[queue] = None

    def get(self, queue: Queue, *, auto_settle: bool, label: str = "") -> Entry | None:
        """Return the next entry, for a client that asks for a single one. `label` names the client in the log. Raises
        UNAVAILABLE if it cannot be read.
        """
        entries = self.fetch(queue, 1, auto_settle=auto_settle, label=label)
        return entries[0] if entries else None

    def fetch(self, queue: Queue, most: int, *, auto_settle: bool, label: str = "") -> list[Entry]:
        """Do up to `most` calls of `get` in one. The queue may hold more entries unless the result is empty. Raises
        UNAVAILABLE if the first one cannot be read.
        """
        queue.lifetime.touch()
        if queue.is_stream:
            return []
        while queue.returning and self.returns:  # protocols have waited; this is for other callers
            self.returns.step()
        queue.refresh()
        while len(queue.order):
            if queue.fault:
                raise unavailable(queue, queue.fault)
            entries = queue.take(most)
            if entries:
                return self._fetched(queue, entries, auto_settle=auto_settle, label=label)
        self.counters.empty_fetches += 1
        return []

    def fetch_at(self, queue: Queue, position: int, *, label: str = "") -> list[Entry]:
        """Take the message at one position out of the queue. Nothing is returned if it is not ready there. Raises
        UNAVAILABLE if it cannot be read.
        """
        if queue.is_stream:
            return []
        while queue.returning and self.returns:
            self.returns.step()
        queue.refresh()
        if queue.fault:
            raise unavailable(queue, queue.fault)
        entries = picked_at(queue, self, position)
        return self._fetched(queue, entries, auto_settle=False, label=label) if entries else entries

    def _fetched(self, queue: Queue, entries: list[Entry], *, auto_settle: bool, label: str) -> list[Entry]:
        if self.deliveries is not None:
            self.deliveries.note(queue, label, entries, settled=auto_settle)
        if auto_settle:
            queue.counters.auto_fetched += len(entries)
            queue.count_auto_settled(entries)
            self.settlements.add(queue, entries, _ACCEPTED)
        else:
            queue.counters.fetched += len(entries)
            queue.note_delivered(entries)
            self.dirty[queue] = None
        return entries

    def wake(self, consumer: Consumer) -> None:
        """Note that the receiver of `consumer` is writable again."""
        consumer.wake()

    def resize(self, window: Window, limit: int) -> None:
        """Change the limit of a window, which is credit that consumers share. 0 is unlimited."""
        window.resize(limit)
        if window.waiting:
            self.windows[window] = None

    # -- settling

    def leave(self, consumer: Consumer, count: int) -> Queue:
        """Note that the consumer has `count` unsettled deliveries fewer, which may restore credit."""
        queue = consumer.queue
        if queue.watched:
            queue.change()
        queue.unsettled -= count
        consumer.settled(count)
        if consumer.window is not None and consumer.window.waiting:
            self.windows[consumer.window] = None
        if queue.consumers and (queue.is_stream or len(queue.order)):
            self.dirty[queue] = None
        return queue

    def settle(self, consumer: Consumer, entries: list[Entry], disposition: Disposition) -> None:
        """Settle deliveries: remove them, dead-letter them if they were rejected, or return them to their places."""
        if disposition is _MODIFY:
            self.requeue(consumer, entries)
            return
        if disposition is _RELEASE:
            self.release(consumer, entries)
            return
        queue = self.leave(consumer, len(entries))
        if disposition is not _ACCEPT:
            self._reject(queue, entries)
        elif queue.is_stream:  # reading takes nothing from it
            queue.counters.accepted += len(entries)
        elif queue.deleted:
            release(self.log, entries)
        else:
            self.settlements.add(queue, entries, _ACCEPTED)

    def settle_each(self, deliveries: Mapping[Consumer, list[Entry]], disposition: Disposition) -> None:
        """Do `settle` for deliveries to several consumers. The lists may be reused."""
        if disposition is not _ACCEPT:
            for consumer, entries in deliveries.items():
                self.settle(consumer, entries, disposition)
            return
        accepted: dict[Queue, list[Entry]] = {}
        for consumer, entries in deliveries.items():  # as in `leave`, with fewer steps for each consumer
            queue, window = consumer.queue, consumer.window
            queue.unsettled -= len(entries)
            consumer.settled(len(entries))
            if window is not None and window.waiting:
                self.windows[window] = None
            others = accepted.get(queue)
            if others is None:
                accepted[queue] = entries
            else:
                others += entries
        for queue, entries in accepted.items():
            if queue.watched:
                queue.change()
            if queue.consumers and (queue.is_stream or len(queue.order)):
                self.dirty[queue] = None
            if queue.is_stream:
                queue.counters.accepted += len(entries)
            elif queue.deleted:
                release(self.log, entries)
            else:
                self.settlements.add(queue, entries, _ACCEPTED)

    def requeue(self, consumer: Consumer, entries: list[Entry]) -> None:
        """Return deliveries to their places, marked as redelivered (ORD-2). Each counts as a failed delivery."""
        self._redelivery.requeue(consumer, entries)

    def settle_together(self, consumer: Consumer, entries: list[Entry], disposition: Disposition) -> None:
        """Do `settle` for any number of deliveries: many that return do so in pieces, as in `give_back`. The list
        belongs to the engine from now on.
        """
        if disposition.returns:
            source, failed = Lists([(consumer, entries)]), disposition is _MODIFY
            self.returns.add(source, len(entries), (consumer.queue,), failed=failed)
        else:
            self.settle(consumer, entries, disposition)

    def give_back(self, source: Returnable, count: int, queues: Iterable[Queue]) -> None:
        """Requeue the `count` deliveries of `source`, in order. Many of them return in pieces, one in each turn, and
        nothing overtakes them in `queues`, which has at least their queues. The source belongs to the engine from now
        on.
        """
        self.returns.add(source, count, queues)

    def release(self, consumer: Consumer, entries: list[Entry]) -> None:
        """Return deliveries that have not failed to their places. They do not count towards the delivery limit."""
        self.modify(consumer, entries, _RELEASED)

    def put_back(self, consumer: Consumer, entries: list[Entry]) -> None:
        """Return deliveries to their places as if they had not been delivered: they are not marked as redelivered
        unless they were before.
        """
        self._redelivery.put_back(consumer, entries)

    def modify(self, consumer: Consumer, entries: list[Entry], modification: Modification) -> None:
        """Return deliveries to their places, changed by `modification`. Dead-letter those that have failed too often,
        or all of them if the modification says so.
        """
        if modification.rejected:
            self._reject(self.leave(consumer, len(entries)), entries, modification)
        else:
            self._redelivery.modify(consumer, entries, modification)

    def _reject(self, queue: Queue, entries: list[Entry], modification: Modification | None = None) -> None:
        """Dead-letter deliveries that their consumer has left."""
        if queue.is_stream:
            return
        if queue.deleted:
            release(self.log, entries)
        else:
            self.dead_letters.send(queue, entries, Outcome.REJECTED, modification)

    def vhost_of(self, queue: Queue) -> VirtualHost[Queue]:
        """Return the virtual host of a queue."""
        return self._vhosts[queue.vhost]

    # -- the turn

    def seal(self, queue: Queue) -> None:
        self._showing.seal(queue)

    def show(self, queues: Collection[Queue]) -> None:
        """Let messages that queues keep back become visible, in pieces, unless they wait for a sync."""
        self._showing.show(queues)

    def synced(self, lsn: int) -> None:
        """Note that the log is synced up to `lsn`. Commits below it become visible."""
        self._showing.synced(lsn)
        while self._until_synced and self._until_synced[0][0] <= lsn:
            self.left_over.begin(self._until_synced.popleft()[1])
        for synced in self._waiting_for_sync:
            synced(lsn)

    def when_synced(self, lsn: int, work: Iterator[None]) -> None:
        """Do work in pieces as soon as the log is synced up to `lsn`."""
        self._until_synced.append((lsn, work))

    def at_each_sync(self, synced: Callable[[int], None]) -> None:
        """Call `synced` after each sync, with the LSN up to which the log is on disk."""
        self._waiting_for_sync.append(synced)

    def at_each_turn(self, record: Callable[[], None]) -> None:
        """Call `record` at the end of each turn, before the settlements of the turn are recorded."""
        self.turn.endings.append(record)

    def run_deadlines(self) -> None:
        """Run actions that are due at `now`, as many as one turn's work allows. The next turn runs the others, which
        `next_deadline` still shows as due.
        """
        requests = self.requests
        requests.renew()
        for action in self.deadlines.due(self.now):
            action()
            requests.left -= DEADLINE
            if requests.left <= 0:
                break

    def next_deadline(self) -> int | None:
        return self.deadlines.next()
