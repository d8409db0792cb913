"""The classes basic, confirm, tx and channel. Publishing is not here: the connection's reading loop handles it."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from escrowmq.core.access.holdings import SUBSCRIPTION_BYTES
from escrowmq.core.access.table import Operation
from escrowmq.core.budget import COMMIT, GETS
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.leftover import WAIT
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.credit import UNLIMITED, Credit
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.topology.arguments.consumer import consumer_options
from escrowmq.wire.amqp091 import codes, settling, spec, transaction
from escrowmq.wire.amqp091.death import with_delivery_count
from escrowmq.wire.amqp091.delivery import Deliveries
from escrowmq.wire.amqp091.errors import SyntaxFault
from escrowmq.wire.amqp091.operations import Handler
from escrowmq.wire.amqp091.properties import REPLY_TO
from escrowmq.wire.amqp091.queue_methods import queue_named
from escrowmq.wire.amqp091.reply_to import ReplyAddress
from escrowmq.wire.amqp091.stream_delivery import StreamDeliveries

if TYPE_CHECKING:
    from escrowmq.core.messages.entry import Entry
    from escrowmq.wire.amqp091.channel import Channel

ACKED_AT_ONCE: Final = 500
"""Unsettled deliveries up to which one acknowledgement of several is a single piece of work."""


def basic_qos(channel: Channel, method: spec.BasicQos) -> None:
    """As in RabbitMQ: without `global`, the limit is for each new consumer; with it, all consumers of the channel share
    it.
    """
    if method.prefetch_size:
        raise SyntaxFault(codes.NOT_IMPLEMENTED, f"prefetch_size!=0 ({method.prefetch_size})")
    if method.global_:
        channel.broker.engine.resize(channel.window, method.prefetch_count)
    else:
        channel.prefetch = method.prefetch_count
    channel.send(spec.BasicQosOk())


def basic_consume(channel: Channel, method: spec.BasicConsume) -> None:
    tag = method.consumer_tag or _fresh_tag(channel)
    if tag in channel.consumers:
        raise SyntaxFault(codes.NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
    if method.queue == REPLY_TO:
        _consume_replies(channel, method, tag)
        return
    queue = queue_named(channel, method.queue, Operation.CONSUME)
    channel.check_held(SUBSCRIPTION_BYTES, "the subscription")
    options = consumer_options(queue.vhost, queue.name, queue.options.queue_type, method.arguments)
    if queue.is_stream and (method.no_ack or not channel.prefetch):
        what = "no_ack is not supported" if method.no_ack else "consumer prefetch count is not set"
        raise BrokerError(
            Condition.PRECONDITION_FAILED, f"{what} for stream queue '{queue.name}' in vhost '{queue.vhost}'"
        )
    consumer = channel.broker.engine.subscribe(
        queue,
        channel,
        tag=tag,
        credit=Credit(UNLIMITED if method.no_ack else channel.prefetch or UNLIMITED),
        window=None if method.no_ack else channel.window,
        auto_settle=method.no_ack,
        exclusive=method.exclusive,
        options=options,
        label=f"{channel.connection.label} channel {channel.number} {tag}",
    )
    consumer.view = _deliveries(channel, tag, queue.options.queue_type)
    channel.consumers[tag] = consumer
    if not method.no_wait:
        channel.send(spec.BasicConsumeOk(tag))


def _fresh_tag(channel: Channel) -> str:
    random = urlsafe_b64encode(channel.broker.random.randbytes(16)).rstrip(b"=").decode()
    return f"amq.ctag-{random}"


def _deliveries(channel: Channel, tag: str, queue_type: str) -> Deliveries:
    frame_max = channel.connection.frame_max
    if queue_type == "stream":
        return StreamDeliveries(channel.number, tag, frame_max)
    return Deliveries(channel.number, tag, frame_max, with_delivery_count if queue_type == "quorum" else None)


def _consume_replies(channel: Channel, method: spec.BasicConsume, tag: str) -> None:
    if not method.no_ack:
        raise BrokerError(Condition.PRECONDITION_FAILED, "reply consumer cannot acknowledge")
    if channel.reply_address is not None:
        raise BrokerError(Condition.PRECONDITION_FAILED, "reply consumer already set")
    token = urlsafe_b64encode(channel.broker.random.randbytes(24)).decode()
    address = ReplyAddress(channel, f"{REPLY_TO}.{token}")
    consumer = Consumer(address, channel, tag, credit=Credit(UNLIMITED), auto_settle=True)
    consumer.view = Deliveries(channel.number, tag, channel.connection.frame_max)
    address.attach(consumer)
    channel.reply_address = address
    channel.broker.engine.direct[channel.vhost.name, address.name] = address
    channel.consumers[tag] = consumer
    if not method.no_wait:
        channel.send(spec.BasicConsumeOk(tag))


def basic_cancel(channel: Channel, method: spec.BasicCancel) -> None:
    consumer = channel.consumers.pop(method.consumer_tag, None)
    if consumer is not None:
        if consumer.queue is channel.reply_address:
            channel.drop_reply_address()
        else:
            consumer.queue.refresh()  # the consumer gets the messages that were published before its cancellation
        channel.broker.engine.unsubscribe(consumer)
    if not method.no_wait:
        channel.send(spec.BasicCancelOk(method.consumer_tag))


def basic_get(channel: Channel, method: spec.BasicGet, count: int = 1) -> Iterator[bool] | None:
    """Answer `count` consecutive gets. They wait while deliveries return to the queue in pieces."""
    getting = channel.getting
    channel.broker.engine.requests.left -= 1 + count // GETS
    if not method.no_ack:
        channel.check_room()
    queue = getting.queue_of(method)
    if queue.returning:
        return _get_later(channel, method, count)
    # messages may expire between two gets, and later answers must not count them
    if count > 1 and queue.ttl_possible:
        for _ in range(count):
            basic_get(channel, method)
        return None
    entries: list[Entry] = []
    refusal: BrokerError | None = None
    while len(entries) < count:
        most = count - len(entries)
        try:
            some = channel.broker.engine.fetch(queue, most, auto_settle=method.no_ack, label=getting.label)
        except BrokerError as error:  # after the answers to the gets that succeeded
            refusal, count = error, len(entries)
            break
        if not some:
            break
        entries += some
    first = channel.unsettled.next_tag
    if method.no_ack:
        channel.unsettled.skip(len(entries))
    elif entries:
        channel.unsettled.add(entries, queue.getter)
        channel.count_held()
    getting.answer(queue, first, entries, count - len(entries))
    if refusal is not None:
        raise refusal
    return None


def _get_later(channel: Channel, method: spec.BasicGet, count: int) -> Iterator[bool]:
    while channel.getting.queue_of(method).returning:
        yield WAIT
    basic_get(channel, method, count)


def basic_ack(channel: Channel, method: spec.BasicAck) -> Iterator[None] | None:
    if method.multiple and channel.unsettled.count > ACKED_AT_ONCE:
        return settling.settle_in_pieces(channel, method.delivery_tag, Disposition.ACCEPTED)
    settling.settle(channel, method.delivery_tag, Disposition.ACCEPTED, multiple=method.multiple)
    return None


def _refused(*, requeue: bool) -> Disposition:
    return Disposition.MODIFIED if requeue else Disposition.REJECTED


def basic_nack(channel: Channel, method: spec.BasicNack) -> Iterator[None] | None:
    disposition, engine = _refused(requeue=method.requeue), channel.broker.engine
    most = min(settling.AT_ONCE, engine.returns.piece) if method.requeue else 1
    if method.multiple and channel.unsettled.count > most:
        return settling.settle_in_pieces(channel, method.delivery_tag, disposition)
    settling.settle(channel, method.delivery_tag, disposition, multiple=method.multiple)
    return None


def basic_reject(channel: Channel, method: spec.BasicReject) -> None:
    settling.settle(channel, method.delivery_tag, _refused(requeue=method.requeue), multiple=False)


def basic_recover(channel: Channel, method: spec.BasicRecover) -> Iterator[None]:
    yield from settling.recover(channel, requeue=method.requeue)
    channel.send(spec.BasicRecoverOk())


def basic_recover_async(channel: Channel, method: spec.BasicRecoverAsync) -> Iterator[None]:
    return settling.recover(channel, requeue=method.requeue)


def confirm_select(channel: Channel, method: spec.ConfirmSelect) -> None:
    """TX-1."""
    if channel.demarcation is not None:
        raise BrokerError(Condition.PRECONDITION_FAILED, "cannot switch from dtx to confirm mode")
    if channel.branch is not None:
        raise BrokerError(Condition.PRECONDITION_FAILED, "cannot switch from tx to confirm mode")
    channel.confirming = channel.connection.answered = True
    if not method.no_wait:
        channel.send(spec.ConfirmSelectOk())


def tx_select(channel: Channel, method: spec.TxSelect) -> None:
    """TX-1."""
    if channel.confirming:
        raise BrokerError(Condition.PRECONDITION_FAILED, "cannot switch from confirm to tx mode")
    if channel.demarcation is not None:
        raise BrokerError(Condition.PRECONDITION_FAILED, "cannot switch from dtx to tx mode")
    if channel.branch is None:
        transaction.begin(channel)
    channel.send(spec.TxSelectOk())


def tx_commit(channel: Channel, method: spec.TxCommit) -> Iterator[None] | None:
    """Commit the channel's transaction. The answer waits for the disk (TX-5, TX-8)."""
    channel.broker.engine.requests.left -= COMMIT
    if transaction.is_large(channel):
        return transaction.commit_in_pieces(channel)
    channel.connection.put(channel.number, channel.commit_ok, channel.broker.log.proof_lsn(transaction.commit(channel)))
    return None


