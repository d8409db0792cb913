"""Operations on reservations: take, read, settle and release messages (PIPE-1). Streams can only be read."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import chain, groupby, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.core.branches.decision import Decision
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.queues.availability import unavailable
from escrowmq.core.queues.backlog import Backlog
from escrowmq.core.queues.discipline import Detached
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.queues.stream import StreamQueue
from escrowmq.core.records.blocks import encode_block
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.moves import Move, encode_moves
from escrowmq.core.records.queue_state import encode_returned
from escrowmq.core.records.references import TRANSIENT, Reference
from escrowmq.core.records.reservations import Held, HeldRange, encode_held, encode_released, joined
from escrowmq.core.records.unreadable import LogUnreadable
from escrowmq.core.reservations.reading import MOST_MESSAGES, Batch, BatchReader
from escrowmq.core.reservations.reservation import Reservation, ReservationSettlement, Row

if TYPE_CHECKING:
    from escrowmq.core.engine import Engine
    from escrowmq.core.queues.queue import Queue

MOST_PARTS: Final = 50_000
"""Maximum number of references, or entries in memory, that one call takes. A reference may stand for many messages."""
COPY_BYTES: Final = 8 << 20
"""Maximum bytes of content that one call writes because the log does not have it."""
STEP: Final = 1000
"""Number of parts that are taken together."""
GROUPS: Final = 1000
"""Maximum number of groups of one user that one queue remembers."""
BULK_BYTES: Final = 4 << 20
"""Default for the bytes of bodies in a batch."""
MOST_BULK_BYTES: Final = 64 << 20

_run = attrgetter("run")


class ReservationState(NamedTuple):
    """The messages that a group holds: numbers `first` to `end` - 1, of which `added` are new.

    All numbers below `settled` were settled. The answer waits for a sync up to `lsn`.
    """

    first: int
    end: int
    added: int
    settled: int
    lsn: int


class Description(NamedTuple):
    """A queue as a reader sees it. `first` and `next` are the positions of a stream that can be read.

    `ident` identifies the queue: a durable queue that is declared again under the same name has another one.
    """

    kind: str
    first: int
    next: int
    ready: int
    ident: int


class Reservations:
    """The reservations on a broker's queues, for protocols and operators."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reader = BatchReader(engine.log)
        self._copied = 0  # bytes of content that were written so far

    # -- reserving

    def reserve(self, queue: Queue, group: str, most: int = 0, until: int = 0, *, user: str = "") -> ReservationState:
        """Reserve `most` further messages or, with `until`, as many as are needed for the reservation to end there.
        The reservation then belongs to `user`.

        The call may reserve fewer, because the queue has no more or the limit of one call is reached. With neither
        argument nothing changes. The `lsn` of the result also covers everything reserved before.

        Raises PRECONDITION_FAILED for a stream, ACCESS_REFUSED if a consumer uses the queue exclusively, UNAVAILABLE
        if its messages cannot be read, and LIMIT_EXCEEDED if the user has too many groups.
        """
        if queue.is_stream:
            raise BrokerError(
                Condition.PRECONDITION_FAILED,
                f"queue '{queue.name}' in vhost '{queue.vhost}' is a stream, which is read without holding it",
            )
        if queue.consumers.exclusive is not None:
            raise BrokerError(
                Condition.ACCESS_REFUSED, f"queue '{queue.name}' in vhost '{queue.vhost}' in exclusive use"
            )
        queue.lifetime.touch()
        queue.refresh()
        if queue.fault:
            raise unavailable(queue, queue.fault)
        reservation = queue.reservations.get(group)
        if until:
            most = until - (1 if reservation is None else reservation.end)
        count = 0
        if most > 0 and queue.ready:
            count = self._extend(queue, group, most, user)
            reservation = queue.reservations.get(group)
        if reservation is None:
            return ReservationState(1, 1, 0, 1, 0)
        lsn = self._engine.log.end_lsn if queue.durable else 0
        return ReservationState(reservation.first, reservation.end, count, reservation.settled, lsn)

    def _extend(self, queue: Queue, group: str, most: int, user: str) -> int:
        reservation = queue.reservations.get(group)
        if reservation is None and sum(each.holder == user for each in queue.reservations.values()) >= GROUPS:
            raise BrokerError(
                Condition.LIMIT_EXCEEDED,
                f"queue '{queue.name}' in vhost '{queue.vhost}' remembers {GROUPS} groups of user '{user}', which is "
                "the limit",
            )
        copies: list[Reference] = []
        taken: list[tuple[Backlog, int]] = []
        enough = self._copied + COPY_BYTES
        for detached in self._detached(queue, most):
            taken += self._lasting(queue, detached, copies)
            if self._copied > enough:
                break
        if not taken:
            return 0
        if reservation is None:
            reservation = queue.reservations[group] = Reservation(queue, group)
        if not len(reservation):
            reservation.holder = user
        queue.change()
        reservation.note_time(self._engine.now)
        first = reservation.end
        for references, deliveries in taken:
            reservation.add(references, deliveries)
        below = max(references.firsts[-1] + references.counts[-1] for references, _ in taken)
        queue.delivered_below = max(queue.delivered_below, below)
        if queue.durable:
            ranges = joined([each for references, deliveries in taken for each in _ranges(references, deliveries)])
            held = Held(queue.ident, group, reservation.settled, first, ranges, copies, reservation.holder)
            self._engine.log.append(Kind.HELD, *encode_held(held))
            queue.delivered_recorded = max(queue.delivered_recorded, below)
        queue.counters.delivered += reservation.end - first
        return reservation.end - first

    def _detached(self, queue: Queue, most: int) -> Iterator[list[Detached]]:
        """Remove messages from the queue and yield them, in order, some at a time."""
        one_by_one = queue.limited or self._may_expire(queue, most)  # sizes count, or the time of each
        parts = MOST_PARTS
        while most > 0 and parts > 0 and queue.ready and not queue.fault:
            if one_by_one or queue.limited:
                some = [Detached(entry, entry.deliveries) for entry in queue.take(min(most, STEP))]
            else:
                some = queue.order.detach(most, min(parts, STEP))
            parts -= max(sum([part.parts for part in some]), 1)
            most -= sum([part.messages for part in some])
            yield some

    def _may_expire(self, queue: Queue, most: int) -> bool:
        """Return whether the next `most` messages of the queue may have a time to live, as far as can be told without
        examining each. Messages that a restart brought back are unchecked, so the envelopes of their blocks are read.
        """
        if queue.ttl_possible or not queue.restored_below:
            return queue.ttl_possible
        restored = False
        for backlog in queue.order.backlogs():
            left = most
            for i in range(backlog.begin, min(backlog.begin + MOST_PARTS, backlog.end)):
                first, count, lsn, _ = backlog.at(i)
                if left <= 0 or first >= queue.restored_below:
                    break
                restored = True
                left -= count
                try:
                    envelope = self._reader.envelope_of(lsn)
                except LogUnreadable as error:
                    raise unavailable(queue, str(error)) from error
                if envelope.ttl is not None:
                    queue.ttl_possible = True
                    return True
        if not restored:
            queue.restored_below = 0
        return False

    # -- content that would not survive a restart

    def _lasting(
        self, queue: Queue, detached: list[Detached], copies: list[Reference]
    ) -> Iterator[tuple[Backlog, int]]:
        """Return references to content that lasts as long as the queue. Content written for this is added to `copies`.

        References that are returned together are in order of position and have the same delivery count.
        """
        for in_memory, group in groupby(detached, lambda each: isinstance(each.what, Entry)):
            if in_memory:
                yield from self._of_entries(
                    queue, [each.what for each in group if isinstance(each.what, Entry)], copies
                )
                continue
            for references, deliveries in group:
                assert isinstance(references, Backlog)
                if queue.durable and max(references.indexes) >= TRANSIENT:
                    references = Backlog.of(*[self._durable(queue, each, copies) for each in references])
                yield references, deliveries

    def _durable(self, queue: Queue, reference: Reference, copies: list[Reference]) -> Reference:
        if not reference.start & TRANSIENT:
            return reference
        block = self._engine.pager.load(reference)
        return self._copy(
            queue, Run(block.envelope, reference.first, block.time, reference.lsn), block.contents, copies
        )

    def _of_entries(self, queue: Queue, entries: list[Entry], copies: list[Reference]) -> Iterator[tuple[Backlog, int]]:
        found = Backlog()
        deliveries = behind = 0
        for run, group in groupby(entries, _run):
            members = list(group)
            begin = 0
            for i in range(1, len(members) + 1):
                first = members[begin]
                if i < len(members) and (members[i].position, members[i].deliveries) == (
                    first.position + i - begin,
                    first.deliveries,
                ):
                    continue
                if not run.lsn or (queue.durable and first.start & TRANSIENT):
                    part = Run(run.envelope, first.position, run.time, run.lsn)
                    reference = self._copy(queue, part, [entry.content for entry in members[begin:i]], copies)
                else:
                    reference = Reference(first.position, i - begin, run.lsn, first.start)
                if len(found) and (first.deliveries != deliveries or first.position < behind):
                    yield found, deliveries
                    found = Backlog()
                found.append(*reference)
                deliveries, behind = first.deliveries, reference.first + reference.length
                begin = i
        if len(found):
            yield found, deliveries

    def _copy(self, queue: Queue, run: Run, contents: list[bytes], copies: list[Reference]) -> Reference:
        """Write content that is only in memory or would not survive a restart."""
        log = self._engine.log
        count = len(contents)
        self._copied += sum(map(len, contents))
        queue.logged = True
        if queue.durable:
            positions = range(run.first, run.first + count)
            head = encode_moves([Move(queue.ident, array("Q", positions), array("I", range(count)))])
            block = encode_block(run.time, run.envelope.lasting(), contents)
            reference = Reference(run.first, count, log.append(Kind.RELOCATE, head, *block) + len(head), 0)
            copies.append(reference)
        else:
            lsn = log.append(Kind.PAGE, *encode_block(run.time, run.envelope, contents))
            reference = Reference(run.first, count, lsn, TRANSIENT)
        log.retain(reference.lsn, count)
        if run.lsn:
            log.release(run.lsn, count)
        return reference

    # -- reading

    def read(self, queue: Queue, group: str, first: int, end: int = 0, most_bytes: int = 0) -> Batch:
        """Return the messages of `group` from number `first` to `end` - 1; of a stream, the messages at these
        positions.

        Messages that no longer exist are skipped, and the batch names its first number. It holds as many messages as
        fit into `most_bytes`, but at least one. Without `end` it may extend to the last one. Raises UNAVAILABLE if one
        of them cannot be read.
        """
        queue.lifetime.touch()
        try:
            return self._read(queue, group, first, end, most_bytes)
        except LogUnreadable as error:
            raise unavailable(queue, str(error)) from error

    def _read(self, queue: Queue, group: str, first: int, end: int, most_bytes: int) -> Batch:
        most_bytes = min(most_bytes or BULK_BYTES, MOST_BULK_BYTES)
        if isinstance(queue, StreamQueue):
            end = min(end or queue.visible_end, queue.visible_end)
            return self._reader.read(*_stream_rows(queue, first), max(end, first), most_bytes)
        reservation = queue.reservations.get(group)
        if reservation is None:
            return self._reader.read(first, (), first, most_bytes)
        end = min(end or reservation.end, reservation.end)
        return self._reader.read(*reservation.rows(first, MOST_MESSAGES), max(end, first), most_bytes)

    def describe(self, queue: Queue) -> Description:
        """Describe the queue for a reader."""
        queue.refresh()
        if isinstance(queue, StreamQueue):
            first = queue.log.backlog.peek().first if len(queue.log) else queue.visible_end
            return Description("stream", first, queue.visible_end, len(queue.log), queue.ident)
        return Description("classic", 1, queue.next_position, queue.ready, queue.ident)

    # -- settling and releasing

    def settlement(self, queue: Queue, group: str, end: int) -> ReservationSettlement | None:
        """Return work for a branch that accepts all messages of `group` below `end`. Return None if all of them were
        settled before.

        Raises PRECONDITION_FAILED if the group does not hold them.
        """
        queue.lifetime.touch()
        reservation = queue.reservations.get(group)
        if reservation is None:
            if end <= 1:
                return None
            reservation = Reservation(queue, group)
        work = ReservationSettlement(reservation, end)
        work.check()
        return work if end > reservation.settled else None

    def settle(self, work: ReservationSettlement | None) -> int:
        """Apply such a settlement at once. Return the LSN up to which the log must be synced before the answer; it also
        covers earlier settlements.
        """
        if work is not None:
            decision = Decision(self._engine)
            decision.settle_reservation(work)
            decision.apply()
        return self._engine.log.end_lsn

    def release(self, queue: Queue, group: str) -> tuple[int, int]:
        """Return a group's messages to their places, marked as delivered. Return their number, and the LSN up to which
        the log must be synced before the answer.

        Raises RESOURCE_LOCKED while a prepared transaction is to settle some of them.
        """
        reservation = queue.reservations.get(group)
        if reservation is None or not len(reservation):
            return 0, 0
        if reservation.pledged:
            raise BrokerError(
                Condition.RESOURCE_LOCKED,
                f"a prepared transaction settles messages of queue '{queue.name}' in vhost '{queue.vhost}' "
                f"that group '{group}' holds; decide it first",
            )
        queue.change()
        count = len(reservation)
        taken = reservation.clear()
        reservation.releases += 1
        if queue.durable:
            self._engine.log.append(
                Kind.RELEASED, encode_released(queue.ident, group, reservation.settled, reservation.first)
            )
        self.put_back(queue, taken)
        return count, self._engine.log.end_lsn if queue.durable else 0

    def put_back(self, queue: Queue, taken: list[tuple[Reference, int]]) -> None:
        """Return messages that are not in memory to their places, as failed deliveries. Each comes with the number of
        its earlier deliveries.
        """
        engine, limit = self._engine, queue.options.delivery_limit
        returned: list[Reference] = []
        deliveries: dict[int, int] = {}
        spent: list[Reference] = []
        for reference, count in taken:
            if limit is not None and count >= limit:
                spent.append(reference)
                continue
            returned.append(reference)
            if count or limit is not None:
                deliveries.update(dict.fromkeys(range(reference.first, reference.first + reference.length), count + 1))
        if limit is not None and deliveries and queue.durable:
            engine.log.append(Kind.RETURNED, encode_returned(queue.ident, deliveries.items()))
        if returned:
            queue.counters.requeued += sum([reference.length for reference in returned])
            queue.take_back(returned, deliveries, sum(map(self._reader.size_of, returned)) if queue.limited else 0)
        for reference in spent:
            block = engine.pager.load(reference)
            run = Run(block.envelope, reference.first, block.time, reference.lsn, reference.start)
            positions = range(reference.first, reference.first + reference.length)
            entries = list(map(Entry, positions, block.contents, repeat(run)))
            engine.dead_letters.send(queue, entries, Outcome.DELIVERY_LIMIT)


def _ranges(references: Backlog, deliveries: int) -> list[HeldRange]:
    first, last = references.firsts[0], references.firsts[-1] + references.counts[-1]
    if last - first == len(references):  # the common case: no gaps
        return [HeldRange(first, last - first, deliveries)]
    return [HeldRange(reference.first, reference.length, deliveries) for reference in references]


def _stream_rows(queue: StreamQueue, position: int) -> tuple[int, Iterator[Row]]:
    """Return the references of a stream from `position` on, and the position of the first message."""
    backlog = queue.log.backlog
    i = backlog.find(position)
    if i is not None and backlog.firsts[i] + backlog.counts[i] <= position:
        i += 1
    if i is None or i >= backlog.end:
        return max(queue.visible_end, position), iter(())
    first, length, lsn, start = backlog.at(i)
    skip = max(position - first, 0)
    columns = (backlog.firsts, backlog.counts, backlog.lsns, backlog.indexes)
    others = zip(*(column[i + 1 : i + 1 + MOST_MESSAGES] for column in columns), repeat(0), strict=False)
    return first + skip, chain([(first + skip, length - skip, lsn, start + skip, 0)], others)
