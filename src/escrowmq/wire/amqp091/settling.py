"""The settlement of a channel's deliveries: basic.ack, nack, reject and recover, outside and inside transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from escrowmq.core.access.holdings import STEP
from escrowmq.core.branches.branch import RETURN, Keep, Settlement, TransactionBranch
from escrowmq.core.budget import DEAD_LETTERED, RETURNED, SETTLED
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.queues.outcome import Disposition, Outcome
from escrowmq.core.queues.returning import TOGETHER, Standstill
from escrowmq.core.queues.runs import Stretch
from escrowmq.core.queues.unsettled import by_consumer, entries_by_consumer

if TYPE_CHECKING:
    from escrowmq.wire.amqp091.channel import Channel

AT_ONCE: Final = 64
"""Unsettled deliveries up to which a method that concerns several is a single piece of work."""
_ACCEPTED_TOGETHER: Final = 2 * TOGETHER  # acceptances cost less than returns
_ACCEPTED: Final = Disposition.ACCEPTED  # found sooner than a member of an enumeration
_MODIFIED: Final = Disposition.MODIFIED


def settle(channel: Channel, tag: int, disposition: Disposition, *, multiple: bool) -> None:
    """Execute basic.ack, nack or reject. Raises PRECONDITION_FAILED if the tag is not outstanding."""
    if multiple:
        taken = channel.unsettled.take_through(tag)
    else:
        one = channel.unsettled.take(tag)
        taken = [] if one is None else [one]
    if taken:
        _settle(channel, taken, disposition)
    elif tag or not multiple:
        raise _unknown_tag(tag)


def settle_in_pieces(channel: Channel, tag: int, disposition: Disposition) -> Iterator[None]:
    """Like `settle` with `multiple`, for many deliveries: a part of them at a time. Nothing overtakes those that
    return.
    """
    unsettled, requests = channel.unsettled, channel.broker.engine.requests
    tag = tag or unsettled.last_tag
    if tag not in unsettled:
        raise _unknown_tag(tag)
    returns = disposition is _MODIFIED and channel.branch is None
    cost = DEAD_LETTERED if disposition is Disposition.REJECTED else 1 / RETURNED if returns else 1 / SETTLED
    pause = Standstill(unsettled.queues() if returns else ())
    together = _ACCEPTED_TOGETHER if disposition is _ACCEPTED else TOGETHER
    most, dead_letters = min(together, channel.broker.engine.returns.piece), channel.broker.engine.dead_letters
    rejects = disposition is Disposition.REJECTED and channel.branch is None
    try:
        reached = 0
        while reached != tag:
            if cost > 1:
                most = min(max(requests.left // DEAD_LETTERED, 1), together)
            if rejects:
                reached = dead_letters.portion(Outcome.REJECTED).reach(unsettled.stretches(), 0, tag, most)
            else:
                reached = unsettled.reach(tag, most)
            before = unsettled.count
            groups = _settle(channel, unsettled.take_through(reached), disposition)
            requests.left -= groups + int(cost * (before - unsettled.count))
            if requests.left <= 0 and reached != tag:
                yield
    finally:
        pause.end(channel.broker.engine.dirty)


def settle_each(channel: Channel, tags: list[int]) -> None:
    """Settle single acknowledgements in order. Raises PRECONDITION_FAILED; tags before the fault stay settled."""
    before = channel.unsettled.count
    taken = channel.unsettled.take_each(tags)
    count = before - channel.unsettled.count
    if taken:
        _settle(channel, taken, _ACCEPTED)
    if count < len(tags):
        raise _unknown_tag(tags[count])


def _settle(channel: Channel, taken: list[Stretch], disposition: Disposition) -> int:
    """Settle deliveries. Return the number of consumers that they belong to."""
    if channel.holding.share > STEP:  # one step stays
        channel.holding.shrink(channel.counted_bytes)
    if channel.branch is not None:
        return _settle_in(channel, channel.branch, taken, disposition)
    groups = entries_by_consumer(taken)
    channel.broker.engine.settle_each(groups, disposition)
    return len(groups)


def _settle_in(channel: Channel, branch: TransactionBranch, taken: list[Stretch], disposition: Disposition) -> int:
    kept = channel.demarcation is None
    groups = by_consumer(taken)
    for i, (consumer, tags, entries) in enumerate(groups, 1):
        undo = Keep(channel, tags) if kept else RETURN
        try:
            channel.broker.transactions.enlist(branch, Settlement(consumer, entries, disposition, undo))
        except BrokerError:  # the branch has undone the settlement that it refused
            for other, others, rest in groups[i:]:
                channel.keep(other, others, rest)
            raise
    return len(groups)


def recover(channel: Channel, *, requeue: bool) -> Iterator[None]:
    """Execute basic.recover: every unsettled delivery returns to its queue or is sent again to the same consumer, a
    part of them at a time.

    If the client does not read its deliveries, the rest of them return to the queue and are delivered when the client
    reads again.
    """
    unsettled, engine, last = channel.unsettled, channel.broker.engine, channel.unsettled.last_tag
    pause = Standstill(unsettled.queues())
    try:
        reached = 0
        while reached != last:
            reached = unsettled.reach(last, min(TOGETHER, engine.returns.piece))
            for consumer, _, entries in by_consumer(unsettled.take_through(reached)):
                requeue = requeue or not channel.writable
                engine.requests.left -= 1 + len(entries) // RETURNED
                if requeue or consumer.receiver is None or consumer.tag not in channel.consumers:
                    engine.requeue(consumer, entries)
                    continue
                for entry in entries:
                    entry.deliveries += 1
                channel.deliver(consumer, entries)
            if engine.requests.left <= 0 and reached != last:
                yield
    finally:
        pause.end(engine.dirty)


def _unknown_tag(tag: int) -> BrokerError:
    return BrokerError(Condition.PRECONDITION_FAILED, f"unknown delivery tag {tag}")
