"""Errors of AMQP 1.0: faults of the peer, and the error conditions for the core's refusals.

A fault costs the link, the session or the connection, as the specification says, and no more.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.amqp10.codec.performatives import Error
from escrowmq.wire.amqp10.codec.types import Symbol

if TYPE_CHECKING:
    from collections.abc import Mapping

INTERNAL_ERROR: Final = "amqp:internal-error"
NOT_FOUND: Final = "amqp:not-found"
UNAUTHORIZED: Final = "amqp:unauthorized-access"
DECODE_ERROR: Final = "amqp:decode-error"
LIMIT_EXCEEDED: Final = "amqp:resource-limit-exceeded"
NOT_ALLOWED: Final = "amqp:not-allowed"
INVALID_FIELD: Final = "amqp:invalid-field"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
RESOURCE_LOCKED: Final = "amqp:resource-locked"
PRECONDITION_FAILED: Final = "amqp:precondition-failed"
RESOURCE_DELETED: Final = "amqp:resource-deleted"
ILLEGAL_STATE: Final = "amqp:illegal-state"
CONNECTION_FORCED: Final = "amqp:connection:forced"
FRAMING_ERROR: Final = "amqp:connection:framing-error"
WINDOW_VIOLATION: Final = "amqp:session:window-violation"
HANDLE_IN_USE: Final = "amqp:session:handle-in-use"
UNATTACHED_HANDLE: Final = "amqp:session:unattached-handle"
TRANSFER_LIMIT_EXCEEDED: Final = "amqp:link:transfer-limit-exceeded"
MESSAGE_SIZE_EXCEEDED: Final = "amqp:link:message-size-exceeded"
STOLEN: Final = "amqp:link:stolen"
UNKNOWN_TRANSACTION: Final = "amqp:transaction:unknown-id"
TRANSACTION_ROLLBACK: Final = "amqp:transaction:rollback"
TRANSACTION_TIMEOUT: Final = "amqp:transaction:timeout"
FRAME_SIZE_TOO_SMALL: Final = "amqp:frame-size-too-small"

CONDITIONS: Final[Mapping[Condition, str]] = {
    Condition.NOT_FOUND: NOT_FOUND,
    Condition.ACCESS_REFUSED: UNAUTHORIZED,
    Condition.RESOURCE_LOCKED: RESOURCE_LOCKED,
    Condition.PRECONDITION_FAILED: PRECONDITION_FAILED,
    Condition.INVALID_ARGUMENT: INVALID_FIELD,
    Condition.NOT_ALLOWED: NOT_ALLOWED,
    Condition.NOT_IMPLEMENTED: NOT_IMPLEMENTED,
    Condition.ILLEGAL_STATE: ILLEGAL_STATE,
    Condition.COMMAND_INVALID: ILLEGAL_STATE,
    Condition.LIMIT_EXCEEDED: LIMIT_EXCEEDED,
    Condition.UNAVAILABLE: INTERNAL_ERROR,
    Condition.INTERNAL: INTERNAL_ERROR,
}
"""The error condition for each refusal of the core."""


class Scope(IntEnum):
    """The part that a fault costs."""

    LINK = 1
    SESSION = 2
    CONNECTION = 3


class AmqpFault(Exception):  # noqa: N818 - "fault" is the term for an error of the peer
    """The peer violated the protocol, or asked for something that is refused. `condition` names the error in the
    protocol, `text` explains it.
    """

    __slots__ = ("condition", "info", "scope", "text")

    def __init__(self, scope: Scope, condition: str, text: str, info: dict[str, object] | None = None) -> None:
        super().__init__(f"{condition}: {text}")
        self.scope = scope
        self.condition = condition
        self.text = text
        self.info = info

    def error(self) -> Error:
        """Return the fault in the form in which it is sent."""
        info = {Symbol(key): value for key, value in self.info.items()} if self.info else None
        return error_of(self.condition, self.text, info)


def error_of(condition: str, text: str, info: dict[Symbol, object] | None = None) -> Error:
    """Return an error with at most 500 characters of text."""
    text = text.encode("utf-8", "replace").decode()[:500]
    return Error(condition=Symbol(condition), description=text, info=info)


def link_fault(condition: str, text: str) -> AmqpFault:
    """Return a fault that costs the link."""
    return AmqpFault(Scope.LINK, condition, text)


def session_fault(condition: str, text: str) -> AmqpFault:
    """Return a fault that costs the session."""
    return AmqpFault(Scope.SESSION, condition, text)


def connection_fault(condition: str, text: str) -> AmqpFault:
    """Return a fault that costs the connection."""
    return AmqpFault(Scope.CONNECTION, condition, text)


def refusal(error: BrokerError, scope: Scope = Scope.LINK) -> AmqpFault:
    """Return a refusal of the core as a fault."""
    return AmqpFault(scope, CONDITIONS[error.condition], error.text)
