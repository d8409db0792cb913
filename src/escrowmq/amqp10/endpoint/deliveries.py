"""One delivery of a link, seen by its sender or by its receiver. Both survive the connection if the link resumes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from escrowmq.amqp10.errors import DeliveryLost, MessageModified, MessageRejected, MessageReleased, NotAccepted, reason
from escrowmq.amqp10.message import Message
from escrowmq.wire.amqp10.codec.performatives import Error
from escrowmq.wire.amqp10.codec.states import Accepted, Declared, Modified, Rejected, Released, TransactionalState
from escrowmq.wire.amqp10.codec.types import Symbol

if TYPE_CHECKING:
    from escrowmq.amqp10.endpoint.incoming import IncomingLink
    from escrowmq.amqp10.endpoint.outgoing import OutgoingLink
    from escrowmq.amqp10.endpoint.transactions import Transaction

TERMINAL: Final = (Accepted, Rejected, Released, Modified, Declared)
ACCEPT: Final = Accepted()
RELEASE: Final = Released()

_FAILURES: Final[dict[type, tuple[type[NotAccepted], str]]] = {
    Rejected: (MessageRejected, "the peer rejected the message"),
    Released: (MessageReleased, "the peer released the message: it was not taken, perhaps because no queue is bound"),
    Modified: (MessageModified, "the peer did not take the message, and asks for changes"),
}


class OutgoingDelivery:
    """A message that was handed to a sending link.

    `tag` identifies it within the link. `state` is the peer's latest state, such as `Accepted()`; `settled` becomes
    true when neither side needs to remember it any longer. `context` belongs to the caller.
    """

    __slots__ = ("context", "id", "link", "payload", "resume", "settled", "state", "tag", "transaction")

    def __init__(
        self, link: OutgoingLink, tag: bytes, payload: bytes, settled: bool, transaction: bytes | None
    ) -> None:
        self.link = link
        self.tag = tag
        self.payload = payload
        self.settled = settled
        self.transaction = transaction
        self.id = -1
        """The delivery-id, or -1 before the first transfer on this session."""
        self.state: Any = None
        self.resume: Any = None
        """How to resume the delivery, while that transfer waits for credit."""
        self.context: Any = None

    def __repr__(self) -> str:
        return f"<delivery {self.tag.hex()} of {self.link}: {self.state or 'no outcome'}>"

    @property
    def outcome(self) -> Any:
        """The terminal state that the peer has reported, or None."""
        state = self.state.outcome if isinstance(self.state, TransactionalState) else self.state
        return state if isinstance(state, TERMINAL) else None

    @property
    def done(self) -> bool:
        """Whether there is nothing to wait for: an outcome is known, or the delivery was settled without one."""
        return self.settled or self.outcome is not None

    @property
    def accepted(self) -> bool:
        """Whether the peer accepted the message. True as well for what was sent presettled."""
        outcome = self.outcome
        return isinstance(outcome, Accepted) or (outcome is None and self.settled)

    def check(self) -> None:
        """Raise the NotAccepted that the outcome stands for, if it is not Accepted."""
        outcome = self.outcome
        failure = _FAILURES.get(type(outcome))
        if failure is not None:
            kind, text = failure
            raise kind(f"{self.link}: {reason(getattr(outcome, 'error', None), text)}", self)


class IncomingDelivery:
    """A message that has arrived. `payload` holds all its sections; `message` is decoded when it is first read.

    `state` is the state that this side has given it. `settled` is true once it can be forgotten here. The methods
    that give an outcome do not wait: the outcome is sent at once, and confirmed by the peer only in mode `second`.
    """

    __slots__ = (
        "_message",
        "context",
        "format",
        "id",
        "link",
        "lost",
        "outcome",
        "payload",
        "remote",
        "settled",
        "state",
        "tag",
    )

    def __init__(self, link: IncomingLink, tag: bytes, id: int, settled: bool, format: int = 0) -> None:
        self.link = link
        self.tag = tag
        self.id = id
        """The delivery-id, or -1 while the link is not attached or the delivery was not resumed yet."""
        self.settled = settled
        self.format = format
        self.payload = b""
        self.state: Any = None
        self.outcome: Any = None
        """A terminal state that was chosen here and, outside transactions, is final."""
        self.remote: Any = None
        self.lost: str = ""
        """Why the delivery can no longer be settled, or empty."""
        self.context: Any = None
        self._message: Message | None = None

    def __repr__(self) -> str:
        return f"<delivery {self.tag.hex()} of {self.link}: {self.state or 'unsettled'}>"

    @property
    def message(self) -> Message:
        """The message, decoded.

        Raises:
            UsageError: The sender's bytes are not a message of AMQP 1.0; reject the delivery.
        """
        if self._message is None:
            self._message = Message.decode(self.payload)
        return self._message

    @property
    def body(self) -> Any:
        """The body of the message."""
        return self.message.body

    def accept(self, transaction: Transaction | None = None) -> None:
        """Accept the message: it has been processed, or will be when the transaction commits.

        Raises:
            DeliveryLost: The link was lost before; the broker delivers the message again.
        """
        self.settle(ACCEPT, transaction)

    def reject(self, condition: str = "", description: str = "", transaction: Transaction | None = None) -> None:
        """Reject the message as invalid: the broker dead-letters or drops it. Raises DeliveryLost as `accept` does."""
        error = Error(condition=Symbol(condition or "amqp:internal-error"), description=description or None)
        self.settle(Rejected(error=error if condition or description else None), transaction)

    def release(self, transaction: Transaction | None = None) -> None:
        """Return the message unprocessed to its place in the queue. Raises DeliveryLost as `accept` does."""
        self.settle(RELEASE, transaction)

    def modify(
        self,
        *,
        failed: bool = True,
        elsewhere: bool = False,
        annotations: Mapping[str, Any] | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        """Return the message to the queue with changes. Raises DeliveryLost as `accept` does.

        `failed` counts a failed delivery, `elsewhere` asks not to offer it to this link again, and `annotations` are
        merged into those of the message.
        """
        changes = {Symbol(name): value for name, value in (annotations or {}).items()} or None
        state = Modified(delivery_failed=failed, undeliverable_here=elsewhere, message_annotations=changes)
        self.settle(state, transaction)

    def settle(self, outcome: Any, transaction: Transaction | None = None) -> None:
        """Give the message this outcome. Raises DeliveryLost as `accept` does."""
        endpoint = self.link.session.endpoint
        with endpoint.guard:
            self.check()
            if transaction is None:
                self.link.settle((self,), outcome)
            else:
                transaction.retire((self,), outcome)
            endpoint.wake()

    def check(self) -> None:
        """Raise DeliveryLost if the delivery can no longer be settled."""
        if self.lost:
            raise DeliveryLost(f"{self.link}: {self.lost}; the broker delivers it again, so undo its work")
