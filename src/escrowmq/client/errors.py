"""What the client raises: the exception hierarchy of PEP 249, and what the broker's reply codes are in it."""

# ruff: noqa: N818 - most are named as the reply code is, or as the standard names the state
from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from escrowmq.core.branches.xid import Xid
from escrowmq.wire.amqp091 import codes
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.spec import BasicReturn


class Warning(Exception):  # noqa: A001 - PEP 249's name
    """Something worth knowing that stops nothing (PEP 249). Never raised by this client."""


class Error(Exception):
    """Base of all errors of this client (PEP 249)."""


class InterfaceError(Error):
    """The client is used as it must not be: closed, after a fork, by two threads at once."""


class DatabaseError(Error):
    """Base of all that concerns the broker (PEP 249)."""


class DataError(DatabaseError):
    """A value does not fit (PEP 249)."""


class OperationalError(DatabaseError):
    """Not the program's fault: lost connections, timeouts, limits, rolled back branches (PEP 249)."""


class IntegrityError(DatabaseError):
    """A branch's outcome is not the one that was asked for (PEP 249)."""


class InternalError(DatabaseError):
    """The broker failed inside (PEP 249)."""


class ProgrammingError(DatabaseError):
    """The program asks for what does not exist, is not allowed, or is not possible now (PEP 249)."""


class NotSupportedError(DatabaseError):
    """The broker does not have what is asked for (PEP 249)."""


class Timeout(OperationalError, TimeoutError):
    """A call took longer than its timeout; the text says what it was waiting for."""


# ---- closed by the broker ----


class Closed(DatabaseError):
    """The broker has closed a channel or the connection. `code` and `text` are its reply, `method` is what provoked it.

    `method` is a name as `"queue.declare"`, empty if the broker named none; `code` is 0 if there was no reply at all.
    """

    def __init__(self, code: int, text: str, method: str = "", where: str = "") -> None:
        super().__init__(code, text, method, where)
        self.code = code
        self.text = text
        self.method = method
        self.where = where

    def again(self) -> Closed:
        """The same once more, for each call that meets it, so that each has a traceback of its own."""
        return type(self)(self.code, self.text, self.method, self.where)

    def __str__(self) -> str:
        said = f"{self.code} {self.text}" if self.code else self.text
        of = f" (answer to {self.method})" if self.method else ""
        return f"{self.where}: {said}{of}" if self.where else said + of


class ConnectionClosed(Closed, OperationalError):
    """The connection has ended: closed by the broker, or lost (`code` 0)."""


class AuthenticationError(ConnectionClosed):
    """The broker does not let this user in."""


class ChannelClosed(Closed):
    """The broker has closed the channel, and what was not committed on it is rolled back. Others go on."""


class ContentTooLarge(ChannelClosed, DataError):
    """311."""


class AccessRefused(ChannelClosed, ProgrammingError):
    """403: the user lacks the permission."""


class NotFound(ChannelClosed, ProgrammingError):
    """404: no such queue, exchange or xid."""


class ResourceLocked(ChannelClosed, OperationalError):
    """405: an exclusive queue of another connection, or somebody consumes exclusively."""


class PreconditionFailed(ChannelClosed, ProgrammingError):
    """406: something is there with other properties, a delivery tag is unknown, a mode does not allow it."""


class CommandInvalid(ChannelClosed, ProgrammingError):
    """503: not possible in the state in which the channel or the branch is."""


class ResourceExhausted(ChannelClosed, OperationalError):
    """506: over a bound that is configured; nothing of the transaction is applied."""


class NotAllowed(ChannelClosed, ProgrammingError):
    """530: the xid is in use, or something else that is never allowed."""


class NotImplementedByBroker(ChannelClosed, NotSupportedError):
    """540."""


class BrokerFailed(ChannelClosed, InternalError):
    """541."""


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
    """The exception for a channel.close of the broker."""
    return _BY_CODE.get(code, ChannelClosed)(code, text, method, f"channel {number}")


# ---- publishing and consuming ----


class Returned(NamedTuple):
    """A mandatory message that no queue took. `method` has reply code and text, exchange and routing key."""

    method: BasicReturn
    properties: Properties
    body: bytes


class UnroutableError(OperationalError):
    """Mandatory messages came back; `messages` has them."""

    def __init__(self, messages: Sequence[Returned]) -> None:
        super().__init__(messages)
        self.messages = list(messages)

    def __str__(self) -> str:
        first = self.messages[0].method
        more = f" and {len(self.messages) - 1} more" if len(self.messages) > 1 else ""
        return f"{first.reply_code} {first.reply_text}: exchange {first.exchange!r}, key {first.routing_key!r}{more}"


class NackError(OperationalError):
    """The broker did not take messages; `sequence_numbers` are theirs, counted from 1 since `confirm_delivery`."""

    def __init__(self, sequence_numbers: Sequence[int]) -> None:
        super().__init__(sequence_numbers)
        self.sequence_numbers = list(sequence_numbers)

    def __str__(self) -> str:
        return (
            f"the broker refused {len(self.sequence_numbers)} messages, the first is number {self.sequence_numbers[0]}"
        )


class ConsumerCancelled(OperationalError):
    """The broker has cancelled the consumer, because its queue was deleted, say."""


# ---- transaction branches ----


class RolledBack(OperationalError):
    """The branch is rolled back, nothing of it happened; `timed_out` if because it was older than its timeout."""

    def __init__(self, xid: Xid, *, timed_out: bool) -> None:
        super().__init__(xid, timed_out)
        self.xid = xid
        self.timed_out = timed_out

    def __str__(self) -> str:
        return f"branch {self.xid}: rolled back" + (", it was open longer than its timeout" if self.timed_out else "")


class HeuristicOutcome(IntegrityError):
    """Somebody has completed the branch by hand (DTX-11). The broker keeps telling so until `tpc_forget(xid)`.

    `outcome` is "committed", "rolled back", "mixed" or "hazard" (it is not known); `asked` is "commit" or "rollback".
    """

    def __init__(self, xid: Xid, outcome: str, asked: str) -> None:
        super().__init__(xid, outcome, asked)
        self.xid = xid
        self.outcome = outcome
        self.asked = asked

    @property
    def as_asked(self) -> bool:
        """Whether the outcome is nevertheless the one that was asked for."""
        return (self.asked, self.outcome) in {("commit", "committed"), ("rollback", "rolled back")}

    def __str__(self) -> str:
        return f"branch {self.xid}: {self.asked} was asked for, but by hand it was completed before: {self.outcome}"
