"""The class escrow (240): bulk reading of queues in reserved ranges, bulk publishing, and decisions over global
transactions.

It is an extension of AMQP 0-9-1; docs/internals/bulk.md describes its methods. A refusal closes the channel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from escrowmq.core.access.table import Operation
from escrowmq.core.branches.progress import application_key
from escrowmq.core.branches.xid import Xid
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.amqp091 import blocks, bulk, spec
from escrowmq.wire.amqp091.content import Content
from escrowmq.wire.amqp091.dtx_methods import on_channel
from escrowmq.wire.amqp091.frames import method_frame
from escrowmq.wire.amqp091.operations import Handler
from escrowmq.wire.amqp091.queue_methods import name_of_queue, queue_named
from escrowmq.wire.amqp091.table import FieldValue

if TYPE_CHECKING:
    from escrowmq.core.branches.xa_branch import XaBranch
    from escrowmq.core.queues.queue import Queue
    from escrowmq.wire.amqp091.channel import Channel

_NO_PROPERTIES: Final = b"\0\0"
_LIST: Final = 64  # the octets of a list-ok frame that are not names, rounded up
_ITEM: Final = 5
_LOOKED_AT: Final = 500  # names that are looked up together
_DECODED: Final = 10  # names in a request that cost one unit
_MOST_EPOCH: Final = (1 << 63) - 1


def hold(channel: Channel, method: spec.EscrowHold) -> None:
    """Reserve a range of messages (PIPE-1). The answer waits for the disk, so it stays true after any crash."""
    queue = _held(channel, method.queue, method.group, Operation.RESERVE)
    state = channel.broker.reservations.reserve(
        queue, method.group, method.most, method.until, user=channel.connection.user
    )
    channel.send(spec.EscrowHoldOk(state.first, state.end, state.added, state.settled), state.lsn)


def read(channel: Channel, method: spec.EscrowRead) -> None:
    """Read reserved messages. The answer's content has the form of class basic, so that any library can read it."""
    queue = _of_group(channel, method.queue, method.group, Operation.READ_RESERVED)
    batch = channel.broker.reservations.read(queue, method.group, method.first, method.end, method.most_bytes)
    answer = method_frame(channel.number, spec.EscrowReadOk(batch.first, batch.next, len(batch.positions)))
    channel.connection.put_content(channel.number, answer, _NO_PROPERTIES, bulk.encode(batch))


def settle(channel: Channel, method: spec.EscrowSettle) -> None:
    """Settle a reservation: in the channel's transaction if it has one, otherwise at once, with an answer that waits
    for the disk.
    """
    queue = _held(channel, method.queue, method.group, Operation.SETTLE_RESERVED)
    broker = channel.broker
    work = broker.reservations.settlement(queue, method.group, method.end)
    lsn = 0
    if channel.branch is None:
        lsn = broker.reservations.settle(work)
    elif work is not None:
        broker.transactions.settle_reservation(channel.branch, work)
    channel.send(spec.EscrowSettleOk(), lsn)


def release(channel: Channel, method: spec.EscrowRelease) -> None:
    queue = _held(channel, method.queue, method.group, Operation.RELEASE_RESERVED)
    count, lsn = channel.broker.reservations.release(queue, method.group)
    channel.send(spec.EscrowReleaseOk(count), lsn)


def describe(channel: Channel, method: spec.EscrowDescribe) -> None:
    queue = queue_named(channel, method.queue, Operation.DESCRIBE_QUEUE)
    channel.send(spec.EscrowDescribeOk(*channel.broker.reservations.describe(queue)))


def decide(channel: Channel, method: spec.EscrowDecide) -> Iterator[bool | None]:
    """Decide a global transaction (PIPE-2). Unroutable messages are returned to the deciding channel, as with a
    commit. Branches that the user may not decide count as unknown, also if their gtrid is the same.
    """
    winners, requests = _winners(method), channel.broker.engine.requests
    if method.epoch > _MOST_EPOCH:
        raise BrokerError(Condition.INVALID_ARGUMENT, "the epoch must be below 2^63")
    key = application_key(channel.vhost.name, method.application)
    coordinator, door = channel.broker.coordinator, channel.door
    door.check(Operation.SET_PROGRESS, progress=coordinator.progress.find(key))
    requests.left -= len(winners) // _DECODED
    names: list[bytes] = []
    for value in winners:
        name = value.encode() if isinstance(value, str) else value
        if not isinstance(name, bytes):
            raise BrokerError(Condition.INVALID_ARGUMENT, "branch qualifiers must be byte strings")
        names.append(name)
        winner = channel.broker.branches.by_xid.get(Xid(method.format_id, method.gtrid, name))
        if winner is not None and winner.vhost == channel.vhost.name:
            door.check(Operation.DECIDE_BRANCH, branch=winner)
        requests.left -= 1
        if requests.left <= 0:
            yield None
    entitled = True

    def permitted(branch: XaBranch) -> bool:
        nonlocal entitled
        if branch.vhost != channel.vhost.name or not door.allows(Operation.DECIDE_BRANCH, branch=branch):
            return False
        entitled = entitled and door.covers(branch)
        return True

    result = yield from channel.broker.large_requests.decide(
        method.gtrid,
        method.format_id,
        names,
        application=key,
        epoch=method.epoch,
        user=channel.connection.user,
        permitted=permitted,
    )
    if entitled:
        for publication in result.returned:
            channel.send_returns(publication.envelope, publication.contents, result.lsn)
    channel.send(spec.EscrowDecideOk(result.status), result.lsn)


