"""A half message as protocols and operators see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.core.access.owned import Concerns
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.half.ledger import transaction_id_of
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
        "_concerns",
        "_content",
        "_envelope",
        "_waiting_in",
        "born",
        "checks",
        "due",
        "group",
        "label",
        "message_id",
        "number",
        "queue",
        "state",
        "topic",
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
        self.message_id = rows.ident(number)
        self.born, self.due = rows.born(number), rows.due(number)
        self.checks = rows.checks(number)
        self.topic, self.group, self.user, self.label, _ = origin.key
        self.queue: Queue | None = None if origin.queue is None or origin.queue.deleted else origin.queue
        self._concerns: Concerns | None = None

    @property
    def transaction_id(self) -> str:
        """The id by which producers and operators name it."""
        return transaction_id_of(self.vhost, self.topic, self.message_id, self.born, self.number)

    @property
    def concerns(self) -> Concerns:
        """The names that it touches, for permissions."""
        if self._concerns is None:
            self._concerns = Concerns()
            self._concerns.add("exchange", self.topic, "write")
        return self._concerns

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
