"""A loan: the hold of an attached link on its terminus.

The link acts on the terminus only through its loan. When the link is detached, closed or stolen, the loan is void, and
nothing can be delivered or posted through it.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.marks import Modification
from escrowmq.core.queues.outcome import Disposition, Outcome
from escrowmq.core.queues.unsettled import entries_by_consumer
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.termini import NumberedRange, encode_acquired, numbered_ranges
from escrowmq.core.records.unreadable import LogUnreadable
from escrowmq.core.termini.arrivals import Arrival, Partial, fingerprint_of
from escrowmq.core.termini.enlisted_posts import enlist
from escrowmq.core.termini.posting import post
from escrowmq.core.termini.terminus import TerminusInput, TerminusState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from escrowmq.core.branches.branch import Publication, TransactionBranch
    from escrowmq.core.engine import Receipt
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.ports import Receiver
    from escrowmq.core.queues.consumer import Consumer
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.termini.acquisitions import TakenUp
    from escrowmq.core.termini.enlisted_posts import PostOwner
    from escrowmq.core.termini.registry import Termini
    from escrowmq.core.termini.terminus import Terminus


_run = attrgetter("run")
_position = attrgetter("position")


class Borrower(Protocol):
    """The link that has a loan."""

    def stolen(self) -> None:
        """Note that another link has the terminus now. It is called while that link attaches."""
        ...

    def deleted(self) -> None:
        """Note that the terminus was ended by an operator, or with its user or virtual host."""
        ...

    def relieved(self, text: str, *, closed: bool) -> None:
        """Detach the link, because memory is short. With `closed` its terminus ends."""
        ...


class AcquiredNumbers(NamedTuple):
    """The number of the first delivery; the others have the next numbers. The transfers wait for a sync up to `lsn`, or
    not at all if it is 0.
    """

    first: int
    lsn: int


class Loan:
    """The hold of `link` on `terminus`. `fresh` says that nothing of an earlier link was kept. The answer to the attach
    waits for a sync up to `lsn` (0: no wait).
    """

    __slots__ = ("_consumers", "_termini", "fresh", "link", "lsn", "terminus")

    def __init__(self, termini: Termini, terminus: Terminus, link: Borrower, *, fresh: bool, lsn: int) -> None:
        self._termini = termini
        self._consumers: list[Consumer] = []
        self.terminus = terminus
        self.link: Borrower | None = link
        self.fresh = fresh
        self.lsn = lsn

    @property
    def current(self) -> bool:
        """Whether the link is attached and has the terminus."""
        return self.terminus.loan is self and self.terminus.state is TerminusState.ATTACHED

    @property
    def latest(self) -> bool:
        """Whether no other link has had the terminus since, and it is not gone. A client may settle deliveries after
        it has detached the link.
        """
        return self.terminus.loan is self and self.terminus.state is not TerminusState.GONE

    # -- the end

    def detach(self) -> None:
        """Suspend the terminus. Its unsettled deliveries wait for a link that resumes it, until it expires."""
        self._termini.suspend(self, TerminusInput.DETACH)

    def session_ended(self) -> None:
        """Note that the session is over, whether the link was detached before or not."""
        self._termini.suspend(self, TerminusInput.SESSION_ENDED)

    def connection_lost(self) -> None:
        """Note that the connection is over, whether the link was detached before or not."""
        self._termini.suspend(self, TerminusInput.CONNECTION_LOST)

    def close(self) -> int:
        """End the terminus. Deliveries to the client get the default outcome. Return the LSN up to which the log must
        be synced before the answer (0: no wait).
        """
        return self._termini.end(self.terminus, TerminusInput.CLOSE) if self.current else 0

    def void(self) -> Borrower | None:
        """End the link's consumers, and forget the link. Return it."""
        for consumer in self._consumers:
            self._termini.engine.unsubscribe(consumer)
            consumer.view = None
        self._consumers.clear()
        link, self.link = self.link, None
        return link

    def _check(self) -> None:
        if not self.current:
            raise AssertionError(f"{self.terminus} is not on loan to this link any more")

    # -- from the broker to the consumer

    def subscribe(self, queue: Queue, receiver: Receiver, **options: Any) -> Consumer:
        """Attach a consumer, as `Engine.subscribe` does. It ends with the loan."""
        self._check()
        consumer = self._termini.engine.subscribe(queue, receiver, **options)
        consumer.acquirer = self.terminus
        self._consumers.append(consumer)
        return consumer

    def acquire(self, consumer: Consumer, entries: list[Entry]) -> AcquiredNumbers:
        """Add deliveries to the unsettled ones. If the terminus keeps them, the transfers wait for the record of their
        acquisition (SET-10).
        """
        self._check()
        terminus, queue = self.terminus, consumer.queue
        if not terminus.unsettled:
            terminus.unsettled_since = self._termini.engine.now
        first = terminus.deliveries.add(consumer, entries)
        if not terminus.keeps or queue.is_stream or not queue.durable:
            return AcquiredNumbers(first, 0)
        ranges = _durable_ranges(first, entries)
        if not ranges:
            return AcquiredNumbers(first, 0)
        self._termini.durable.unsettled(terminus)
        log = self._termini.engine.log
        log.append(Kind.ACQUIRED, encode_acquired(terminus.number, queue.ident, ranges))
        return AcquiredNumbers(first, log.end_lsn)

    def reach(self, first: int, last: int) -> int:
        """Return the number up to which the deliveries with the numbers `first` to `last` are rejected together."""
        portion = self._termini.engine.dead_letters.portion(Outcome.REJECTED)
        return self.terminus.deliveries.reach(first, last, portion) if self.latest else last

    def settle(self, first: int, last: int, disposition: Disposition | Modification) -> int:
        """Settle the deliveries with the numbers `first` to `last`. Return how many there were; the others are ignored.
        `Termini.record` returns the LSN for the answer.

        Raises UNAVAILABLE, with nothing settled, if a message that returns to its queue cannot be read from the log.
        """
        if not self.latest:
            return 0
        returns = disposition is not Disposition.ACCEPTED
        try:
            taken = entries_by_consumer(self.terminus.deliveries.take(first, last, content=returns))
        except LogUnreadable as error:
            raise self._unreadable(error) from error
        self._termini.dispose(taken.items(), disposition)
        return sum(map(len, taken.values()))

    def enlist(
        self, branch: TransactionBranch, first: int, last: int
    ) -> list[tuple[Consumer, Sequence[int], list[Entry]]]:
        """Take deliveries out for settlement in `branch`, with `Terminus.deliveries` as the `Keeper` of their numbers.
        After a crash they are locked for the terminus, unless the branch was committed. As with `settle`, the link may
        be detached. Raises UNAVAILABLE as `settle`.
        """
        if not self.latest:
            return []
        try:
            return self.terminus.deliveries.enlist(branch, first, last)
        except LogUnreadable as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: LogUnreadable) -> BrokerError:
        return BrokerError(Condition.UNAVAILABLE, f"{self.terminus.title}: a delivery cannot be read: {error}")

    def keep(self, consumer: Consumer, tags: Sequence[int], entries: Sequence[Entry]) -> None:
        """Take deliveries back from a branch that was rolled back (`branches.branch.Keeper`). `tags` are their numbers.

        If another link has the terminus now, its client regards them as settled, because its attach did not name them.
        They get the default outcome then.
        """
        if self.latest:
            self.terminus.deliveries.keep(consumer, tags, entries)
            self._termini.durable.unsettled(self.terminus)
        else:
            self._termini.engine.settle(consumer, list(entries), self.terminus.settings.default)

    def take_up(self, numbers: Sequence[int]) -> tuple[list[TakenUp], int]:
        """Return unsettled deliveries that the link sends again (`Acquisitions.take_up`), and the LSN for which their
        transfers wait (0: no wait), because an acquisition may not be on disk yet. Raises UNAVAILABLE, with nothing
        changed, if one of them cannot be read from the log.
        """
        self._check()
        terminus = self.terminus
        try:
            taken = terminus.deliveries.take_up(numbers)
        except LogUnreadable as error:
            raise self._unreadable(error) from error
        return taken, self._termini.engine.log.end_lsn if terminus.keeps else 0

    def settle_tags(self, tags: Iterable[bytes], disposition: Disposition | Modification) -> int:
        """Settle the deliveries with these tags, whose outcome a resuming receiver already knows. Raises UNAVAILABLE as
        `settle`.
        """
        self._check()
        deliveries = self.terminus.deliveries
        numbers = sorted(number for number in map(deliveries.number_of, tags) if number is not None)
        if disposition is not Disposition.ACCEPTED:
            self.take_up(numbers)  # loads those that return to their queue, together
        return sum([self.settle(number, number, disposition) for number in numbers])

    # -- from the producer to the broker

    def post(
        self, envelope: Envelope, contents: list[bytes], queues: Sequence[Queue], tags: Sequence[bytes]
    ) -> Receipt:
        """Publish a run of messages with these tags (SET-8). The outcomes wait for the LSN of the receipt. Messages
        that it lists as refused leave no tag; `note` their outcome.

        Raises ILLEGAL_STATE if a tag belongs to an unsettled delivery, LIMIT_EXCEEDED for too many of them.
        """
        self._begin(tags)
        return post(self._termini.engine, self.terminus, envelope, contents, queues, tags)

    def _begin(self, tags: Sequence[bytes]) -> None:
        self._check()
        arrivals = self.terminus.arrivals
        arrivals.check_new(tags)
        self._termini.check_room(self.terminus, len(tags))
        self._termini.record_forgotten(self.terminus, tags)
        arrivals.supersede(tags)

    def interrupted(self, partial: Partial) -> None:
        """Keep a delivery that the link has received in part, until a link resumes (SET-4). The log does not have it.

        Messages that had arrived before, and were being sent again, need no part of them.
        """
        if self.latest and partial.tag not in self.terminus.arrivals:
            self.terminus.arrivals.interrupt(partial)
        else:
            partial.close()

    def arrive_in(
        self, branch: TransactionBranch, owner: PostOwner, publication: Publication, tags: Sequence[bytes]
    ) -> None:
        """Add the tags of a publication that `owner` has just enlisted in its branch. The record of the commit holds
        them. Raises as `post`; the caller then marks the branch as failed.
        """
        self._begin(tags)
        enlist(self.terminus, branch, owner, publication, tags)

    def resumed(self, tag: bytes, envelope: Envelope, content: bytes, queues: Sequence[Queue]) -> Arrival | Receipt:
        """Take a message that a resuming sender sends again in full. Return its outcome if it is the message that had
        arrived with this tag (SET-9). Otherwise publish it; the old message is forgotten.
        """
        return self.recognised(tag, content) or self.post(envelope, [content], queues, (tag,))

    def recognised(self, tag: bytes, content: bytes) -> Arrival | None:
        """Return the outcome of a message that a resuming sender sends again in full, if it is the message that had
        arrived with this tag (SET-9). Otherwise forget the old message.
        """
        self._check()
        arrival = self.terminus.arrivals.get(tag)
        if arrival is not None and arrival.fingerprint == fingerprint_of(content):
            return arrival
        self.forget((tag,))
        return None

    def note(self, tag: bytes, outcome: Disposition, content: bytes, detail: bytes = b"") -> None:
        """Note the outcome of a message that was not enqueued, until the sender settles it. It does not survive a
        restart; the sender then sends the message again.
        """
        self._check()
        self._termini.check_room(self.terminus, 1)
        self.terminus.arrivals.supersede((tag,))
        self.terminus.arrivals.note(tag, Arrival(outcome, fingerprint_of(content), detail))

    def forget(self, tags: Sequence[bytes]) -> None:
        """Forget deliveries that the sender has settled. The log learns it at the end of the turn."""
        if not self.latest:
            return
        self._termini.forget(self.terminus, self.terminus.arrivals.forget(tags))

    def reconcile(self, remote: Mapping[bytes, bool], *, complete: bool) -> dict[bytes, Arrival | None]:
        """Compare with the unsettled deliveries of a sender that resumes (`Arrivals.reconcile`)."""
        self._check()
        found, gone = self.terminus.arrivals.reconcile(remote, complete=complete)
        self._termini.forget_all(self.terminus, gone)
        return found


def _durable_ranges(first: int, entries: list[Entry]) -> list[NumberedRange]:
    """Return the numbers, from `first` on, and the positions of those entries that are durable, as ranges."""
    if all(run.envelope.durable for run in set(map(_run, entries))):
        positions = list(map(_position, entries))
        if positions == list(range(positions[0], positions[0] + len(positions))):
            return [NumberedRange(first, positions[0], len(positions))]
    return numbered_ranges(
        [(number, entry.position) for number, entry in enumerate(entries, first) if entry.run.envelope.durable]
    )
