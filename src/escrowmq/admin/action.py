"""The operation that is being carried out, and its record in the journal: what was changed, by whom and why.

The record becomes durable together with the change, so neither can be lost without the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from escrowmq.core.access.grant import Grant
from escrowmq.core.broker import Broker
from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.kinds import Kind


class OperatorAction:
    """An operation that changes something. `arguments` are those that may be shown."""

    __slots__ = ("arguments", "by", "grant", "operation", "recorded", "why")

    def __init__(
        self, operation: str, arguments: Mapping[str, Any], by: str, why: str, grant: Grant | None = None
    ) -> None:
        """`grant` has the rights of the user `by`, if they come from a token."""
        self.operation = operation
        self.arguments = arguments
        self.by = by
        self.why = why
        self.grant = grant
        self.recorded = False


_current: ContextVar[OperatorAction | None] = ContextVar("action", default=None)


@contextmanager
def acting(action: OperatorAction) -> Iterator[None]:
    """Let `record_action` record `action`, in this task."""
    token = _current.set(action)
    try:
        yield
    finally:
        _current.reset(token)


def grant_of(user: str) -> Grant | None:
    """Return the rights from the token by which `user` asks for the current operation; None if it has no token."""
    action = _current.get()
    return action.grant if action is not None and action.by == user else None


def record_action(broker: Broker) -> None:
    """Append the record of the current operation to the journal, unless it is there already."""
    action = _current.get()
    if action is None or action.recorded:
        return
    action.recorded = True
    fields = {"operation": action.operation, "arguments": dict(action.arguments), "by": action.by, "why": action.why}
    broker.log.append(Kind.OPERATED, encode_change(**fields, time_ms=broker.engine.now))
