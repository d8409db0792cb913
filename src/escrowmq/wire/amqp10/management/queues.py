"""Requests about queues: declare, look up, delete, purge."""

from __future__ import annotations

from typing import Final

from escrowmq.core.access.table import Operation
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.queues.queue import Queue
from escrowmq.core.topology.declaration import Declaration
from escrowmq.wire.amqp10.codec.types import Array, UInt, ULong, Value
from escrowmq.wire.amqp10.handshake import NODE
from escrowmq.wire.amqp10.management.fields import Fields, checked_name, sent
from escrowmq.wire.amqp10.management.requests import ManagementRequest, Problem, Response

_DEAD_LETTER: Final = "x-dead-letter-exchange"
_DEAD_LETTER_KEY: Final = "x-dead-letter-routing-key"


def declare(request: ManagementRequest) -> Response:
    """Declare a queue: 201 if it is new, 200 if it exists, 409 if it differs."""
    connection, vhost = request.connection, request.vhost
    name = checked_name(request.name(), "queue")
    if not name:
        raise Problem(400, "declare queue with empty name not allowed")
    fields = Fields(request, "queue")
    declaration = Declaration(
        durable=fields.flag("durable", True),
        exclusive=fields.flag("exclusive", False),
        auto_delete=fields.flag("auto_delete", False),
        arguments=fields.arguments(),
    )
    fields.end()
    connection.door.check(Operation.DECLARE_QUEUE, queue=name)
    exchange, key = declaration.arguments.get(_DEAD_LETTER), declaration.arguments.get(_DEAD_LETTER_KEY)
    if isinstance(exchange, str):
        connection.door.check(
            Operation.SET_DEAD_LETTER,
            queue=name,
            dead_letter=exchange,
            dead_letter_key=key if isinstance(key, str) else None,
        )
    existed = name in vhost.queues
    try:
        queue = connection.broker.directory.declare_queue(vhost, name, declaration, connection.owner)
    except BrokerError as error:
        if existed and error.condition is Condition.PRECONDITION_FAILED:
            raise Problem(409, error.text) from None
        raise
    after = connection.broker.log.end_lsn if queue.durable else 0
    return Response(200 if existed else 201, described(queue), after)


def look_up(request: ManagementRequest) -> Response:
    """Describe a queue."""
    queue = _existing(request, Operation.LOOK_UP_QUEUE)
    queue.refresh()
    return Response(200, described(queue))


def delete(request: ManagementRequest) -> Response:
    """Delete a queue with its messages. As in AMQP 0-9-1, it need not exist."""
    connection, name = request.connection, request.name()
    connection.door.check(Operation.DELETE_QUEUE, queue=name)
    if name not in request.vhost.queues:
        return Response(200, _count(0))
    queue = _existing(request, Operation.DELETE_QUEUE)
    count = connection.broker.directory.delete_queue(queue)
    return Response(200, _count(count), connection.broker.log.end_lsn if queue.durable else 0)


def purge(request: ManagementRequest) -> Response:
    """Remove the ready messages of a queue."""
    queue = _existing(request, Operation.PURGE_QUEUE)
    if queue.is_stream:
        raise Problem(400, f"purge not supported by queue '{queue.name}' in vhost '{queue.vhost}', which is a stream")
    broker = request.connection.broker
    return Response(200, _count(broker.directory.purge(queue)), broker.log.end_lsn if queue.durable else 0)


def _existing(request: ManagementRequest, operation: Operation) -> Queue:
    """Return the queue that a request names. The permission is checked first. Raises BrokerError."""
    name = request.name()
    request.connection.door.check(operation, queue=name)
    queue = request.vhost.queue(name)
    queue.check_access(request.connection.owner)
    return queue


def described(queue: Queue) -> dict[str, Value]:
    """Return a queue as RabbitMQ describes it."""
    return {
        "name": queue.name,
        "vhost": sent(queue.vhost),
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": queue.exclusive,
        "type": queue.options.queue_type,
        "arguments": sent(queue.arguments),
        "leader": NODE,
        "replicas": Array([NODE]),
        "message_count": ULong(queue.ready),
        "consumer_count": UInt(len(queue.consumers)),
    }


def _count(messages: int) -> dict[str, Value]:
    return {"message_count": ULong(messages)}
