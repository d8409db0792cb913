"""A half message as protocols and operators see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.core.access.owned import Concerns
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.records.unreadable import LogUnreadable

if TYPE_CHECKING:
    from escrowmq.core.half.queue import HalfQueue
    from escrowmq.core.half.state import HalfState
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.queues.queue import Queue

_UNKNOWN: Final = Condition.NOT_FOUND


class HalfMessage:
    """The facts about a half message at the time of the call, and its content, which is loaded when it is wanted.

    Times are in milliseconds since the epoch. `due` is the time of the next check, or that of the decision. `checks` is
    the number of checks; for a producer that is asked, the present one counts. `queue` is the destination, None if it
    was deleted. It belongs to `user`; other users may decide it if they may write to its topic (`access.owned`).
    """

    __slots__ = (
        "_content",
        "_envelope",
        "_waiting_in",
        "born",
        "checks",
        "concerns",
        "due",
        "group",
        "label",
        "message_id",
        "number",
        "queue",
        "state",
        "topic",
        "transaction_id",
        "user",
        "vhost",
    )

    def __init__(self, waiting_in: HalfQueue, number: int, state: HalfState) -> None:
        ledger = waiting_in.ledger
        rows = ledger.rows
        origin = ledger.origins[rows.origin(number)]
        self._waiting_in = waiting_in
        self._envelope: Envelope | None = None
        self._content = b""
        self.number = number
        self.state = state
        self.vhost = waiting_in.vhost
        self.transaction_id = ledger.transaction_id(waiting_in.vhost, number)
        self.message_id = rows.ident(number)
        self.born, self.due = rows.born(number), rows.due(number)
        self.checks = rows.checks(number)
        self.topic, self.group, self.user, self.label, _ = origin.key
        self.queue: Queue | None = None if origin.queue is None or origin.queue.deleted else origin.queue
        self.concerns = Concerns()
        self.concerns.add("exchange", self.topic, "write")

    @property
    def title(self) -> str:
        """The name for error texts."""
        return f"half message {self.transaction_id} of topic '{self.topic}'"

    @property
    def envelope(self) -> Envelope:
        """The envelope. Raises NOT_FOUND if the message is decided, UNAVAILABLE if it cannot be read."""
        if self._envelope is None:
            self._load()
            assert self._envelope is not None
        return self._envelope

    @property
    def content(self) -> bytes:
        """The content. Raises the errors of `envelope`."""
        if self._envelope is None:
            self._load()
        return self._content

    def _load(self) -> None:
        try:
            found = self._waiting_in.load(self.number)
        except LogUnreadable as error:
            raise BrokerError(
                Condition.UNAVAILABLE, f"{self.title} in vhost '{self.vhost}' cannot be read: {error}"
            ) from error
        if found is None:
            raise BrokerError(_UNKNOWN, f"{self.title} in vhost '{self.vhost}' waits no longer")
        self._envelope, self._content = found