def _winners(method: spec.EscrowDecide) -> list[FieldValue]:
    winners = method.winners.get("bqual")
    if not isinstance(winners, list) or set(method.winners) != {"bqual"}:
        raise BrokerError(Condition.INVALID_ARGUMENT, "winners must have one field, bqual, which is a list")
    return winners


def progress(channel: Channel, method: spec.EscrowProgress) -> None:
    """Report the last decided epoch. The answer waits for the disk, so the reported decision is final."""
    table, key = channel.broker.coordinator.progress, application_key(channel.vhost.name, method.application)
    channel.door.check(Operation.GET_PROGRESS, progress=table.find(key))
    epoch = table.epoch(key)
    channel.send(spec.EscrowProgressOk(epoch is not None, epoch or 0), channel.broker.log.end_lsn)


def list_(channel: Channel, method: spec.EscrowList) -> Iterator[None]:
    """The queues that the user may read, in order of their names, from the first name after `after`; as many as fit
    into a frame.
    """
    room = channel.connection.frame_max - _LIST
    found: list[FieldValue] = []
    requests, after = channel.broker.engine.requests, method.after
    while room >= 0 and (names := channel.vhost.names_behind(after, _LOOKED_AT)):
        after = names[-1]
        for name in names:
            requests.left -= 1
            if requests.left <= 0:
                yield
            try:
                queue_named(channel, name, Operation.LIST_QUEUE)
            except BrokerError:
                continue  # the user may not read it, or it is gone, or another connection uses it exclusively
            room -= len(name.encode("utf-8", "surrogatepass")) + _ITEM
            if room < 0:
                break
            found.append(name)
    channel.send(spec.EscrowListOk({"name": found}))


def partitions(channel: Channel, method: spec.EscrowPartitions) -> None:
    """Report how many partitions a topic has, 0 if there is no such topic. Partition i is the stream `TOPIC-i`; users
    that may read the streams need no right on the topic itself.
    """
    if not channel.door.allows(Operation.DESCRIBE_QUEUE, queue=f"{method.topic}-0"):
        channel.door.check(Operation.DESCRIBE_TOPIC, exchange=method.topic)
    topic = channel.broker.topics.find(channel.vhost, method.topic)
    channel.send(spec.EscrowPartitionsOk(0 if topic is None else len(topic.streams)))


def publish(channel: Channel, method: spec.EscrowPublish) -> None:
    """Expect a block of messages as content. `block_publishing` publishes it when it is complete."""
    if channel.branch is None:
        raise BrokerError(Condition.COMMAND_INVALID, "escrow.publish is possible only in a transaction")
    channel.content = Content(method.encode(), blocks.MOST_BYTES)


def _held(channel: Channel, name: str, group: str, operation: Operation) -> Queue:
    queue = _of_group(channel, name, group, operation)
    if not group:
        raise BrokerError(Condition.INVALID_ARGUMENT, "the name of the group is empty")
    return queue


def _of_group(channel: Channel, name: str, group: str, operation: Operation) -> Queue:
    """Return the queue, if the user may do `operation` with the messages of `group`. Raises ACCESS_REFUSED, and as
    `queue_named`.
    """
    found = channel.vhost.queues.get(name_of_queue(channel, name))
    reservation = None if found is None else found.reservations.get(group)
    return queue_named(channel, name, operation, reservation=reservation)


HANDLERS: Final[dict[int, Handler]] = {
    spec.EscrowHold.INDEX: hold,
    spec.EscrowRead.INDEX: read,
    spec.EscrowSettle.INDEX: settle,
    spec.EscrowRelease.INDEX: release,
    spec.EscrowDescribe.INDEX: describe,
    spec.EscrowDecide.INDEX: on_channel(decide),
    spec.EscrowProgress.INDEX: progress,
    spec.EscrowList.INDEX: list_,
    spec.EscrowPartitions.INDEX: partitions,
    spec.EscrowPublish.INDEX: publish,
}
