"""The settlement of a channel's deliveries: basic.ack, nack, reject and recover, outside and inside transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from escrowmq.core.access.holdings import STEP
from escrowmq.core.branches.branch import RETURN, Keep, Settlement, TransactionBranch
from escrowmq.core.budget import DEAD_LETTERED, SETTLED
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.unsettled import Stretch, by_consumer, entries_by_consumer

if TYPE_CHECKING:
    from escrowmq.wire.amqp091.channel import Channel

_LEAST: Final = 32  # deliveries that are settled in any case when a request goes on
_ACCEPTED: Final = Disposition.ACCEPTED  # found sooner than a member of an enumeration


def settle(channel: Channel, tag: int, disposition: Disposition, *, multiple: bool) -> None:
    """Execute basic.ack, nack or reject. Raises PRECONDITION_FAILED if the tag is not outstanding."""
    if multiple:
        taken = channel.unsettled.take_through(tag)
        if disposition is Disposition.MODIFIED and channel.branch is None and taken:
            channel.holding.shrink(channel.counted_bytes)
            channel.broker.engine.give_back([(consumer, entries) for _, entries, consumer in taken])
            return
    else:
        one = channel.unsettled.take(tag)
        taken = [] if one is None else [one]
    if taken:
        _settle(channel, taken, disposition)
    elif tag or not multiple:
        raise _unknown_tag(tag)


def settle_in_pieces(channel: Channel, tag: int, disposition: Disposition) -> Iterator[None]:
    """Like `settle` with `multiple`, for many deliveries: a part of them at a time."""
    unsettled, requests = channel.unsettled, channel.broker.engine.requests
    tag = tag or unsettled.last_tag
    if tag not in unsettled:
        raise _unknown_tag(tag)
    cost = 1 / SETTLED if disposition is Disposition.ACCEPTED else DEAD_LETTERED
    while True:
        reached = unsettled.reach(tag, max(int(requests.left / cost), _LEAST))
        before = unsettled.count
        _settle(channel, unsettled.take_through(reached), disposition)
        requests.left -= int(cost * (before - unsettled.count))
        if reached == tag:
            return
        yield


def settle_each(channel: Channel, tags: list[int]) -> None:
    """Settle single acknowledgements in order. Raises PRECONDITION_FAILED; tags before the fault stay settled."""
    before = channel.unsettled.count
    taken = channel.unsettled.take_each(tags)
    count = before - channel.unsettled.count
    if taken:
        _settle(channel, taken, _ACCEPTED)
    if count < len(tags):
        raise _unknown_tag(tags[count])


def _settle(channel: Channel, taken: list[Stretch], disposition: Disposition) -> None:
    if channel.holding.share > STEP:  # one step stays
        channel.holding.shrink(channel.counted_bytes)
    if channel.branch is not None:
        _settle_in(channel, channel.branch, taken, disposition)
        return
    channel.broker.engine.settle_each(entries_by_consumer(taken), disposition)


def _settle_in(channel: Channel, branch: TransactionBranch, taken: list[Stretch], disposition: Disposition) -> None:
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


def recover(channel: Channel, *, requeue: bool) -> None:
    """Execute basic.recover: every unsettled delivery returns to its queue or is sent again to the same consumer.

    If the client does not read its deliveries, they return to the queue and are delivered when the client reads
    again.
    """
    engine = channel.broker.engine
    if requeue:
        engine.give_back([(consumer, entries) for _, entries, consumer in channel.unsettled.clear()])
        return
    for consumer, _, entries in by_consumer(channel.unsettled.clear()):
        if consumer.receiver is None or consumer.tag not in channel.consumers or not channel.writable:
            engine.requeue(consumer, entries)
            continue
        for entry in entries:
            entry.deliveries += 1
        channel.deliver(consumer, entries)


def _unknown_tag(tag: int) -> BrokerError:
    return BrokerError(Condition.PRECONDITION_FAILED, f"unknown delivery tag {tag}")
