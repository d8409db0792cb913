"""Deliveries that were acquired or retired in a transaction (part 4, sections 4.4.2 and 4.4.3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from escrowmq.core.branches.branch import Keep, Settlement
from escrowmq.core.queues.outcome import Disposition
from escrowmq.wire.amqp10.codec.performatives import SENDER
from escrowmq.wire.amqp10.codec.states import RELEASED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.queues.consumer import Consumer
    from escrowmq.wire.amqp10.codec.states import Outcome
    from escrowmq.wire.amqp10.outgoing import ConsumerLink
    from escrowmq.wire.amqp10.session import Session


@dataclass(slots=True)
class Enlisted:
    """Deliveries of a link that were acquired or retired in a transaction.

    `first` and `last` are numbers of the session, `number` is the link's number of the first one. `unsettled` is the
    number of those that were not settled before. `works` is empty for deliveries that were only acquired.
    """

    session: Session
    link: ConsumerLink
    first: int
    last: int
    number: int
    unsettled: int
    outcome: Outcome | None = None
    settled: bool = False
    works: list[Settlement] = field(default_factory=list)

    def overlaps(self, link: ConsumerLink, first: int, last: int) -> bool:
        """Return whether deliveries of `link` between these numbers of its session are among them."""
        return self.link is link and self.first <= last and first <= self.last

    def settle(self) -> None:
        """The client has settled the deliveries, too: a rollback applies the default outcome to them."""
        self.settled = True
        for work in self.works:
            if work.undo is not None:
                work.undo = Keep(DefaultOutcome(self.link), work.undo.tags)
        self.session.sent.settled(self.first, self.unsettled)

    def give_up(self) -> None:
        """Return deliveries whose acquisition was rolled back, and tell the client that they are settled."""
        session = self.session
        count = self.link.settle(self.number, self.number + self.last - self.first, Disposition.RELEASED)
        if count and not session.ending:
            session.sent.settled(self.first, count)
            session.settled = True
            session.answer(SENDER, self.first, self.last, settled=True, state=RELEASED)


class DefaultOutcome:
    """The undo that applies the source's default outcome to deliveries that the client has settled."""

    __slots__ = ("_engine", "_outcome")

    def __init__(self, link: ConsumerLink) -> None:
        self._engine = link.link.session.connection.broker.engine
        self._outcome = link.default

    def keep(self, consumer: Consumer, tags: Sequence[int], entries: Sequence[Entry]) -> None:
        """Settle `entries` with the default outcome."""
        self._engine.settle(consumer, [*entries], self._outcome)
