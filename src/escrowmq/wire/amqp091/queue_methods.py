"""The queue and exchange classes: declare, delete, bind and purge. None of these methods is transactional (TX-9)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from escrowmq.core.access.table import Operation
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.leftover import WAIT
from escrowmq.core.queues.queue import Queue
from escrowmq.core.topology.declaration import Declaration
from escrowmq.core.topology.exchanges import KINDS
from escrowmq.wire.amqp091 import codes, spec
from escrowmq.wire.amqp091.errors import SyntaxFault
from escrowmq.wire.amqp091.operations import Handler
from escrowmq.wire.amqp091.properties import REPLY_TO

if TYPE_CHECKING:
    from escrowmq.core.access.owned import Owned
    from escrowmq.core.topology.partitions import NewStream
    from escrowmq.wire.amqp091.channel import Channel


def _in_one_line(name: str) -> str:
    """Return `name` without line ends. RabbitMQ strips them from the names of queues and exchanges, too."""
    return name.replace("\r", "").replace("\n", "")


def queue_named(channel: Channel, name: str, operation: Operation, **others: str | Owned | None) -> Queue:
    """Return the queue that a method names, for `operation`. An empty name means the last queue that the channel
    declared. `others` are the other objects that the operation needs.

    Permission is checked first, so that a user without it cannot find out which queues exist. Raises ACCESS_REFUSED,
    NOT_FOUND, RESOURCE_LOCKED (EXC-2).
    """
    name = name_of_queue(channel, name)
    channel.door.check(operation, queue=name, **others)
    queue = channel.vhost.queue(name)
    queue.check_access(channel.connection.session)
    return queue


def name_of_queue(channel: Channel, name: str) -> str:
    """The name that a method means. Raises NOT_FOUND for an empty one before the first declaration."""
    name = _in_one_line(name) or channel.last_queue
    if not name:
        raise BrokerError(Condition.NOT_FOUND, "no previously declared queue")
    return name


def exchange_declare(channel: Channel, method: spec.ExchangeDeclare) -> Iterator[bool | None]:
    exchange = _in_one_line(method.exchange)
    if not method.passive:
        if method.type not in KINDS:
            raise SyntaxFault(codes.COMMAND_INVALID, f"unknown exchange type '{method.type}'")
        channel.door.check(Operation.DECLARE_EXCHANGE, exchange=exchange)
        alternate = method.arguments.get("alternate-exchange")
        if isinstance(alternate, str):
            channel.door.check(Operation.SET_ALTERNATE, exchange=exchange, alternate=alternate)
    directory = channel.broker.directory
    streams: list[NewStream] = []
    if not method.passive:
        streams = yield from directory.new_streams(channel.vhost, exchange, method.type, method.arguments)
    directory.declare_exchange(
        channel.vhost,
        exchange,
        method.type,
        streams=streams,
        durable=method.durable,
        auto_delete=method.auto_delete,
        internal=method.internal,
        arguments=method.arguments,
        passive=method.passive,
    )
    channel.answer(spec.ExchangeDeclareOk(), no_wait=method.no_wait, durable=method.durable)


def exchange_delete(channel: Channel, method: spec.ExchangeDelete) -> Iterator[bool]:
    exchange = _in_one_line(method.exchange)
    channel.door.check(Operation.DELETE_EXCHANGE, exchange=exchange)
    gone = channel.vhost.exchanges.get(exchange)
    channel.broker.directory.delete_exchange(channel.vhost, exchange, if_unused=method.if_unused)
    while gone in channel.vhost.unbinding.gone:
        yield WAIT
    channel.answer(spec.ExchangeDeleteOk(), no_wait=method.no_wait, durable=True)


def exchange_bind(channel: Channel, method: spec.ExchangeBind) -> None:
    channel.door.check(
        Operation.BIND_EXCHANGE, destination=method.destination, exchange=method.source, key=method.routing_key
    )
    channel.broker.directory.bind_exchange(
        channel.vhost, method.source, method.destination, method.routing_key, method.arguments
    )
    channel.answer(spec.ExchangeBindOk(), no_wait=method.no_wait, durable=True)


def exchange_unbind(channel: Channel, method: spec.ExchangeUnbind) -> None:
    channel.door.check(Operation.UNBIND_EXCHANGE, destination=method.destination, exchange=method.source)
    channel.broker.directory.unbind_exchange(
        channel.vhost, method.source, method.destination, method.routing_key, method.arguments
    )
    channel.answer(spec.ExchangeUnbindOk(), no_wait=method.no_wait, durable=True)


def queue_declare(channel: Channel, method: spec.QueueDeclare) -> None:
    name = _in_one_line(method.queue)
    if name == REPLY_TO or name.startswith(f"{REPLY_TO}."):
        if name != REPLY_TO and (channel.vhost.name, name) not in channel.broker.engine.direct:
            raise BrokerError(Condition.NOT_FOUND, f"no queue '{name}' in vhost '{channel.vhost.name}'")
        channel.answer(spec.QueueDeclareOk(name, 0, 1), no_wait=method.no_wait, durable=False)
        return
    if method.passive:
        queue = queue_named(channel, name, Operation.LOOK_UP_QUEUE)
        queue.lifetime.touch()
        queue.refresh()  # so that the count excludes messages over the limits and messages that consumers take
    else:
        if not name:
            name = channel.broker.directory.fresh_queue_name(channel.vhost)
        channel.door.check(Operation.DECLARE_QUEUE, queue=name)
        dead_letter = method.arguments.get("x-dead-letter-exchange")
        if isinstance(dead_letter, str):
            key = method.arguments.get("x-dead-letter-routing-key")
            channel.door.check(
                Operation.SET_DEAD_LETTER,
                queue=name,
                dead_letter=dead_letter,
                dead_letter_key=key if isinstance(key, str) else None,
            )
        declaration = Declaration(method.durable, method.exclusive, method.auto_delete, method.arguments)
        queue = channel.broker.directory.declare_queue(
            channel.vhost, name, declaration, channel.connection.session, generated=not method.queue
        )
    channel.last_queue = queue.name
    answer = spec.QueueDeclareOk(queue.name, queue.ready, len(queue.consumers))
    channel.answer(answer, no_wait=method.no_wait, durable=queue.durable and not method.passive)


def queue_bind(channel: Channel, method: spec.QueueBind) -> None:
    queue = queue_named(channel, method.queue, Operation.BIND_QUEUE, exchange=method.exchange, key=method.routing_key)
    key = method.routing_key or ("" if method.queue else queue.name)
    channel.broker.directory.bind_queue(channel.vhost, method.exchange, queue.name, key, method.arguments)
    channel.answer(spec.QueueBindOk(), no_wait=method.no_wait, durable=queue.durable)


def queue_unbind(channel: Channel, method: spec.QueueUnbind) -> None:
    name = name_of_queue(channel, method.queue)
    channel.door.check(Operation.UNBIND_QUEUE, queue=name, exchange=method.exchange)
    if name not in channel.vhost.queues:  # as in RabbitMQ, unbinding from a queue that does not exist succeeds
        channel.send(spec.QueueUnbindOk())
        return
    queue = queue_named(channel, name, Operation.UNBIND_QUEUE, exchange=method.exchange)
    key = method.routing_key or ("" if method.queue else queue.name)
    channel.broker.directory.unbind_queue(channel.vhost, method.exchange, queue.name, key, method.arguments)
    channel.answer(spec.QueueUnbindOk(), no_wait=False, durable=queue.durable)


def queue_purge(channel: Channel, method: spec.QueuePurge) -> None:
    queue = queue_named(channel, method.queue, Operation.PURGE_QUEUE)
    if queue.is_stream:
        raise SyntaxFault(codes.NOT_IMPLEMENTED, f"queue '{queue.name}' is a stream, which cannot be purged")
    count = channel.broker.directory.purge(queue)
    channel.answer(spec.QueuePurgeOk(count), no_wait=method.no_wait, durable=queue.durable)


def queue_delete(channel: Channel, method: spec.QueueDelete) -> Iterator[bool]:
    name = name_of_queue(channel, method.queue)
    channel.door.check(Operation.DELETE_QUEUE, queue=name)
    if name not in channel.vhost.queues:  # as in RabbitMQ, deleting a queue that does not exist succeeds
        channel.answer(spec.QueueDeleteOk(0), no_wait=method.no_wait, durable=False)
        return
    queue = queue_named(channel, name, Operation.DELETE_QUEUE)
    cancels: list[spec.BasicCancel] = []
    channel.cancels = cancels  # clients expect the answer before the cancellations that follow from it
    try:
        count = channel.broker.directory.delete_queue(queue, if_unused=method.if_unused, if_empty=method.if_empty)
        while queue in channel.vhost.unbinding.gone or queue.consumers:
            yield WAIT
    finally:
        channel.cancels = None
    channel.answer(spec.QueueDeleteOk(count), no_wait=method.no_wait, durable=queue.durable)
    for cancel in cancels:
        channel.send(cancel)


HANDLERS: Final[dict[int, Handler]] = {
    spec.ExchangeDeclare.INDEX: exchange_declare,
    spec.ExchangeDelete.INDEX: exchange_delete,
    spec.ExchangeBind.INDEX: exchange_bind,
    spec.ExchangeUnbind.INDEX: exchange_unbind,
    spec.QueueDeclare.INDEX: queue_declare,
    spec.QueueBind.INDEX: queue_bind,
    spec.QueueUnbind.INDEX: queue_unbind,
    spec.QueuePurge.INDEX: queue_purge,
    spec.QueueDelete.INDEX: queue_delete,
}