def tx_rollback(channel: Channel, method: spec.TxRollback) -> Iterator[None] | None:
    if transaction.is_large(channel):
        return transaction.rollback_in_pieces(channel)
    transaction.rollback(channel)
    channel.send(spec.TxRollbackOk())
    return None


def channel_flow(channel: Channel, method: spec.ChannelFlow) -> None:
    """Stop or restart deliveries on this channel, as the client requests."""
    channel.flow = method.active
    channel.send(spec.ChannelFlowOk(method.active))
    if method.active:
        channel.wake()


def channel_flow_ok(channel: Channel, method: spec.ChannelFlowOk) -> None:
    """Ignore the answer to `channel.flow`, which this broker never sends."""


def basic_cancel_ok(channel: Channel, method: spec.BasicCancelOk) -> None:
    """Ignore the client's confirmation that it knows of a consumer's cancellation."""


HANDLERS: Final[dict[int, Handler]] = {
    spec.BasicQos.INDEX: basic_qos,
    spec.BasicConsume.INDEX: basic_consume,
    spec.BasicCancel.INDEX: basic_cancel,
    spec.BasicCancelOk.INDEX: basic_cancel_ok,
    spec.BasicGet.INDEX: basic_get,
    spec.BasicAck.INDEX: basic_ack,
    spec.BasicNack.INDEX: basic_nack,
    spec.BasicReject.INDEX: basic_reject,
    spec.BasicRecover.INDEX: basic_recover,
    spec.BasicRecoverAsync.INDEX: basic_recover_async,
    spec.ConfirmSelect.INDEX: confirm_select,
    spec.TxSelect.INDEX: tx_select,
    spec.TxCommit.INDEX: tx_commit,
    spec.TxRollback.INDEX: tx_rollback,
    spec.ChannelFlow.INDEX: channel_flow,
    spec.ChannelFlowOk.INDEX: channel_flow_ok,
}
