"""Equivalence: declaring an existing queue or exchange again is allowed only if the declarations agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NoReturn, Protocol

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.values import canonical, shown, type_name
from escrowmq.core.topology.arguments.queue import TYPE_ARGUMENT, USED_BY, type_of

_ABSENT: Final = object()
_OF_KIND: Final[Mapping[str, tuple[str, ...]]] = {
    "x-consistent-hash": ("hash-header",),
    "x-delayed-message": ("x-delayed-type",),
    "x-partitioned": ("x-message-type", "x-max-age", "x-max-length-bytes"),
}
"""Arguments of types of exchange that must agree. `x-partitions` need not: a topic with more partitions is enough."""


class QueueDeclaration(Protocol):
    """The attributes of a queue, declared or existing."""

    @property
    def durable(self) -> bool: ...
    @property
    def exclusive(self) -> bool: ...
    @property
    def auto_delete(self) -> bool: ...
    @property
    def arguments(self) -> Mapping[str, object]: ...


class ExchangeDeclaration(Protocol):
    """The attributes of an exchange, declared or existing."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def durable(self) -> bool: ...
    @property
    def auto_delete(self) -> bool: ...
    @property
    def internal(self) -> bool: ...
    @property
    def arguments(self) -> Mapping[str, object]: ...


def check_queue_equivalent(vhost: str, name: str, existing: QueueDeclaration, requested: QueueDeclaration) -> None:
    """Raises RESOURCE_LOCKED if only one of them is exclusive, PRECONDITION_FAILED for the first other difference.

    An exclusive queue is never durable (EXC-3), so its `durable` flag is ignored. Only arguments that the existing
    queue's type uses are compared.
    """
    what = f"queue '{name}' in vhost '{vhost}'"
    if existing.exclusive != requested.exclusive:
        raise BrokerError(Condition.RESOURCE_LOCKED, locked_text(vhost, name))
    _check("durable", what, existing.durable and not existing.exclusive, requested.durable and not requested.exclusive)
    _check("auto_delete", what, existing.auto_delete, requested.auto_delete)
    for argument in USED_BY[type_of(existing.arguments)]:
        old = existing.arguments.get(argument, _ABSENT)
        new = requested.arguments.get(argument, _ABSENT)
        if argument == TYPE_ARGUMENT and _or_classic(old) == _or_classic(new):
            continue
        _check(argument, what, old, new)


def locked_text(vhost: str, name: str) -> str:
    """Return the error text for a connection that uses another connection's exclusive queue (EXC-2)."""
    return (
        f"cannot obtain exclusive access to locked queue '{name}' in vhost '{vhost}'. It could be originally declared "
        "on another connection or the exclusive property value does not match that of the original declaration."
    )


def check_exchange_equivalent(vhost: str, existing: ExchangeDeclaration, requested: ExchangeDeclaration) -> None:
    """Raises PRECONDITION_FAILED for the first difference. The arguments compared are alternate-exchange, and that of
    the type.
    """
    what = f"exchange '{existing.name}' in vhost '{vhost}'"
    _check("type", what, existing.kind, requested.kind)
    _check("durable", what, existing.durable, requested.durable)
    _check("auto_delete", what, existing.auto_delete, requested.auto_delete)
    _check("internal", what, existing.internal, requested.internal)
    for argument in ("alternate-exchange", *_OF_KIND.get(existing.kind, ())):
        current, received = existing.arguments.get(argument, _ABSENT), requested.arguments.get(argument, _ABSENT)
        _check(argument, what, current, received)


def _check(argument: str, what: str, current: object, received: object) -> None:
    if current is _ABSENT and received is _ABSENT:
        return
    if current is _ABSENT:
        _refuse(argument, what, f"received {_typed(received)} but current is none")
    if received is _ABSENT:
        _refuse(argument, what, f"received none but current is {_typed(current)}")
    if canonical(current) != canonical(received):
        _refuse(argument, what, f"received '{shown(received)}' but current is '{shown(current)}'")


def _refuse(argument: str, what: str, difference: str) -> NoReturn:
    raise BrokerError(Condition.PRECONDITION_FAILED, f"inequivalent arg '{argument}' for {what}: {difference}")


def _typed(value: object) -> str:
    return f"the value '{shown(value)}' of type '{type_name(value)}'"


def _or_classic(value: object) -> object:
    return "classic" if value is _ABSENT else value
