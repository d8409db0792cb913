"""Requests about bindings: make, list, delete.

A binding has the location `/bindings/src=SOURCE;dstq=QUEUE;key=KEY;args=HASH`, or with `dste=EXCHANGE`. The hash of its
arguments is empty if it has none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from escrowmq.core.access.table import Operation
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.values import canonical
from escrowmq.wire.amqp10.management.fields import Fields, checked_name, sent
from escrowmq.wire.amqp10.management.requests import ManagementRequest, Problem, Response, decoded

if TYPE_CHECKING:
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.topology.exchange import Binding
    from escrowmq.wire.amqp10.codec.types import Value

_PARTS: Final = frozenset(("src", "dstq", "dste", "key", "args"))


class Ends(NamedTuple):
    """The ends of a binding, by name."""

    source: str
    destination: str
    to_exchange: bool


def bind(request: ManagementRequest) -> Response:
    """Make a binding: 204, also if it exists."""
    connection, vhost, directory = request.connection, request.vhost, request.connection.broker.directory
    fields = Fields(request, "binding")
    source, key = fields.text("source"), checked_name(fields.text("binding_key", ""), "binding key")
    to_exchange = "destination_exchange" in fields
    destination = fields.text("destination_exchange" if to_exchange else "destination_queue")
    arguments = fields.arguments()
    fields.end()
    _check(request, Ends(source, destination, to_exchange), key)
    if to_exchange:
        directory.bind_exchange(vhost, source, destination, key, arguments)
    else:
        vhost.queue(destination).check_access(connection.owner)
        directory.bind_queue(vhost, source, destination, key, arguments)
    return Response(204, None, connection.broker.log.end_lsn)


def _check(request: ManagementRequest, ends: Ends, key: str) -> None:
    door = request.connection.door
    if ends.to_exchange:
        door.check(Operation.BIND_EXCHANGE, destination=ends.destination, exchange=ends.source, key=key)
    else:
        door.check(Operation.BIND_QUEUE, queue=ends.destination, exchange=ends.source, key=key)


def find(request: ManagementRequest) -> Iterator[Response | None]:
    """List the bindings from one exchange to a queue or an exchange, all of them or those with one key."""
    ends = _ends_of(request.query)
    request.connection.door.check(Operation.LIST_BINDINGS, exchange=ends.source)
    return _found(request, ends, request.query.get("key"))


def _found(request: ManagementRequest, ends: Ends, key: str | None) -> Iterator[Response | None]:
    requests = request.connection.broker.engine.requests
    found: list[Value] = []
    for binding in request.vhost.bindings_to(ends.destination, to_exchange=ends.to_exchange):
        if binding.source.name == ends.source and (key is None or binding.routing_key == key):
            found.append(_described(binding))
        requests.left -= 1
        yield None
    yield Response(200, found)


def unbind(request: ManagementRequest) -> Response:
    """Delete the binding that a location names: 204, also if it does not exist."""
    parts = _parts_of(request.path[1])
    ends, key, digest = _ends_of(parts), parts.get("key", ""), parts.get("args", "")
    connection, vhost, directory = request.connection, request.vhost, request.connection.broker.directory
    if ends.to_exchange:
        connection.door.check(Operation.UNBIND_EXCHANGE, destination=ends.destination, exchange=ends.source)
    else:
        connection.door.check(Operation.UNBIND_QUEUE, queue=ends.destination, exchange=ends.source)
        if ends.destination in vhost.queues:
            vhost.queue(ends.destination).check_access(connection.owner)
    if not ends.source:
        raise BrokerError(Condition.ACCESS_REFUSED, "operation not permitted on the default exchange")
    remove = directory.unbind_exchange if ends.to_exchange else directory.unbind_queue
    for binding in vhost.bindings_to(ends.destination, to_exchange=ends.to_exchange):
        named = binding.source.name == ends.source and binding.routing_key == key
        if named and _digest(binding.arguments) == digest:
            remove(vhost, ends.source, ends.destination, key, binding.arguments)
            break
    return Response(204, None, connection.broker.log.end_lsn)


def _parts_of(location: str) -> dict[str, str]:
    parts = dict(part.partition("=")[::2] for part in location.split(";"))
    if not parts.keys() <= _PARTS:
        raise Problem(400, f"'{location}' is no location of a binding: src=…;dstq=…;key=…;args=… or with dste=…")
    return {name: decoded(value) for name, value in parts.items()}


def _ends_of(parts: Mapping[str, str]) -> Ends:
    if "src" not in parts or ("dstq" in parts) == ("dste" in parts):
        raise Problem(400, "bindings are named by src, and by one of dstq and dste")
    return Ends(parts["src"], parts["dste"] if "dste" in parts else parts["dstq"], "dste" in parts)


def _described(binding: Binding[Queue]) -> dict[str, Value]:
    """Return a binding as RabbitMQ describes it."""
    ends = Ends(binding.source.name, binding.destination.name, binding.to_exchange)
    return {
        "source": ends.source,
        "destination_exchange" if ends.to_exchange else "destination_queue": ends.destination,
        "binding_key": sent(binding.routing_key),
        "arguments": sent(binding.arguments),
        "location": _location(ends, binding.routing_key, binding.arguments),
    }


def _location(ends: Ends, key: str, arguments: Mapping[str, Any]) -> str:
    source, destination, key = (quote(name, safe="", errors="replace") for name in (ends.source, ends.destination, key))
    kind = "dste" if ends.to_exchange else "dstq"
    return f"/bindings/src={source};{kind}={destination};key={key};args={_digest(arguments)}"


def _digest(arguments: Mapping[str, Any]) -> str:
    """Return a hash that tells the arguments of bindings apart; it is empty for none."""
    if not arguments:
        return ""
    return hashlib.sha256(repr(canonical(arguments)).encode("utf-8", "surrogatepass")).hexdigest()[:32]
