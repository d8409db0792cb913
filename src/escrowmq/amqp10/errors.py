"""The exceptions of the AMQP 1.0 client. They name what failed, the peer's condition and a remedy."""

# ruff: noqa: N818 - the names say what has happened, as in the blocking 0-9-1 client
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from escrowmq.amqp10.endpoint.deliveries import OutgoingDelivery


class AmqpError(Exception):
    """The base of all errors of this client.

    `condition` is the AMQP error condition, such as `"amqp:not-found"`, or empty if the peer named none.
    `description` is the peer's text.
    """

    def __init__(self, text: str, condition: str = "", description: str = "") -> None:
        super().__init__(text)
        self.condition = condition
        self.description = description

    def again(self) -> AmqpError:
        """Return a copy, so that each call that raises it has a separate traceback."""
        return type(self)(str(self), self.condition, self.description)


class UsageError(AmqpError):
    """The client was used incorrectly: a bad argument, a closed object, or two threads at once."""


class OperationTimeout(AmqpError, TimeoutError):
    """A call took longer than its timeout. The text names the awaited event."""


class ConnectionLost(AmqpError):
    """The connection could not be opened, was closed by the peer, or was lost."""


class LoginRefused(ConnectionLost):
    """The peer refused the login, or offers no mechanism that the client can use."""


class ConnectionRefused(ConnectionLost):
    """The peer accepted the login but refused the connection: wrong virtual host, no permission for it, or a limit."""


class ProtocolViolation(ConnectionLost):
    """The peer sent something that AMQP 1.0 does not permit. The client closes the connection."""


class SessionFailed(AmqpError):
    """The peer ended the session, and with it all its links."""


class LinkFailed(AmqpError):
    """The peer refused or detached the link."""


class NodeNotFound(LinkFailed):
    """`amqp:not-found`: there is no such queue, exchange or subscription."""


class AccessDenied(LinkFailed):
    """`amqp:unauthorized-access`: the user lacks the permission."""


class LinkStolen(LinkFailed):
    """`amqp:link:stolen`: another connection has attached a link of the same name and container."""


class NotGranted(LinkFailed):
    """The peer attached the link, but without the settlement mode, durability or filter that was asked for."""


class DeliveryLost(AmqpError):
    """The link was lost before the delivery was settled. The peer delivers the message again: undo its processing."""


class TransactionFailed(AmqpError):
    """The transaction was rolled back: by the peer, or because its connection was lost."""


class TransactionInDoubt(TransactionFailed):
    """The connection was lost while the commit was awaited, so the transaction may or may not have been committed."""


class NotAccepted(AmqpError):
    """The peer did not accept a message. `delivery.state` is the outcome; `delivery.tag` identifies the message."""

    def __init__(self, text: str, delivery: OutgoingDelivery | None = None) -> None:
        error = getattr(getattr(delivery, "state", None), "error", None)
        super().__init__(text, str(getattr(error, "condition", "")), getattr(error, "description", None) or "")
        self.delivery = delivery


class MessageRejected(NotAccepted):
    """The peer rejected the message as invalid, or because the queue is full. The condition gives the reason."""


class MessageReleased(NotAccepted):
    """The peer did not take the message, for example because no queue is bound. It can be sent again."""


class MessageModified(NotAccepted):
    """The peer did not take the message, and asks for changes before it is sent again."""


_LINK_ERRORS: Final[dict[str, type[LinkFailed]]] = {
    "amqp:not-found": NodeNotFound,
    "amqp:unauthorized-access": AccessDenied,
    "amqp:link:stolen": LinkStolen,
}


def described(error: Any) -> tuple[str, str]:
    """Return condition and description of an `Error` of the wire, or of None."""
    if error is None:
        return "", ""
    return str(error.condition), str(error.description or "")


def reason(error: Any, otherwise: str) -> str:
    """Return the text of an `Error` of the wire, or `otherwise` if there is none."""
    condition, description = described(error)
    if not condition:
        return otherwise
    return f"{condition}: {description}" if description else condition


def link_error(where: str, error: Any, otherwise: str) -> LinkFailed:
    """Return the exception for a detach with this `Error` of the wire."""
    condition, description = described(error)
    kind = _LINK_ERRORS.get(condition, LinkFailed)
    return kind(f"{where}: {reason(error, otherwise)}", condition, description)
