"""The authority of the operator for whom another interface asks: its permissions, as for its own clients (SEC-1).

Operations take the name of that user as `by`. Without one, the request came from the machine's own command line, which
may do everything. The rights of a user that has logged in by a token come from its scopes, whoever has the same name in
the list of users.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from escrowmq.admin.action import grant_of
from escrowmq.admin.values import size_of
from escrowmq.core.access.door import Door
from escrowmq.core.access.rules import AccessRules
from escrowmq.core.access.table import Operation
from escrowmq.core.broker import Broker
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.queues.queue import Queue
from escrowmq.core.topology.vhost import VirtualHost

LONGEST_NAME: Final = 255
"""Bytes of the name of an object, or of a routing key."""


class Authority:
    """Checks what users may do in virtual hosts."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def vhost(self, name: str, by: str) -> VirtualHost[Queue]:
        """Return a virtual host. Raises NOT_FOUND, and NOT_ALLOWED if the user has no permission in it."""
        vhost = self._broker.directory.vhost(name)
        if by:
            self._rules(by).check_vhost(by, name)
        return vhost

    def door(self, vhost: VirtualHost[Queue], by: str) -> Door | None:
        """Return the user's door to a virtual host; None for the command line."""
        return Door(self._rules(by), by, vhost, self._broker.engine.requests) if by else None

    def _rules(self, by: str) -> AccessRules:
        return grant_of(by) or self._broker.access

    def check(self, vhost: VirtualHost[Queue], by: str, operation: Operation, **objects: str | None) -> None:
        """Raises ACCESS_REFUSED unless the user may perform an operation on these objects."""
        door = self.door(vhost, by)
        if door is not None:
            door.check(operation, **objects)


def checked_name(name: str, what: str) -> str:
    """Return the name of a new object, or a routing key. Raises INVALID_ARGUMENT for one that clients cannot use."""
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        raise BrokerError(Condition.INVALID_ARGUMENT, f"the {what} is not valid Unicode") from None
    if length > LONGEST_NAME:
        raise BrokerError(Condition.INVALID_ARGUMENT, f"the {what} has more than {LONGEST_NAME} bytes")
    return name


def checked_arguments(given: Mapping[str, Any] | None, limit_bytes: int) -> dict[str, Any]:
    """Return the arguments of a new object or binding. Raises PRECONDITION_FAILED if they are larger than clients may
    send them (`limits.arguments_size`).
    """
    arguments = dict(given or {})
    size = size_of(arguments)
    if size > limit_bytes:
        raise BrokerError(
            Condition.PRECONDITION_FAILED,
            f"the arguments take {size} bytes, which is more than {limit_bytes} bytes, the configured limit",
        )
    return arguments
