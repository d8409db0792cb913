"""Deliveries of an earlier link that a resumed link to a consumer sends again, before anything new (SET-11)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Final

from escrowmq.core.budget import ADOPTED, RESENT
from escrowmq.core.conditions import BrokerError
from escrowmq.wire.amqp10.dispositions import settlement_of
from escrowmq.wire.amqp10.errors import refusal
from escrowmq.wire.amqp10.resume import SenderAction

if TYPE_CHECKING:
    from collections import deque

    from escrowmq.core.termini.loan import Loan
    from escrowmq.wire.amqp10.outgoing import ConsumerLink
    from escrowmq.wire.amqp10.resuming import ConsumerPlan, Pending
    from escrowmq.wire.amqp10.sending import TransferFrames

PIECE: Final = 20
"""Outcomes that are applied in one step."""


class Resumption:
    """The plan of a resumed link, as far as it is not carried out. Each delivery spends credit of the link, and room in
    the session's window. `credit` is what is left to spend when the window opens, or in the next turn.
    """

    __slots__ = ("_after", "_frames", "_interrupted", "_link", "_loan", "_only", "_pending", "credit")

    def __init__(self, link: ConsumerLink, loan: Loan, frames: TransferFrames, plan: ConsumerPlan) -> None:
        self._link = link
        self._loan = loan
        self._frames = frames
        self._pending: deque[Pending] = plan.pending
        self._only = plan.only
        self._interrupted = False
        self._after = 0
        self.credit = 0

    @property
    def done(self) -> bool:
        """Whether the link goes on with other deliveries."""
        return not self._pending and not self._only

    def adopting(self) -> Iterator[None]:
        """Apply the outcomes that the client has named, and yield after each piece. The client's next performative must
        wait for the end, because it may close the link. Another client may steal the terminus; then nothing more is
        applied.
        """
        broker = self._link.link.session.connection.broker
        requests = broker.engine.requests
        adopted = [each for each in self._pending if each.action is SenderAction.ADOPT]
        for state, some in groupby(adopted, lambda each: each.state):  # a read from the log may be for many of them
            tags = [each.tag for each in some]
            for at in range(0, len(tags), PIECE):
                if not self._loan.current:
                    return
                part = tags[at : at + PIECE]
                try:
                    self._loan.settle_tags(part, settlement_of(self._link, state))
                except BrokerError as error:
                    self._link.link.suspend(refusal(error), closed=False)
                    return
                requests.left -= ADOPTED * len(part)
                yield
        self._after = broker.termini.record()

    def send(self, credit: int) -> tuple[int, int]:
        """Send what credit, window and the turn's budget allow. Return the number of deliveries sent, and the credit
        that is left for others. If a delivery cannot be read, the link is detached, and its deliveries stay unsettled.
        """
        session = self._link.link.session
        requests = session.connection.broker.engine.requests
        sent = 0
        while self._pending and sent < credit:
            if session.remote_incoming_window <= 0 or self._link.amid_delivery:
                session.starve(self._link)
                break
            if requests.left <= 0:
                self._interrupt()
                break
            requests.left -= RESENT
            try:
                sent += self._send(self._pending.popleft())
            except BrokerError as error:
                self._link.link.suspend(refusal(error), closed=False)
                return sent, 0
        self.credit = credit - sent if self._pending else 0
        return sent, 0 if self._pending or self._only else credit - sent

    def _interrupt(self) -> None:
        """Continue in the next turn."""
        if not self._interrupted:
            self._interrupted = True
            self._link.link.session.connection.broker.engine.left_over.begin(self._rest())

    def _rest(self) -> Iterator[None]:
        while self._interrupted:
            yield
            self._interrupted = False
            self._link.wake()

    def _send(self, each: Pending) -> int:
        """Send a delivery, unless it is settled meanwhile. Return the number of deliveries sent."""
        session = self._link.link.session
        number = session.next_delivery_id
        if each.action is SenderAction.ADOPT and each.state is not None:
            session.next_delivery_id = number + 1
            session.transmitted(1)
            session.connection.put(session.lane, self._frames.outcome(number, each.tag, each.state), self._after)
            return 1
        taken, after = self._loan.take_up([each.number])
        for found in taken:
            session.sent.add(number, 1, self._link, found.number)
            resume = each.action is not SenderAction.RESEND
            pieces, frames = self._frames.again(number, found.entry, found.tag, resume=resume)
            session.next_delivery_id = number + 1
            self._link.transmit(pieces, frames, after)
        return len(taken)
