"""The settlement of deliveries: message.accept, reject, release and acquire. Ranges may be huge, so the work is done in
pieces. Numbers that are not outstanding are passed over, as other brokers do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.core import budget
from escrowmq.core.branches.branch import RETURN, Keep, Settlement, TransactionBranch
from escrowmq.core.branches.xa_branch import XaBranch
from escrowmq.core.budget import DEAD_LETTERED, EXAMINED, RETURNED
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.queues.outcome import Disposition, Outcome
from escrowmq.core.queues.returning import TOGETHER, Standstill
from escrowmq.core.queues.runs import Stretch
from escrowmq.core.queues.unsettled import Unsettled, by_consumer, entries_by_consumer
from escrowmq.wire.amqp010.codec.spec import Acquired, RejectCode
from escrowmq.wire.amqp010.ports import SETTLED, Reply
from escrowmq.wire.amqp010.sequence import Numbers, counted, wire_ranges
from escrowmq.wire.amqp010.subscriptions import Subscriptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from escrowmq.wire.amqp010.codec.spec import MessageAccept, MessageAcquire, MessageReject, MessageRelease
    from escrowmq.wire.amqp010.codec.types import Ranges
    from escrowmq.wire.amqp010.ports import Content, SessionPort, Work

AT_ONCE: Final = 500
"""Unsettled deliveries up to which an acceptance is a single piece of work."""
_ACCEPTED_TOGETHER: Final = 2 * TOGETHER  # acceptances cost less than returns
_ACQUIRED: Final = 8191 - TOGETHER  # ranges of acquired messages; one piece may add others, and a result has 8,191
_RANGES: Final = 64  # ranges up to which an acceptance is a single piece of work
_ACCEPTED: Final = Disposition.ACCEPTED  # found sooner than a member of an enumeration


def message_accept(session: SessionPort, command: MessageAccept, _: Content | None) -> Reply | Work | None:
    """Accept deliveries: they have left their queues, or do so when the transaction is committed."""
    subscriptions = session.part(Subscriptions)
    ranges = _tags(session, command.transfers)
    if subscriptions.unsettled.count <= AT_ONCE and len(ranges) <= _RANGES:
        taken: list[Stretch] = []
        for first, last in ranges:
            taken += subscriptions.unsettled.take_between(first, last)
        return SETTLED if taken and _accept(subscriptions, taken)[1] else None
    return _accept_in_pieces(subscriptions, ranges)


def _accept_in_pieces(subscriptions: Subscriptions, ranges: list[tuple[int, int]]) -> Work:
    requests, recorded = subscriptions.broker.engine.requests, False
    for taken in _pieces(subscriptions, ranges, _ACCEPTED_TOGETHER):
        if taken:
            consumers, logged = _accept(subscriptions, taken)
            recorded = recorded or logged
            requests.left -= sum([len(entries) for _, entries, _ in taken]) // budget.SETTLED + consumers
        if requests.left <= 0:
            yield None
    return SETTLED if recorded else None


def _accept(subscriptions: Subscriptions, taken: list[Stretch]) -> tuple[int, bool]:
    """Accept deliveries. Return the number of consumers that they belong to, and whether the log may record that. In a
    transaction, only its outcome is recorded.
    """
    branch, logged = subscriptions.session.branch, False
    if branch is not None:
        consumers = _enlist(subscriptions, branch, taken)
    else:
        found = entries_by_consumer(taken)
        consumers = len(found)
        for consumer in found:
            logged = logged or consumer.queue.logged
        subscriptions.broker.engine.settle_each(found, _ACCEPTED)
    subscriptions.count_freed()
    return consumers, logged


def _enlist(subscriptions: Subscriptions, branch: TransactionBranch, taken: list[Stretch]) -> int:
    """Accept deliveries in a transaction. After a rollback of a local one the client still holds them (TX-4); those of
    a distributed one return to their queues (DTX-14).
    """
    returns = isinstance(branch, XaBranch)
    groups = by_consumer(taken)
    for i, (consumer, tags, entries) in enumerate(groups, 1):
        undo = RETURN if returns else Keep(subscriptions, tags)
        try:
            subscriptions.broker.transactions.enlist(branch, Settlement(consumer, entries, _ACCEPTED, undo))
        except BrokerError:  # the branch has undone the settlement that it refused
            for other, others, rest in groups[i:]:
                subscriptions.keep(other, others, rest)
            raise
    return len(groups)


def message_release(session: SessionPort, command: MessageRelease, _: Content | None) -> Work:
    """Return deliveries to their places in their queues. With `set-redelivered` they count as failed deliveries;
    otherwise they are as before their delivery. A shown message can be acquired no more.

    Deliveries that were accepted in the open local transaction are returned when it is rolled back, because qpid-python
    releases everything before each rollback. After a commit, their release has no effect.
    """
    subscriptions = session.part(Subscriptions)
    ranges = _tags(session, command.transfers)
    requests = subscriptions.broker.engine.requests
    if subscriptions.shown:
        for first, last in ranges:
            subscriptions.shown.take(first - 1, last - 1, last - first + 1)
            requests.left -= 1
            if requests.left <= 0:
                yield None
    if session.branch is not None and session.branch.settlements and not isinstance(session.branch, XaBranch):
        for at in range(0, len(ranges), _RANGES):
            some = ranges[at : at + _RANGES]
            subscriptions.release_after_rollback(some, set_redelivered=command.set_redelivered)
            requests.left -= len(some)
            if requests.left <= 0:
                yield None
    return (yield from _release(session, ranges, set_redelivered=command.set_redelivered))


def released_before_rollback(session: SessionPort) -> Work:
    """Return the deliveries that the client has released while they were accepted in a transaction, which is rolled
    back now.
    """
    reply: Reply | None = None
    for set_redelivered, ranges in session.part(Subscriptions).take_released():
        reply = (yield from _release(session, ranges, set_redelivered=set_redelivered)) or reply
    return reply


def _release(session: SessionPort, ranges: list[tuple[int, int]], *, set_redelivered: bool) -> Work:
    """Only deliveries that count as failed leave a trace in the log: their number, or a dead letter."""
    subscriptions = session.part(Subscriptions)
    engine = session.broker.engine
    give_back = engine.requeue if set_redelivered else engine.put_back
    pause, returned = Standstill(subscriptions.unsettled.queues()), False
    try:
        for taken in _pieces(subscriptions, ranges, min(TOGETHER, engine.returns.piece)):
            returned = returned or bool(taken)
            for consumer, entries in entries_by_consumer(taken).items():
                engine.requests.left -= 1 + len(entries) // RETURNED
                give_back(consumer, entries)
            if engine.requests.left <= 0:
                yield None
    finally:
        pause.end(engine.dirty)
    subscriptions.count_freed()
    return SETTLED if returned and set_redelivered else None


def message_reject(session: SessionPort, command: MessageReject, _: Content | None) -> Work:
    """Dead-letter deliveries. Messages that the client has not acquired stay where they are (rule acquisition)."""
    if command.code not in (None, RejectCode.UNSPECIFIED, RejectCode.UNROUTABLE, RejectCode.IMMEDIATE):
        raise BrokerError(Condition.INVALID_ARGUMENT, f"there is no reject-code {command.code}")
    subscriptions = session.part(Subscriptions)
    engine, unsettled, rejected = session.broker.engine, subscriptions.unsettled, False
    for first, last in _tags(session, command.transfers):
        tag = first
        while unsettled.count:
            most = min(max(engine.requests.left // DEAD_LETTERED, 1), TOGETHER)
            reached = _reach(unsettled, tag, last, most)
            if reached is None:
                break
            portion = engine.dead_letters.portion(Outcome.REJECTED)
            reached = portion.reach(unsettled.stretches(tag, reached), tag, reached, most)
            taken = unsettled.take_between(tag, reached)
            rejected = rejected or bool(taken)
            engine.settle_each(entries_by_consumer(taken), Disposition.REJECTED)
            engine.requests.left -= DEAD_LETTERED * sum([len(entries) for _, entries, _ in taken])
            tag = reached + 1
            if engine.requests.left <= 0:
                yield None
    subscriptions.count_freed()
    return SETTLED if rejected else None


def message_acquire(session: SessionPort, command: MessageAcquire, _: Content | None) -> Work:
    """Take messages that were shown to browsing subscriptions, as far as they are still in their queues. The result
    names those that the client has now. More ranges than a result can have are not acquired.
    """
    subscriptions = session.part(Subscriptions)
    engine = session.broker.engine
    acquired = Numbers()
    for first, last in counted(command.transfers or (), session.next_id):
        engine.requests.left -= 1
        number = first
        while number <= last and len(acquired) < _ACQUIRED:
            most = min(max(engine.requests.left // EXAMINED, 1), TOGETHER)
            runs, number = subscriptions.shown.take(number, last, most)
            for run in runs:
                engine.requests.left -= EXAMINED * run.length
                for i in range(run.length if not run.queue.deleted else 0):
                    entries = engine.fetch_at(run.queue, run.position + i, label=session.label)
                    if entries:
                        acquired.add(run.first + i, run.first + i)
                        subscriptions.unsettled.restore(run.queue.getter, [run.first + i + 1], entries)
            if engine.requests.left <= 0:
                yield None
    session.count_held()
    return Reply(Acquired(wire_ranges(list(acquired))))


def _tags(session: SessionPort, transfers: Ranges | None) -> list[tuple[int, int]]:
    """The tags of deliveries in ranges of transfers. Raises INVALID_ARGUMENT for a range that ends before it begins."""
    return [(first + 1, last + 1) for first, last in counted(transfers or (), session.next_id)]


def _pieces(subscriptions: Subscriptions, ranges: list[tuple[int, int]], most: int) -> Iterator[list[Stretch]]:
    """Remove and yield the unsettled deliveries in `ranges`, at most `most` at a time. A range without any is a piece,
    too.
    """
    unsettled = subscriptions.unsettled
    for first, last in ranges:
        tag: int | None = first
        while tag is not None:
            reached = _reach(unsettled, tag, last, most)
            if reached is None:
                subscriptions.broker.engine.requests.left -= 1
                yield []
                break
            yield unsettled.take_between(tag, reached)
            tag = reached + 1


def _reach(unsettled: Unsettled, first: int, last: int, most: int) -> int | None:
    """Return the tag of the `most`-th delivery with a tag from `first` on, or of the last one up to `last`, if that
    comes first. None if there is no delivery in this range.
    """
    reached: int | None = None
    for tag, entries, _ in unsettled.stretches(first, last):
        if len(entries) >= most:
            return tag + most - 1
        most -= len(entries)
        reached = tag + len(entries) - 1
    return reached
