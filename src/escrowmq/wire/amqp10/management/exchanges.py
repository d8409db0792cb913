"""Requests about exchanges: declare, look up, delete."""

from __future__ import annotations

from typing import Any

from escrowmq.core.access.table import Operation
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.amqp10.management.fields import Fields, checked_name, sent
from escrowmq.wire.amqp10.management.requests import ManagementRequest, Problem, Response


def declare(request: ManagementRequest) -> Response:
    """Declare an exchange: 204, or 409 if it exists and differs."""
    connection, vhost = request.connection, request.vhost
    name = checked_name(request.name(), "exchange")
    fields = Fields(request, "exchange")
    kind = fields.text("type", "direct")
    flags: dict[str, Any] = {
        "durable": fields.flag("durable", True),
        "auto_delete": fields.flag("auto_delete", False),
        "internal": fields.flag("internal", False),
        "arguments": (arguments := fields.arguments()),
    }
    fields.end()
    connection.door.check(Operation.DECLARE_EXCHANGE, exchange=name)
    alternate = arguments.get("alternate-exchange")
    if isinstance(alternate, str):
        connection.door.check(Operation.SET_ALTERNATE, exchange=name, alternate=alternate)
    existed = name in vhost.exchanges
    try:
        connection.broker.directory.declare_exchange(vhost, name, kind, **flags)
    except BrokerError as error:
        if existed and error.condition is Condition.PRECONDITION_FAILED:
            raise Problem(409, error.text) from None
        raise
    return Response(204, None, connection.broker.log.end_lsn if flags["durable"] else 0)


def look_up(request: ManagementRequest) -> Response:
    """Describe an exchange. RabbitMQ has no such request."""
    name = request.name()
    request.connection.door.check(Operation.LOOK_UP_EXCHANGE, exchange=name)
    exchange = request.vhost.exchange(name)
    return Response(
        200,
        {
            "name": exchange.name,
            "vhost": sent(request.vhost.name),
            "type": exchange.kind,
            "durable": exchange.durable,
            "auto_delete": exchange.auto_delete,
            "internal": exchange.internal,
            "arguments": sent(exchange.arguments),
        },
    )


def delete(request: ManagementRequest) -> Response:
    """Delete an exchange with its bindings. As in AMQP 0-9-1, it need not exist."""
    connection, name = request.connection, request.name()
    connection.door.check(Operation.DELETE_EXCHANGE, exchange=name)
    connection.broker.directory.delete_exchange(request.vhost, name)
    return Response(204, None, connection.broker.log.end_lsn)
