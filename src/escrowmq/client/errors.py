"""The exceptions that the client raises: PEP 249's hierarchy, and the classes for AMQP reply codes."""

# ruff: noqa: N818 - most names are those of the reply code, or of the state in the standard
from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from escrowmq.core.branches.xid import Xid
from escrowmq.wire.amqp091 import codes
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.spec import BasicReturn


class Warning(Exception):  # noqa: A001 - PEP 249's name
    """A noteworthy condition that is not an error (PEP 249). This client never raises it."""


class Error(Exception):
    """The base of all errors of this client (PEP 249)."""


class InterfaceError(Error):
    """The client was used incorrectly: after closing it, after a fork, or by two threads at once (PEP 249)."""


class DatabaseError(Error):
    """The base of all errors that concern the broker (PEP 249)."""


class DataError(DatabaseError):
    """A value is out of range (PEP 249)."""


class OperationalError(DatabaseError):
    """A condition outside the application's control: lost connection, timeout, limit, rolled-back branch (PEP 249)."""


class IntegrityError(DatabaseError):
    """The outcome of a branch differs from the requested one (PEP 249)."""


class InternalError(DatabaseError):
    """The broker had an internal error (PEP 249)."""


class ProgrammingError(DatabaseError):
    """The request refers to something that does not exist, or is not permitted or not possible now (PEP 249)."""


class NotSupportedError(DatabaseError):
    """The broker does not support the request (PEP 249)."""


class Timeout(OperationalError, TimeoutError):
    """A call took longer than its timeout. The text names the awaited event."""


# ---- closed by the broker ----


class Closed(DatabaseError):
    """The broker closed a channel or the connection.

    `code` and `text` are those of the broker's reply; `code` is 0 if there was no reply. `method` is the name of the
    method that caused the close, such as `"queue.declare"`, or empty if the broker named none. `where` is the channel
    or the broker's address.
    """

    def __init__(self, code: int, text: str, method: str = "", where: str = "") -> None:
        super().__init__(code, text, method, where)
        self.code = code
        self.text = text
        self.method = method
        self.where = where

    def again(self) -> Closed:
        """Return a copy, so that each call that raises it has a separate traceback."""
        return type(self)(self.code, self.text, self.method, self.where)

    def __str__(self) -> str:
        said = f"{self.code} {self.text}" if self.code else self.text
        of = f" (answer to {self.method})" if self.method else ""
        return f"{self.where}: {said}{of}" if self.where else said + of


class ConnectionClosed(Closed, OperationalError):
    """The connection has ended: the broker closed it, or it was lost (`code` 0)."""


class AuthenticationError(ConnectionClosed):
    """The broker refused the login of `user`. It tells the reason to its log only."""

    def __init__(self, code: int, text: str, method: str = "", where: str = "", user: str = "") -> None:
        super().__init__(code, text, method, where)
        self.user = user

    def again(self) -> AuthenticationError:
        return type(self)(self.code, self.text, self.method, self.where, self.user)

    def __str__(self) -> str:
        return f"{super().__str__()} (user {self.user!r})"


class ChannelClosed(Closed):
    """The broker closed the channel and rolled back its uncommitted work. Other channels are not affected."""


class ContentTooLarge(ChannelClosed, DataError):
    """311: the message is larger than the broker accepts."""


class AccessRefused(ChannelClosed, ProgrammingError):
    """403: the user lacks the permission."""


class NotFound(ChannelClosed, ProgrammingError):
    """404: there is no such queue, exchange or xid."""


class ResourceLocked(ChannelClosed, OperationalError):
    """405: the queue is exclusive to another connection, or another consumer has exclusive access to it."""


class PreconditionFailed(ChannelClosed, ProgrammingError):
    """406: the object exists with other properties, the delivery tag is unknown, or the channel's mode forbids it."""


class CommandInvalid(ChannelClosed, ProgrammingError):
    """503: not possible in the current state of the channel or the branch."""


class ResourceExhausted(ChannelClosed, OperationalError):
    """506: a configured limit is exceeded; nothing of the transaction was applied."""


