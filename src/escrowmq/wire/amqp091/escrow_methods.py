"""The class escrow (240): bulk reading of queues in ranges that are held, and decisions over global transactions.

It is an extension of AMQP 0-9-1; docs/internals/bulk.md describes its methods. A refusal closes the channel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.amqp091 import bulk, spec
from escrowmq.wire.amqp091.dtx_methods import on_channel
from escrowmq.wire.amqp091.frames import method_frame
from escrowmq.wire.amqp091.queue_methods import Handler, queue_named
from escrowmq.wire.amqp091.table import FieldValue

if TYPE_CHECKING:
    from escrowmq.core.queues.queue import Queue
    from escrowmq.wire.amqp091.channel import Channel

_NO_PROPERTIES: Final = b"\0\0"
_LIST: Final = 64  # the octets of a list-ok frame that are not names, rounded up
_ITEM: Final = 5
_MOST_EPOCH: Final = (1 << 63) - 1


def hold(channel: Channel, method: spec.EscrowHold) -> None:
    """Hold a range of messages (PIPE-1). The answer waits for the disk, so it stays true after any crash."""
    queue = _readable(channel, method.queue, method.group)
    state = channel.broker.reservations.reserve(queue, method.group, method.most, method.until)
    channel.send(spec.EscrowHoldOk(state.first, state.end, state.added, state.settled), state.lsn)


def read(channel: Channel, method: spec.EscrowRead) -> None:
    """Read held messages. The answer's content has the form of class basic, so that any library can read it."""
    queue = queue_named(channel, method.queue, "read")
    batch = channel.broker.reservations.read(queue, method.group, method.first, method.end, method.most_bytes)
    answer = method_frame(channel.number, spec.EscrowReadOk(batch.first, batch.next, len(batch.positions)))
    channel.connection.put_content(channel.number, answer, _NO_PROPERTIES, bulk.encode(batch))


def settle(channel: Channel, method: spec.EscrowSettle) -> None:
    """Settle a reservation: in the channel's transaction if it has one, else at once; then the answer waits for the
    disk.
    """
    queue = _readable(channel, method.queue, method.group)
    broker = channel.broker
    work = broker.reservations.settlement(queue, method.group, method.end)
    lsn = 0
    if channel.branch is None:
        lsn = broker.reservations.settle(work)
    elif work is not None:
        broker.transactions.settle_reservation(channel.branch, work)
    channel.send(spec.EscrowSettleOk(), lsn)


def release(channel: Channel, method: spec.EscrowRelease) -> None:
    queue = _readable(channel, method.queue, method.group)
    count, lsn = channel.broker.reservations.release(queue, method.group)
    channel.send(spec.EscrowReleaseOk(count), lsn)


def describe(channel: Channel, method: spec.EscrowDescribe) -> None:
    queue = queue_named(channel, method.queue, "read")
    channel.send(spec.EscrowDescribeOk(*channel.broker.reservations.describe(queue)))


def decide(channel: Channel, method: spec.EscrowDecide) -> None:
    """Decide a global transaction (PIPE-2). Unroutable messages are returned to the deciding channel, as with a
    commit.
    """
    winners = method.winners.get("bqual")
    if not isinstance(winners, list) or set(method.winners) != {"bqual"}:
        raise BrokerError(Condition.INVALID_ARGUMENT, "winners must have one field, bqual, which is a list")
    names = [name.encode() if isinstance(name, str) else name for name in winners]
    if not all(isinstance(name, bytes) for name in names):
        raise BrokerError(Condition.INVALID_ARGUMENT, "branch qualifiers must be byte strings")
    if method.epoch > _MOST_EPOCH:
        raise BrokerError(Condition.INVALID_ARGUMENT, "the epoch must be below 2^63")
    result = channel.broker.coordinator.decide(
        method.gtrid,
        method.format_id,
        [name for name in names if isinstance(name, bytes)],
        application=_named(channel, method.application),
        epoch=method.epoch,
        vhost=channel.vhost.name,
    )
    for publication in result.returned:
        channel.send_returns(publication.envelope, publication.contents, result.lsn)
    channel.send(spec.EscrowDecideOk(result.status), result.lsn)


def progress(channel: Channel, method: spec.EscrowProgress) -> None:
    """Report the last decided epoch. The answer waits for the disk, so the reported decision is final."""
    epoch = channel.broker.coordinator.progress(_named(channel, method.application))
    channel.send(spec.EscrowProgressOk(epoch is not None, epoch or 0), channel.broker.log.end_lsn)


def list_(channel: Channel, method: spec.EscrowList) -> None:
    """The queues that the user may read, in order of their names, from the first name after `after`; as many as fit
    into a frame.
    """
    room = channel.connection.frame_max - _LIST
    found: list[FieldValue] = []
    for name in sorted(name for name in channel.vhost.queues if name > method.after):
        try:
            queue_named(channel, name, "read")
        except BrokerError:
            continue  # the user may not read it, or another connection uses it exclusively
        room -= len(name.encode("utf-8", "surrogatepass")) + _ITEM
        if room < 0:
            break
        found.append(name)
    channel.send(spec.EscrowListOk({"name": found}))


def _named(channel: Channel, application: str) -> str:
    """The core's name for an application. It contains the virtual host, so equal names in two virtual hosts do not
    clash.
    """
    return f"{channel.vhost.name}\0{application}" if application else ""


def _readable(channel: Channel, name: str, group: str) -> Queue:
    queue = queue_named(channel, name, "read")
    if not group:
        raise BrokerError(Condition.INVALID_ARGUMENT, "the name of the group is empty")
    return queue


HANDLERS: Final[dict[int, Handler]] = {
    spec.EscrowHold.INDEX: hold,
    spec.EscrowRead.INDEX: read,
    spec.EscrowSettle.INDEX: settle,
    spec.EscrowRelease.INDEX: release,
    spec.EscrowDescribe.INDEX: describe,
    spec.EscrowDecide.INDEX: on_channel(decide),
    spec.EscrowProgress.INDEX: progress,
    spec.EscrowList.INDEX: list_,
}
