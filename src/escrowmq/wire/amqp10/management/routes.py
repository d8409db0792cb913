"""The requests that the management node understands, with the operations that each asks for (SEC-1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from escrowmq.core.access.table import Operation
from escrowmq.core.conditions import BrokerError
from escrowmq.wire.amqp10.management import bindings, exchanges, queues, tokens
from escrowmq.wire.amqp10.management.requests import Answer, ManagementRequest, Problem, problem, refused


class RequestRoute(NamedTuple):
    """A request: its method, its path, in which a star stands for a name, its handler and operations."""

    method: str
    path: tuple[str, ...]
    handle: Callable[[ManagementRequest], Answer]
    operations: tuple[Operation, ...]

    def __str__(self) -> str:
        return f"{self.method} /{'/'.join(self.path)}"


_QUEUE: Final = ("queues", "*")
_EXCHANGE: Final = ("exchanges", "*")

ROUTES: Final = (
    RequestRoute("PUT", _QUEUE, queues.declare, (Operation.DECLARE_QUEUE, Operation.SET_DEAD_LETTER)),
    RequestRoute("GET", _QUEUE, queues.look_up, (Operation.LOOK_UP_QUEUE,)),
    RequestRoute("DELETE", _QUEUE, queues.delete, (Operation.DELETE_QUEUE,)),
    RequestRoute("DELETE", (*_QUEUE, "messages"), queues.purge, (Operation.PURGE_QUEUE,)),
    RequestRoute("PUT", _EXCHANGE, exchanges.declare, (Operation.DECLARE_EXCHANGE, Operation.SET_ALTERNATE)),
    RequestRoute("GET", _EXCHANGE, exchanges.look_up, (Operation.LOOK_UP_EXCHANGE,)),
    RequestRoute("DELETE", _EXCHANGE, exchanges.delete, (Operation.DELETE_EXCHANGE,)),
    RequestRoute("POST", ("bindings",), bindings.bind, (Operation.BIND_QUEUE, Operation.BIND_EXCHANGE)),
    RequestRoute("GET", ("bindings",), bindings.find, (Operation.LIST_BINDINGS,)),
    RequestRoute("DELETE", ("bindings", "*"), bindings.unbind, (Operation.UNBIND_QUEUE, Operation.UNBIND_EXCHANGE)),
    RequestRoute("PUT", ("auth", "tokens"), tokens.renew, (Operation.OPEN_VHOST,)),
)
"""A handler asks the connection's door for each of its operations, some of them only if an argument asks for it."""


def answer(request: ManagementRequest) -> Answer:
    """Execute a request. The result is a task if it ends in a later turn."""
    try:
        return _route_of(request).handle(request)
    except BrokerError as error:
        return refused(problem(error))
    except Problem as found:
        return refused(found)


def _route_of(request: ManagementRequest) -> RequestRoute:
    """Return the route of a request. Raises Problem."""
    routes = [route for route in ROUTES if _matches(route.path, request.path)]
    if not routes:
        raise Problem(404, f"the management node has no resource '/{'/'.join(request.path)}'")
    for route in routes:
        if route.method == request.method:
            return route
    allowed = ", ".join(route.method for route in routes)
    raise Problem(405, f"method '{request.method}' is not allowed here; allowed: {allowed}")


def _matches(pattern: tuple[str, ...], path: tuple[str, ...]) -> bool:
    return len(pattern) == len(path) and all(
        part in {"*", segment} for part, segment in zip(pattern, path, strict=True)
    )
