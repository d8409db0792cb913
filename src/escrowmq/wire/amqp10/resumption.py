"""Deliveries of an earlier link that a resumed link to a consumer sends again, before anything new (SET-11)."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from escrowmq.wire.amqp10.dispositions import settlement_of
from escrowmq.wire.amqp10.resume import SenderAction

if TYPE_CHECKING:
    from collections import deque

    from escrowmq.core.termini.loan import Loan
    from escrowmq.wire.amqp10.outgoing import ConsumerLink
    from escrowmq.wire.amqp10.resuming import ConsumerPlan, Pending
    from escrowmq.wire.amqp10.sending import TransferFrames


class Resumption:
    """The plan of a resumed link, as far as it is not carried out. Each delivery spends credit of the link, and room in
    the session's window. `credit` is what is left to spend when the window opens.
    """

    __slots__ = ("_after", "_frames", "_link", "_loan", "_only", "_pending", "credit")

    def __init__(self, link: ConsumerLink, loan: Loan, frames: TransferFrames, plan: ConsumerPlan) -> None:
        """Apply the outcomes that the client has named."""
        self._link = link
        self._loan = loan
        self._frames = frames
        self._pending: deque[Pending] = plan.pending
        self._only = plan.only
        self.credit = 0
        adopted = [each for each in plan.pending if each.action is SenderAction.ADOPT]
        for state, some in groupby(adopted, lambda each: each.state):  # a read from the log may be for many of them
            loan.settle_tags([each.tag for each in some], settlement_of(link, state))
        self._after = link.link.session.connection.broker.termini.record()

    @property
    def done(self) -> bool:
        """Whether the link goes on with other deliveries."""
        return not self._pending and not self._only

    def send(self, credit: int) -> tuple[int, int]:
        """Send what credit and window allow. Return the number of deliveries sent, and the credit that is left for
        others.
        """
        session = self._link.link.session
        sent = 0
        while self._pending and sent < credit:
            if session.remote_incoming_window <= 0 or self._link.amid_delivery:
                session.starve(self._link)
                break
            sent += self._send(self._pending.popleft())
        self.credit = credit - sent if self._pending else 0
        return sent, 0 if self._pending or self._only else credit - sent

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