class NotAllowed(ChannelClosed, ProgrammingError):
    """530: the xid is in use, or the operation is never allowed."""


class NotImplementedByBroker(ChannelClosed, NotSupportedError):
    """540: the broker does not implement the method."""


class BrokerFailed(ChannelClosed, InternalError):
    """541: the broker had an internal error."""


_BY_CODE: Final[dict[int, type[ChannelClosed]]] = {
    codes.CONTENT_TOO_LARGE: ContentTooLarge,
    codes.ACCESS_REFUSED: AccessRefused,
    codes.NOT_FOUND: NotFound,
    codes.RESOURCE_LOCKED: ResourceLocked,
    codes.PRECONDITION_FAILED: PreconditionFailed,
    codes.COMMAND_INVALID: CommandInvalid,
    codes.RESOURCE_ERROR: ResourceExhausted,
    codes.NOT_ALLOWED: NotAllowed,
    codes.NOT_IMPLEMENTED: NotImplementedByBroker,
    codes.INTERNAL_ERROR: BrokerFailed,
}


def channel_closed(code: int, text: str, method: str, number: int) -> ChannelClosed:
    """Return the exception for a channel.close from the broker.

    `method` is the name of the method that caused it; `number` is the channel.
    """
    return _BY_CODE.get(code, ChannelClosed)(code, text, method, f"channel {number}")


# ---- publishing and consuming ----


class Returned(NamedTuple):
    """A mandatory message that was unroutable. `method` holds reply code and text, exchange and routing key."""

    method: BasicReturn
    properties: Properties
    body: bytes


class UnroutableError(OperationalError):
    """Mandatory messages were unroutable and were returned; they are in `messages`."""

    def __init__(self, messages: Sequence[Returned]) -> None:
        super().__init__(messages)
        self.messages = list(messages)

    def __str__(self) -> str:
        first = self.messages[0].method
        more = f" and {len(self.messages) - 1} more" if len(self.messages) > 1 else ""
        return f"{first.reply_code} {first.reply_text}: exchange {first.exchange!r}, key {first.routing_key!r}{more}"


class NackError(OperationalError):
    """The broker refused messages.

    `sequence_numbers` are counted from 1 since `confirm_delivery`.
    """

    def __init__(self, sequence_numbers: Sequence[int]) -> None:
        super().__init__(sequence_numbers)
        self.sequence_numbers = list(sequence_numbers)

    def __str__(self) -> str:
        return (
            f"the broker refused {len(self.sequence_numbers)} messages; the first is number {self.sequence_numbers[0]}"
        )


class ConsumerCancelled(OperationalError):
    """The broker cancelled the consumer, for example because its queue was deleted."""


# ---- transaction branches ----


class RolledBack(OperationalError):
    """The branch was rolled back and has no effect. `timed_out` says whether its timeout was the cause."""

    def __init__(self, xid: Xid, *, timed_out: bool) -> None:
        super().__init__(xid, timed_out)
        self.xid = xid
        self.timed_out = timed_out

    def __str__(self) -> str:
        return f"branch {self.xid}: rolled back" + (" because its timeout expired" if self.timed_out else "")


class HeuristicOutcome(IntegrityError):
    """An operator has completed the branch (DTX-11). The broker repeats this answer until `tpc_forget(xid)`.

    `outcome` is "committed", "rolled back", "mixed" or "hazard" (unknown); `asked` is "commit" or "rollback".
    """

    def __init__(self, xid: Xid, outcome: str, asked: str) -> None:
        super().__init__(xid, outcome, asked)
        self.xid = xid
        self.outcome = outcome
        self.asked = asked

    @property
    def as_asked(self) -> bool:
        """Whether the outcome happens to be the requested one."""
        return (self.asked, self.outcome) in {("commit", "committed"), ("rollback", "rolled back")}

    def __str__(self) -> str:
        return f"branch {self.xid}: {self.asked} requested, but an operator had already completed it: {self.outcome}"
