"""Settlement by the application's policy instead of the receiver's outcome (SET-5).

A client chooses a policy with properties of its link: the broker then accepts deliveries on the client's behalf and
settles them, after a time, or when a number of later ones has been sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.core.queues.outcome import Disposition
from escrowmq.wire.amqp10.codec.performatives import SENDER
from escrowmq.wire.amqp10.codec.states import ACCEPTED
from escrowmq.wire.amqp10.codec.types import Symbol
from escrowmq.wire.amqp10.errors import INVALID_FIELD, link_fault

if TYPE_CHECKING:
    from escrowmq.core.deadlines import Deadline
    from escrowmq.wire.amqp10.outgoing import ConsumerLink

AFTER: Final = Symbol("escrowmq:settle-after")
"""Milliseconds after which a delivery is settled."""
WINDOW: Final = Symbol("escrowmq:settle-window")
"""The number of the latest deliveries that stay unsettled."""
LONGEST_MS: Final = 604_800_000
MOST: Final = 1_000_000


class PolicyRequest(NamedTuple):
    """The policy of a link. None stands for no limit."""

    after_ms: int | None
    window: int | None


def policy_of(properties: Mapping[object, object] | None, *, presettled: bool) -> PolicyRequest | None:
    """Return the policy that the properties of a link name, if any. Raises AmqpFault (invalid-field)."""
    if not properties or (AFTER not in properties and WINDOW not in properties):
        return None
    if presettled:
        raise link_fault(INVALID_FIELD, "the deliveries of this link are settled already, so it can have no policy")
    return PolicyRequest(_limit(properties, AFTER, LONGEST_MS), _limit(properties, WINDOW, MOST))


def _limit(properties: Mapping[object, object], name: Symbol, most: int) -> int | None:
    value = properties.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise link_fault(INVALID_FIELD, f"the property '{name}' is no whole number from 1 to {most}")
    return value


class _SentTogether:
    """Deliveries that were sent together: the first number of the session, that of the terminus, and when they are
    due.
    """

    __slots__ = ("count", "due", "first", "number")

    def __init__(self, number: int, first: int, count: int, due: int) -> None:
        self.number = number
        self.first = first
        self.count = count
        self.due = due


class SettlementPolicy:
    """Settles the deliveries of one link."""

    __slots__ = ("_after_ms", "_batches", "_count", "_deadline", "_link", "_window")

    def __init__(self, request: PolicyRequest, link: ConsumerLink) -> None:
        self._link: ConsumerLink | None = link
        self._after_ms = request.after_ms
        self._window = request.window
        self._batches: deque[_SentTogether] = deque()
        self._count = 0  # deliveries in `_batches`
        self._deadline: Deadline | None = None

    def sent(self, number: int, first: int, count: int) -> None:
        """Note deliveries that are sent: their first number of the session, and that of the terminus."""
        if self._link is None:
            return
        engine = self._link.link.session.connection.broker.engine
        self._batches.append(_SentTogether(number, first, count, engine.now + (self._after_ms or 0)))
        self._count += count
        if self._window is not None:
            self._settle(self._count - self._window)
        if self._after_ms is not None and self._deadline is None:
            self._deadline = engine.deadlines.set(engine.now + self._after_ms, self._expire)

    def stop(self) -> None:
        """Settle nothing any more: the link is detached."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._batches.clear()
        self._link = None

    def _expire(self) -> None:
        """Settle the deliveries that are due. A delivery whose last frames are not sent yet stays a while longer."""
        self._deadline = None
        link = self._link
        if link is None or self._after_ms is None:
            return
        engine = link.link.session.connection.broker.engine
        due = sum([batch.count for batch in self._batches if batch.due <= engine.now])
        self._settle(min(due, self._count - link.amid_delivery))
        if self._batches:
            self._deadline = engine.deadlines.set(max(self._batches[0].due, engine.now + 1), self._expire)

    def _settle(self, count: int) -> None:
        """Settle the `count` oldest deliveries, unless the client has done so."""
        link = self._link
        while count > 0 and link is not None:
            batch = self._batches[0]
            some = min(count, batch.count)
            self._accept(link, batch.number, batch.first, some)
            count -= some
            self._count -= some
            batch.count -= some
            batch.number += some
            batch.first += some
            if not batch.count:
                self._batches.popleft()

    @staticmethod
    def _accept(link: ConsumerLink, number: int, first: int, count: int) -> None:
        session = link.link.session
        settled = link.settle(first, first + count - 1, Disposition.ACCEPTED)
        if settled:
            session.sent.settled(number, settled)
            session.settled = True
            session.answer(SENDER, number, number + count - 1, settled=True, state=ACCEPTED)
